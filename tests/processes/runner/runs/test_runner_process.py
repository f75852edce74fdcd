"""The input, the configuration, the limits, and the secrets of the process of a run.

Limits of a process are permanent, so they are set in processes of their own.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.runs.runner_process import Output, RunnerInput, configure
from rolecall.runner.runs.workspace import Workspace
from tests.support.names import NAMES

CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")


@pytest.fixture(autouse=True)
def _no_settings_of_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANSIBLE_INVENTORY", "ANSIBLE_GATHERING", "ANSIBLE_ROLES_PATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(variable, raising=False)


def test_input_survives_the_way_to_the_process_and_hides_secrets_in_print() -> None:
    run_input = RunnerInput("1", "/w", "/t", role="/r/a", verbosity=2, grace_seconds=0.5, secrets={"TOKEN": "s3cret"})
    assert RunnerInput.from_line(run_input.to_line()) == run_input
    assert "s3cret" not in repr(run_input)


def configured(directory: Path, cmdline: str = "", **play: Any) -> Any:
    """Return ansible-runner's configuration for a play in a workspace of its own."""
    workspace = Workspace(directory / "runner", GVK("a.example.com", "v1", "Thing"), ObjectKey("default", "one"))
    workspace.prepare("7", {"size": 1}, cmdline=cmdline)
    return configure(RunnerInput("7", str(workspace.path), str(workspace.temporary), **play)).config


@settings(max_examples=50, deadline=None)
@given(NAMES)
@example(":" * 253)
def test_command_and_environment_of_a_run_contain_no_name_unquoted(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        for variable in ("PATH", "PYTHONPATH"):
            patch.delenv(variable, raising=False)
        (Path(directory) / "roles" / "thing" / "tasks").mkdir(parents=True)
        workspace = Workspace(Path(directory) / "runner", CLUSTER_ROLE, ObjectKey("", name))
        workspace.prepare("7", {"size": 1})
        run_input = RunnerInput("7", str(workspace.path), str(workspace.temporary), f"{directory}/roles/thing")
        config = configure(run_input).config
        environment = {key: value for key, value in config.env.items() if value != os.environ.get(key)}
        for word in (*config.command, config.cwd, *environment.values()):
            assert re.fullmatch(r"[A-Za-z0-9/._%+~:@-]*", word), word
        for variable in ("TMPDIR", "ANSIBLE_LOCAL_TEMP"):
            assert environment[variable] == str(workspace.temporary)
        roles_path = environment["ANSIBLE_ROLES_PATH"].split(os.pathsep)
        assert roles_path == [f"{directory}/roles/", f"{workspace.path}/roles"]
        for paths in (config.env["ANSIBLE_CALLBACK_PLUGINS"], config.env["PATH"], config.env["PYTHONPATH"]):
            assert all(part.startswith("/") for part in paths.split(os.pathsep))


def test_temporary_directory_is_tmpdir_unless_sockets_would_not_fit(tmp_path: Path) -> None:
    """A socket's path may have 107 characters, of which multiprocessing needs 32 below TMPDIR."""
    (tmp_path / "site.yml").write_text("[]")
    (tmp_path / "w").mkdir()
    for length, is_set in ((75, True), (76, False)):
        run_input = RunnerInput("7", str(tmp_path / "w"), f"/{'t' * (length - 1)}", playbook=str(tmp_path / "site.yml"))
        environment = configure(run_input).config.env
        assert environment["ANSIBLE_LOCAL_TEMP"] == run_input.temporary
        assert (environment.get("TMPDIR") == run_input.temporary) is is_set


@pytest.mark.parametrize(
    ("verbosity", "words"), [(-1, []), (0, []), (1, ["-v"]), (2, ["-vv"]), (7, ["-vvvvvvv"]), (9, ["-vvvvvvvvv"])]
)
@pytest.mark.parametrize("is_role", [True, False])
def test_command_line_is_the_go_runners(tmp_path: Path, verbosity: int, words: list[str], *, is_role: bool) -> None:
    (tmp_path / "site.yml").write_text("[]")
    (tmp_path / "roles" / "thing" / "tasks").mkdir(parents=True)
    content = {"role": f"{tmp_path}/roles/thing"} if is_role else {"playbook": f"{tmp_path}/site.yml"}
    config = configured(tmp_path, verbosity=verbosity, **content)
    workspace = f"{tmp_path}/runner/a.example.com/v1/Thing/default/one"
    played = f"{workspace}/project/main.json" if is_role else f"{tmp_path}/site.yml"
    inputs = ["-i", f"{workspace}/inventory", "-e", f"@{workspace}/env/extravars"]
    assert config.command == ["ansible-playbook", *inputs, *words, played]
    assert config.cwd == f"{workspace}/project"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--vault-password-file /opt/pw", ["--vault-password-file", "/opt/pw"]),
        ("--tags 'a b' -e x=1", ["--tags", "a b", "-e", "x=1"]),
        ("", []),
    ],
)
def test_ansible_args_are_split_as_in_a_shell_and_come_first(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "site.yml").write_text("[]")
    command = configured(tmp_path, text, playbook=f"{tmp_path}/site.yml").command
    assert command[1 : 1 + len(words)] == words
    assert command[1 + len(words)] == "-i"  # so that the object's variables win over an -e among the words


@pytest.mark.parametrize(("gathering", "gathers"), [(None, True), ("explicit", False), ("smart", True)])
def test_role_runs_on_localhost_and_finds_its_neighbors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gathering: str | None, *, gathers: bool
) -> None:
    if gathering:
        monkeypatch.setenv("ANSIBLE_GATHERING", gathering)
    (tmp_path / "roles" / "thing" / "tasks").mkdir(parents=True)
    config = configured(tmp_path, role=f"{tmp_path}/roles/thing")
    [play] = json.loads(Path(config.command[-1]).read_text())
    assert (play["hosts"], [role["name"] for role in play["roles"]]) == ("localhost", ["thing"])
    assert play.get("gather_facts", True) is gathers
    assert config.env["ANSIBLE_ROLES_PATH"].split(":")[0] == f"{tmp_path}/roles/"


def test_lines_reach_the_operator_until_it_stops_reading() -> None:
    reading, writing = os.pipe()
    output = Output(writing)
    output.write("one")
    assert os.read(reading, 100) == b"one\n"
    os.close(reading)
    output.write("two")
    output.write("three")
    os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


STORE = r"""
import sys
from pathlib import Path
from rolecall.runner.runs.runner_process import ArtifactsTooLargeError, EventFiles
directory, limit, repeats, count = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "repeats", int(sys.argv[4])
printed = sys.argv[5] * 1000
events = directory / "job_events"
events.mkdir()
files = EventFiles(events, limit, output_in_events=repeats)
try:
    for number in range(count):
        print(files.store({"uuid": "a", "counter": number, "stdout": printed, "start_line": number}))
        with (directory / "stdout").open("a", newline="") as stdout:  # as ansible-runner does
            stdout.write(printed + "\r\n")
    (directory / "large").write_bytes(b"x" * 50_000)
except (ArtifactsTooLargeError, OSError) as error:
    print(error)
"""


def store(directory: Path, limit_bytes: int, output: str, count: int, *, letter: str = "x") -> list[str]:
    """Store events that print a letter a thousand times each, then write a file of 50 KB; return the output."""
    command = [sys.executable, "-c", STORE, str(directory), str(limit_bytes), output, str(count), letter]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_event_is_stored_without_its_output(tmp_path: Path) -> None:
    assert store(tmp_path, 0, "once", 1) == ["False"]
    path = tmp_path / "job_events" / "0-a.json"
    assert json.loads(path.read_text()) == {"uuid": "a", "counter": 0, "start_line": 0}
    assert path.stat().st_mode & 0o777 == 0o600


def test_counted_bytes_are_those_on_disk(tmp_path: Path) -> None:
    """The command with its environment counts too, and letters beyond ASCII with each of their bytes."""
    (tmp_path / "command").write_text("x" * 5000)
    assert "more than 20Ki" in store(tmp_path, 20_480, "once", 100, letter="é")[-1]
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 18_000 < stored <= 20_480


def test_single_file_is_limited_too(tmp_path: Path) -> None:
    assert "File too large" in store(tmp_path, 10_240, "once", 1)[-1]
    assert (tmp_path / "large").stat().st_size <= 10_240


def test_nothing_is_limited_without_a_limit(tmp_path: Path) -> None:
    assert store(tmp_path, 0, "once", 100) == ["False"] * 100
    assert (tmp_path / "large").stat().st_size == 50_000


EAT = """
import subprocess, sys
from rolecall.runner.runs.runner_process import PeakMemory, limit_memory
memory = PeakMemory()
limit_memory(int(sys.argv[1]))
eat = "x = bytearray(240 << 20); x[::4096] = b'y' * len(x[::4096])"
print(subprocess.run([sys.executable, "-c", eat], stderr=subprocess.DEVNULL).returncode, memory.max_bytes >> 20)
"""
START = """
import subprocess, sys
x = bytearray(200 << 20); x[::4096] = b'y' * len(x[::4096])
peak = "from rolecall.runner.runs.runner_process import PeakMemory; print(PeakMemory().max_bytes >> 20)"
subprocess.run([sys.executable, "-c", peak], check=True)
"""
FORK = """
import os
from rolecall.runner.runs.runner_process import PeakMemory
shared = bytearray(200 << 20); shared[::4096] = b'y' * len(shared[::4096])
if os.fork() == 0:
    memory = PeakMemory()
    before = memory.max_bytes
    own = bytearray(50 << 20); own[::4096] = b'y' * len(own[::4096])
    print((memory.max_bytes - before) >> 20)
else:
    os.wait()
"""


def printed(program: str, *arguments: str) -> list[int]:
    """Return the numbers that a program prints."""
    command = [sys.executable, "-c", program, *arguments]
    return [int(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def test_memory_limit_holds_for_child_processes() -> None:
    code, peak = printed(EAT, str(150 << 20))
    assert code == 1
    assert peak < 150


def test_peak_memory_is_that_of_the_largest_process() -> None:
    code, peak = printed(EAT, "0")
    assert code == 0
    assert 200 < peak < 300


def test_memory_of_the_parent_is_not_in_the_peak_of_a_started_process() -> None:
    assert printed(START)[0] < 100


def test_memory_shared_with_the_parent_is_not_in_the_peak_of_a_forked_process() -> None:
    assert 45 < printed(FORK)[0] < 60
