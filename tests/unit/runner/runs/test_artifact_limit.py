"""The limit of the process that writes is set for good, so that these tests write in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

STORE = r"""
import sys
from pathlib import Path
from rolecall.runner.runs.runner_process import ArtifactsTooLargeError, EventFiles
folder, limit, repeats, count = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "repeats", int(sys.argv[4])
printed = sys.argv[5] * 1000
events = folder / "job_events"
events.mkdir()
files = EventFiles(events, limit, output_in_events=repeats)
try:
    for number in range(count):
        print(files.store({"uuid": "a", "counter": number, "stdout": printed, "start_line": number}))
        with (folder / "stdout").open("a", newline="") as stdout:  # as ansible-runner does
            stdout.write(printed + "\r\n")
    (folder / "large").write_bytes(b"x" * 50_000)
except (ArtifactsTooLargeError, OSError) as error:
    print(error)
"""


def store(folder: Path, limit_bytes: int, output: str, count: int, *, letter: str = "x") -> list[str]:
    """Store events that print a letter a thousand times each, then write a file of 50 KB; return what was answered."""
    command = [sys.executable, "-c", STORE, str(folder), str(limit_bytes), output, str(count), letter]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_an_event_is_stored_without_what_it_prints(tmp_path: Path) -> None:
    assert store(tmp_path, 0, "once", 1) == ["False"]
    path = tmp_path / "job_events" / "0-a.json"
    assert json.loads(path.read_text()) == {"uuid": "a", "counter": 0, "start_line": 0}
    assert path.stat().st_mode & 0o777 == 0o600


def test_ansible_runner_stores_an_event_with_what_it_prints(tmp_path: Path) -> None:
    assert store(tmp_path, 0, "repeats", 1) == ["True"]
    assert list((tmp_path / "job_events").iterdir()) == []


def test_events_count_with_what_they_print(tmp_path: Path) -> None:
    *answers, error = store(tmp_path, 10_240, "once", 100)
    assert len(answers) == 9
    assert error.startswith("the run was ended, because its artifacts have more than 10Ki")


def test_what_is_counted_is_what_lies_on_the_disk(tmp_path: Path) -> None:
    """The command with its environment counts too, and letters beyond ASCII with each of their bytes."""
    (tmp_path / "command").write_text("x" * 5000)
    assert "more than 20Ki" in store(tmp_path, 20_480, "once", 100, letter="é")[-1]
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 18_000 < stored <= 20_480


def test_a_single_file_cannot_be_larger_than_all_may_be(tmp_path: Path) -> None:
    assert "File too large" in store(tmp_path, 10_240, "once", 1)[-1]
    assert (tmp_path / "large").stat().st_size <= 10_240


def test_without_a_limit_nothing_is_limited(tmp_path: Path) -> None:
    assert store(tmp_path, 0, "once", 100) == ["False"] * 100
    assert (tmp_path / "large").stat().st_size == 50_000
