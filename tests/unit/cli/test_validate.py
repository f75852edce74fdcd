import json
from pathlib import Path

import pytest

from rolecall.cli.main import main
from tests.static.repository import ROOT

WATCHES = "- {group: test.example.com, version: v1, kind: Thing, role: thing}\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project in which nothing is wrong, as the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)  # it is for the life of a process
    (tmp_path / "roles/thing/tasks").mkdir(parents=True)
    (tmp_path / "roles/thing/tasks/main.yml").write_text("- ansible.builtin.debug: {}\n")
    (tmp_path / "watches.yaml").write_text(WATCHES)
    return tmp_path


def with_a_warning(project: Path) -> None:
    """Add a definition without a status subresource."""
    (project / "deploy/crds").mkdir(parents=True)
    (project / "deploy/crds/things.yaml").write_text(
        "kind: CustomResourceDefinition\nspec:\n"
        "  group: test.example.com\n  names: {kind: Thing}\n  versions:\n    - name: v1\n"
    )


def test_nothing_wrong_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == "watches.yaml: 1 kind, 1 role or playbook, no problems found\n"


def test_this_repository_is_right(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    code = main(["validate", "--strict"])
    assert (code, capsys.readouterr().out) == (0, "watches.yaml: 4 kinds, 4 roles and playbooks, no problems found\n")


def test_an_error_is_exit_code_1_and_one_line_without_colours(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "watches.yaml").write_text(WATCHES.replace("}", ", timout: 5s}"))
    assert main(["validate"]) == 1
    assert capsys.readouterr().out == (
        "watches.yaml:1: error: entry 1 (kind Thing), key timout: "
        "unknown key (ignored); did you mean 'timeout'?\n1 error, 0 warnings\n"
    )


def test_a_warning_fails_only_if_strict(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_a_warning(project)
    assert main(["validate"]) == 0
    assert main(["validate", "--strict"]) == 1
    told = "deploy/crds/things.yaml:6: warning: Thing has no status subresource, but manageStatus is true"
    assert capsys.readouterr().out.splitlines() == [told, "0 errors, 1 warning"] * 2


def test_definitions_may_lie_elsewhere(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_a_warning(project)
    (project / "empty").mkdir()
    assert main(["validate", "--strict", "--crds", "empty"]) == 0
    assert main(["validate", "--strict", "--crds", "empty", "--crds", "deploy"]) == 1
    assert "1 warning" in capsys.readouterr().out


def test_the_report_can_be_read_by_programs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "watches.yaml").write_text(WATCHES.replace("thing", "nowhere"))
    assert main(["validate", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "kinds": 0,
        "contents": 0,
        "errors": 1,
        "warnings": 0,
        "problems": [
            {
                "file": "watches.yaml",
                "line": 1,
                "message": "role: nowhere not found (looked for roles/nowhere, nowhere), so its tasks were not checked",
                "severity": "error",
                "entry": "entry 1 (kind Thing)",
                "key": "role",
            }
        ],
    }


def test_colours_are_for_terminals(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "watches.yaml").write_text("{}\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["validate"])
    monkeypatch.setenv("NO_COLOR", "1")
    main(["validate"])
    coloured, _, plain, _ = capsys.readouterr().out.splitlines()
    assert coloured == plain.replace("error", "\x1b[31merror\x1b[0m")


def test_definitions_that_are_not_there_are_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["validate", "--crds", "nowhere"])
    assert ended.value.code == 2
    assert "'nowhere' does not exist" in capsys.readouterr().err


def test_the_schema_for_editors_is_printed_and_nothing_checked(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "watches.yaml").unlink()
    assert main(["validate", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["items"]["properties"]["watchReads"]["description"]
