import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from rolecall.runner.runs.runner_process import HiddenText, hide_environment, redact, redact_folder


def test_hidden_text_is_not_in_json() -> None:
    assert json.dumps({"TOKEN": HiddenText("s3cret")}) == '{"TOKEN": ["hidden"]}'


def test_hidden_text_is_in_nobodys_print() -> None:
    assert "s3cret" not in f"{HiddenText('s3cret')} {HiddenText('s3cret')!r}"


def test_a_process_gets_hidden_text_in_clear() -> None:
    environment = os.environ | {"TOKEN": cast("str", HiddenText("s3cret"))}
    command = [sys.executable, "-c", "import os; print(os.environ['TOKEN'])"]
    assert subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout == "s3cret\n"


def test_only_what_is_known_to_be_harmless_is_shown() -> None:
    hidden = hide_environment({"PATH": "/bin", "ANSIBLE_FORKS": "5", "DB_PASSWORD": "x"})
    assert (hidden["PATH"], hidden["ANSIBLE_FORKS"]) == ("/bin", "5")
    assert isinstance(hidden["DB_PASSWORD"], HiddenText)


def test_secrets_are_replaced_at_every_depth() -> None:
    value = {"a": ["x s3cret y", {"b": "s3cret"}, 3, None], "c": "fine"}
    assert redact(value, ["s3cret", ""]) == {"a": ["x (hidden) y", {"b": "(hidden)"}, 3, None], "c": "fine"}


def test_what_was_printed_is_cleaned(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("token is s3cret\n")
    (tmp_path / "stderr").write_text("nothing\n")
    redact_folder(tmp_path, ["s3cret"])
    assert (tmp_path / "stdout").read_text() == "token is (hidden)\n"
    assert (tmp_path / "stderr").read_text() == "nothing\n"


def test_half_written_events_are_removed(tmp_path: Path) -> None:
    (tmp_path / "job_events").mkdir()
    for name in ("a-partial.json", "b-partial.json.tmp", "1-c.json"):
        (tmp_path / "job_events" / name).touch()
    redact_folder(tmp_path, [])
    assert [path.name for path in (tmp_path / "job_events").iterdir()] == ["1-c.json"]


def test_a_run_that_left_nothing_is_clean(tmp_path: Path) -> None:
    redact_folder(tmp_path / "gone", ["s3cret"])
    assert not (tmp_path / "gone").exists()
