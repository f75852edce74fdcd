"""``rolecall plan`` on the command line: what it asks the planner for, what it prints, and how it ends."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.cli.main import main
from rolecall.kube.errors import UnreachableError
from rolecall.workbench.plan.model import ObjectPlan, Plan, PlanError, PlanRequest
from rolecall.workbench.plan.sandbox_sources import SourceError
from tests.unit.workbench.plan.plans import change, config_map, object_plan

CHANGED = object_plan(change(config_map(data={"a": "b"}), config_map(data={"a": "c"})), requeue_after_seconds=60.0)
SAME = object_plan(name="two")
Planned = Callable[..., list[PlanRequest]]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project as the working directory; leave neither variables nor a logging set-up behind."""
    for variable in ("ANSIBLE_ROLES_PATH", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_GATHERING", "WATCH_NAMESPACE"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roles/foo/tasks").mkdir(parents=True)
    (tmp_path / "roles/foo/tasks/main.yml").write_text("[]\n")
    (tmp_path / "watches.yaml").write_text("- {group: example.com, version: v1, kind: Foo, role: foo}\n")
    return tmp_path


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Let the planner give these plans, or raise this error; return what it was asked for."""

    def plan(*plans: ObjectPlan, error: Exception | None = None) -> list[PlanRequest]:
        asked: list[PlanRequest] = []

        async def make_plan(request: PlanRequest, report: Callable[[str], None]) -> Plan:
            asked.append(request)
            report("Starting the sandbox")
            if error:
                raise error
            return Plan(plans)

        monkeypatch.setattr("rolecall.workbench.plan.planner.make_plan", make_plan)
        return asked

    return plan


def test_one_object_is_planned_with_the_settings_of_the_operator(planned: Planned) -> None:
    asked = planned(SAME)
    arguments = ("--kubeconfig", "k", "--mark-unsafe", "--inject-owner-ref=false", "--run-commands")
    assert main(["plan", "Foo", "one", "-n", "ns", *arguments]) == 0
    [request] = asked
    assert (request.kind, request.name, request.namespace, request.everything) == ("Foo", "one", "ns", False)
    assert (request.settings.kubeconfig, request.settings.mark_unsafe) == ("k", True)
    assert (request.settings.inject_owner_reference, request.runs_commands) == (False, True)
    assert [watch.gvk.kind for watch in request.watches] == ["Foo"]


def test_files_are_planned_together(planned: Planned) -> None:
    asked = planned(SAME)
    assert main(["plan", "-f", "a.yaml", "b.yaml", "-f", "c.yaml"]) == 0
    assert asked[0].files == (Path("a.yaml"), Path("b.yaml"), Path("c.yaml"))


def test_all_objects_are_planned_in_the_namespaces_of_the_operator(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCH_NAMESPACE", "a,b")
    asked = planned(SAME)
    assert main(["plan", "--all", "--kind", "foo"]) == 0
    assert (asked[0].everything, asked[0].kind, asked[0].settings.namespaces) == (True, "foo", ("a", "b"))


@pytest.mark.parametrize(
    ("plans", "code"),
    [
        ((), 0),
        ((SAME,), 0),
        ((SAME, CHANGED), 2),
        ((CHANGED, object_plan(stopped_at="task 3")), 3),
        ((CHANGED, object_plan(stopped_at="task 3"), object_plan(failure="no")), 1),
    ],
)
def test_the_exit_code_says_what_would_happen(planned: Planned, plans: tuple[ObjectPlan, ...], code: int) -> None:
    planned(*plans)
    assert main(["plan", "--all"]) == code


def test_standard_output_has_only_the_plan(planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    planned(CHANGED, SAME)
    main(["plan", "-f", "a.yaml"])
    printed = capsys.readouterr()
    assert printed.err == "Starting the sandbox\n"
    first, *_, last, total = printed.out.splitlines()
    assert first == "Foo ns/one: 1 to change"
    assert last == "Foo ns/two: unchanged"
    assert total == "2 objects planned, 1 unchanged; 0 to create, 1 to change, 0 to delete"


def test_of_all_objects_those_that_stay_are_counted(planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    planned(CHANGED, SAME)
    main(["plan", "--all"])
    assert "ns/two" not in capsys.readouterr().out
    main(["plan", "--all", "--verbose"])
    assert "ns/two" in capsys.readouterr().out


def test_a_program_gets_one_document(planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    planned(CHANGED)
    assert main(["plan", "Foo", "one", "--output", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["objects"][0]["result"] == "different"


def test_colours_are_for_terminals(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(CHANGED)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["plan", "Foo", "one"])
    assert "\x1b[32m      +  a: c\x1b[0m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["plan", "Foo", "one"])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [
        PlanError("Foo ns/one was\nnot found"),
        SourceError("not found"),
        UnreachableError("not found"),
        OSError("not found"),
    ],
)
def test_why_there_is_no_plan_is_one_line(
    planned: Planned, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(error=error)
    assert main(["plan", "Foo", "one"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    line = printed.err.splitlines()[-1]
    assert line.startswith("rolecall plan: ")
    assert line.endswith("not found")


def test_an_invalid_watches_file_is_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "watches.yaml").write_text("{}\n")
    assert main(["plan", "Foo", "one"]) == 1
    assert capsys.readouterr().err.startswith("rolecall plan: watches.yaml: expected a list")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected one of KIND NAME, -f FILE and --all"),
        (("Foo", "one", "--all"), "expected one of KIND NAME, -f FILE and --all"),
        (("Foo",), "expected the name of the object after 'Foo', or --all --kind Foo"),
        (("Foo", "one", "--kind", "Foo"), "only with --all"),
        (("Foo", "one", "two"), "unexpected argument: 'two'"),
        (("Foo", "one", "--no-such-flag"), "unknown flag: --no-such-flag"),
        (("Foo", "one", "--output", "xml"), "invalid choice: 'xml'"),
        (("Foo", "one", "--run-timeout", "soon"), "--run-timeout"),
    ],
)
def test_an_invalid_command_line_is_not_taken_for_a_difference(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *arguments])
    assert ended.value.code == 64
    assert message in capsys.readouterr().err


def test_a_comparison_of_rules_does_not_take_one_for_a_difference_either() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rbac", "--from"])
    assert ended.value.code == 64
