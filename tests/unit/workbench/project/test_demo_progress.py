"""A demo shows each object with the reason why it isn't ready, and ends if more runs won't help."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from rich.console import Console

from rolecall.kube.client import Client
from rolecall.kube.jsonpath import parse_path
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.project import demo_progress
from rolecall.workbench.project.demo_inputs import Goal, OperatorProcess
from rolecall.workbench.project.demo_progress import NotReadyError, Progress, Row, status_table
from rolecall.workbench.project.demo_runs import Failure

ROW = Row("Foo", "default/one", "Running", "replicas=[1]", "350ms", is_done=False)
DONE = replace(ROW, condition="Successful", is_done=True)
DENIED = 'foos is forbidden: User "system:serviceaccount:a:b" cannot create resource "foos" in API group ""'
TEAM = GVK("example.com", "v1", "Team")
SITE = GVK("example.com", "v1", "Site")


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


def shown(output: io.StringIO, *shows: list[Row], terminal: bool = False) -> list[str]:
    """Show rows; return what was written before the end and at the end."""
    with status_table(Console(file=output, force_terminal=terminal, width=120)) as show:
        for rows in shows:
            show(rows)
        before = output.getvalue()
    return [before, output.getvalue().removeprefix(before)]


def test_without_a_terminal_each_change_is_a_line(output: io.StringIO) -> None:
    lines = shown(output, [ROW], [ROW], [DONE])[0].splitlines()
    assert [line.split() for line in lines] == [
        ["Foo", "default/one", "Running", "replicas=[1]", "350ms", "…"],
        ["Foo", "default/one", "Successful", "replicas=[1]", "350ms", "done"],
    ]


def test_without_a_terminal_the_table_comes_at_the_end(output: io.StringIO) -> None:
    _, table = shown(output, [ROW, replace(ROW, name="default/two")])
    assert table.split()[:6] == ["KIND", "OBJECT", "CONDITION", "STATUS", "LAST", "RUN"]
    assert "default/one" in table
    assert "default/two" in table


def test_nothing_shown_is_no_table(output: io.StringIO) -> None:
    assert shown(output) == ["", ""]


def test_on_a_terminal_the_table_is_live_and_stays(output: io.StringIO) -> None:
    before, after = shown(output, [ROW], [DONE], terminal=True)
    assert "Successful" in before
    assert after.count("KIND") <= 1  # the live table itself, and no other


def test_values_with_brackets_are_shown_as_they_are(output: io.StringIO) -> None:
    written = "".join(shown(output, [replace(ROW, values="selector=[red]x[/red]")]))
    assert written.count("selector=[red]x[/red]") == 2


def test_reason_is_at_the_end_of_a_line_and_once_below_the_table(output: io.StringIO) -> None:
    rows = [replace(ROW, reason="no [quota]"), replace(ROW, name="default/two", reason="no [quota]"), DONE]
    before, table = shown(output, rows[:2])
    assert all(line.endswith("…  no [quota]") for line in before.splitlines())
    assert table.splitlines()[-1] == "Foo default/one, Foo default/two: no [quota]"


def test_reason_is_printed_again_only_if_it_changes(output: io.StringIO) -> None:
    failed = replace(ROW, condition="Failure", reason="no quota")
    lines = shown(output, [failed], [replace(failed, condition="Running")], [replace(failed, reason="other")])[0]
    assert [line.rpartition("…")[2].strip() for line in lines.splitlines()] == ["no quota", "", "other"]


@dataclass
class _FakeClient:
    """A cluster with these objects; ``on_patch`` is called with the requests for runs."""

    objects: list[RawObject]
    patched: list[ObjectKey] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def resource(self, gvk: GVK) -> SimpleNamespace:
        return SimpleNamespace(namespaced=gvk == SITE)

    async def list_pages(self, gvk: GVK, namespace: str | None) -> AsyncIterator[tuple[list[RawObject], str]]:
        found = [each for each in self.objects if each["kind"] == gvk.kind]
        yield [each for each in found if namespace in (None, each["metadata"].get("namespace"))], "1"

    async def patch(self, _gvk: GVK, key: ObjectKey, patch: Any) -> None:
        assert list(patch["metadata"]["annotations"]) == ["rolecall.dev/reconcile-requested-at"]
        self.patched.append(key)


def team(name: str, *, ready: bool, message: str = "", namespace: str = "", kind: str = "Team") -> RawObject:
    """Return an object; with a message, its last run failed."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    conditions = [{"type": "Failure", "status": "True", "message": message}] if message else []
    return {"kind": kind, "metadata": metadata, "status": {"ready": ready, "conditions": conditions}}


class Demo:
    """A demo with these objects, whose operator only has a log."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *objects: RawObject, **options: Any) -> None:
        self.client, self.output = _FakeClient(list(objects)), io.StringIO()

        async def connect(_kubeconfig: str) -> _FakeClient:
            return self.client

        monkeypatch.setattr(Client, "connect", connect)
        monkeypatch.setattr(demo_progress, "LOOK_EVERY_SECONDS", 0.01)
        self.log = directory / "operator.log"
        self.log.touch()
        goals = tuple(Goal(each, (), ((parse_path("$.status.ready"), True),)) for each in options.pop("kinds", (TEAM,)))
        operator = OperatorProcess(directory, directory / "kubeconfig", self.log)
        self.progress = Progress(goals, ("here",), operator, options.pop("timeout", 30.0), **options)

    def wrote(self, **entry: object) -> None:
        """Add an entry to the log."""
        with self.log.open("a") as log:
            log.write(json.dumps({"kind": "Team", "name": "a", **entry}) + "\n")

    async def end(self) -> str:
        """Return what the demo printed, and why it ended."""
        try:
            await self.progress.until_done(Path("kubeconfig"), Console(file=self.output, width=200))
        except NotReadyError as error:
            return f"{'denied: ' if error.is_denied else ''}{error}"
        return "done"


async def test_objects_of_a_cluster_scoped_kind_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo(tmp_path, monkeypatch, team("a", ready=True), timeout=5.0)
    assert await demo.end() == "done"
    assert "Team        a " in demo.output.getvalue()


async def test_objects_of_other_kinds_are_those_of_the_namespaces_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = team("a", ready=True, namespace="here", kind="Site")
    other = team("b", ready=False, namespace="elsewhere", kind="Site")
    demo = Demo(tmp_path, monkeypatch, mine, other, kinds=(SITE,))
    assert await demo.end() == "done"
    demo.progress.namespaces, demo.progress.timeout_seconds = (), -1
    assert (await demo.end()).startswith("Timed out after -1 s, waiting for Site elsewhere/b. Its log has no warnings.")


async def test_reason_of_a_failed_object_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = json.dumps({"kind": "Status", "status": "Failure", "message": DENIED, "code": 403}, separators=(",", ":"))
    message = f"Task 'Make it': Failed to create object: {f'{status}{chr(10)}'.encode()!r}"
    demo = Demo(tmp_path, monkeypatch, team("a", ready=False, message=message), timeout=-1)
    await demo.end()
    expected = f"task 'Make it': Failed to create object: {DENIED} (403)"
    assert demo.output.getvalue().splitlines()[0].endswith(f"…  {expected}")


async def test_three_equal_failures_end_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo(
        tmp_path, monkeypatch, team("a", ready=False), team("b", ready=False), team("c", ready=True), timeout=-1
    )
    for port in (1, 2):
        demo.wrote(msg="Reconcile failed", error=f"Task 'Call' on web: no answer of 127.0.0.1:{port} after 1.{port} s")
        demo.wrote(msg="Reconcile failed", error="Task 'Call' on web: no answer of 127.0.0.1:2 after 1.2 s", name="b")
    assert (await demo.end()).startswith("Timed out")
    demo.wrote(msg="Reconcile failed", error="Task 'Call' on web: no answer of 127.0.0.1:2 after 1.2 s")
    assert await demo.end() == (
        "Team a, Team b failed 3 times in the same way:\n  task: Call\n  reason: no answer of 127.0.0.1:2 after 1.2 s"
    )


async def test_other_failures_and_successes_start_the_count_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Demo(tmp_path, monkeypatch, team("a", ready=False), timeout=-1)
    for error in ("one", "one", "two", "", "two", "one", "two"):
        demo.wrote(**({"msg": "Reconcile failed", "error": error} if error else {"msg": "x", "duration": "1s"}))
    assert (await demo.end()).startswith("Timed out")


@pytest.mark.parametrize("message", ["Reconcile failed", "Failed to write the status"])
async def test_denied_requests_are_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, message: str
) -> None:
    demo = Demo(tmp_path, monkeypatch, team("a", ready=False))
    for _ in range(3):
        demo.wrote(msg=message, error=f"403 Forbidden: {DENIED}")
    assert (await demo.end()).startswith(
        "denied: Team a failed 3 times in the same way:\n  reason: 403 Forbidden: foos"
    )


async def test_kind_that_cannot_be_watched_ends_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo(tmp_path, monkeypatch, team("a", ready=False), timeout=-1)
    watch = {"gvk": str(TEAM), "watched_namespace": "all", "name": ""}
    demo.wrote(msg="Not permitted", reason=f"403 Forbidden: {DENIED}", **watch)
    assert (await demo.end()).startswith("Timed out")  # new permissions take a moment
    monkeypatch.setattr("rolecall.workbench.project.demo_runs.DENIED_SECONDS", 0)
    assert (await demo.end()).startswith("denied: The operator can't watch Team: 403 Forbidden: foos is forbidden")
    demo.wrote(msg="Watching this kind again", **watch)
    assert (await demo.end()).startswith("Timed out")


async def test_recorded_objects_have_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo(tmp_path, monkeypatch, team("a", ready=True), team("b", ready=True), timeout=-1, is_recorded=True)
    demo.wrote(msg="Reconcile succeeded", duration="1s")
    assert (await demo.end()).startswith("Timed out after -1 s, waiting for another run of each object.")
    assert demo.client.patched == [ObjectKey("", "a"), ObjectKey("", "b")]
    for name in ("a", "b"):
        demo.wrote(msg="Reconcile succeeded", duration="1s", name=name)
    assert (await demo.end()).startswith("Timed out")  # b had no run when its second one was requested
    demo.wrote(msg="Reconcile succeeded", duration="1s", name="b")
    assert await demo.end() == "done"
    assert len(demo.client.patched) == 2


async def test_recorded_object_whose_second_run_fails_ends_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Demo(tmp_path, monkeypatch, team("a", ready=True), is_recorded=True)
    for _ in range(3):
        demo.wrote(msg="Reconcile failed", error="Task 'Again': it exists")
    assert "task: Again\n  reason: it exists" in await demo.end()


async def test_kind_without_objects_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo(tmp_path, monkeypatch, timeout=-1)
    demo.wrote(level="warning", msg="Failed to watch", reason="500", name="")
    found = await demo.end()
    assert found.startswith(
        "Timed out after -1 s, waiting for any Team: no object found. The last warnings of its log:\n"
    )
    assert found.endswith("warning: Failed to watch (reason: 500, kind: Team)")


@pytest.mark.parametrize(
    ("reason", "is_denied"),
    [
        (DENIED, True),
        (
            'roles is forbidden: user "x" (groups=["a"]) is attempting to grant RBAC permissions not currently held:',
            True,
        ),
        ("configmaps is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource", True),
        ('pods "x" is forbidden: exceeded quota: pods', False),
        ("no route to host", False),
    ],
)
def test_only_messages_about_permissions_are_denials(reason: str, *, is_denied: bool) -> None:
    assert Failure.of(f"Task 'Make it': {reason}").is_denied is is_denied


def test_task_whose_name_has_quotes_is_found() -> None:
    message = """Task "Validating arguments against arg spec 'main'" on web: Validation failed:\nmissing: title"""
    failure = Failure.of(message)
    assert failure == Failure("Validating arguments against arg spec 'main'", "Validation failed:\nmissing: title")
    assert str(failure).endswith(": Validation failed: missing: title")
