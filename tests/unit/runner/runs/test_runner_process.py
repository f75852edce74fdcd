import json
import os
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.runs.runner_process import COLLECTIONS, Output, RunnerInput, configure
from rolecall.runner.runs.workspace import Inputs, Workspace


@pytest.fixture(autouse=True)
def _no_settings_of_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANSIBLE_INVENTORY", "ANSIBLE_GATHERING", "ANSIBLE_ROLES_PATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(variable, raising=False)


def test_a_description_survives_the_way_to_the_process() -> None:
    play = RunnerInput("1", "/w", role="/r/a", verbosity=2, grace_seconds=0.5, secrets={"TOKEN": "x"})
    assert RunnerInput.from_line(play.to_line()) == play


def test_secrets_are_not_in_what_is_printed_of_a_description() -> None:
    assert "s3cret" not in repr(RunnerInput("1", "/w", secrets={"TOKEN": "s3cret"}))


def test_a_playbook_is_run_by_its_path() -> None:
    assert RunnerInput("1", "/w", playbook="/p/site.yml").arguments == {"playbook": "/p/site.yml"}


@pytest.mark.parametrize(("gathering", "skip"), [(None, False), ("explicit", True), ("smart", False)])
def test_a_role_is_run_by_name_and_folder(monkeypatch: pytest.MonkeyPatch, gathering: str | None, skip: bool) -> None:  # noqa: FBT001
    monkeypatch.delenv("ANSIBLE_GATHERING", raising=False)
    if gathering:
        monkeypatch.setenv("ANSIBLE_GATHERING", gathering)
    arguments = RunnerInput("1", "/w", role="/opt/roles/foo").arguments
    expected = {"role": "foo", "roles_path": "/opt/roles/", "hosts": "localhost", "role_skip_facts": skip}
    assert arguments == expected


def configured(folder: Path, cmdline: str = "", **play: Any) -> Any:
    """Return ansible-runner's configuration for a play in a workspace of its own."""
    workspace = Workspace(folder / "runner", GVK("a.example.com", "v1", "Thing"), ObjectKey("default", "one"))
    workspace.prepare("7", Inputs({"size": 1}, cmdline=cmdline))
    return configure(RunnerInput("7", str(workspace.path), **play)).config


@pytest.mark.parametrize(
    ("verbosity", "words"), [(-1, []), (0, []), (1, ["-v"]), (2, ["-vv"]), (7, ["-vvvvvvv"]), (9, ["-vvvvvvvvv"])]
)
@pytest.mark.parametrize("is_role", [True, False])
def test_the_command_line_is_the_go_runners(tmp_path: Path, verbosity: int, words: list[str], *, is_role: bool) -> None:
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
def test_words_of_ansible_args_are_split_as_a_shell_does_and_come_first(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    (tmp_path / "site.yml").write_text("[]")
    command = configured(tmp_path, text, playbook=f"{tmp_path}/site.yml").command
    assert command[1 : 1 + len(words)] == words
    assert command[1 + len(words)] == "-i"  # so that the object's variables win over an -e among the words


def test_a_role_is_the_only_one_of_a_play_on_localhost_and_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "roles" / "thing" / "tasks").mkdir(parents=True)
    config = configured(tmp_path, role=f"{tmp_path}/roles/thing")
    [play] = json.loads(Path(config.command[-1]).read_text())
    assert (play["hosts"], [role["name"] for role in play["roles"]]) == ("localhost", ["thing"])
    assert config.env["ANSIBLE_ROLES_PATH"].split(":")[0] == f"{tmp_path}/roles/"


def test_the_collection_lies_where_ansible_looks_for_collections() -> None:
    assert COLLECTIONS.name == "collections"
    assert COLLECTIONS.parent.name == "rolecall"


def test_lines_reach_the_operator() -> None:
    reading, writing = os.pipe()
    Output(writing).write("one")
    assert os.read(reading, 100) == b"one\n"
    os.close(reading)


def test_lines_are_dropped_when_nobody_reads_any_more() -> None:
    reading, writing = os.pipe()
    lines = Output(writing)
    os.close(reading)
    lines.write("one")
    lines.write("two")
    os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
