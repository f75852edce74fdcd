"""A plan as a person reads it: for each object what its runs would change, by which task, and what else was found out.

The same plan gives the same lines, in the order of the objects and of the tasks. How long anything took is not shown.

A plan as a JSON document, for programs.

docs/reference/plan-format.md describes each field. What is shown is the same as in text: no secrets, no noise. The same
plan gives the same document, so that the documents of two plans can be compared.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from rolecall.kube.quantities import format_duration
from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.plan.model import (
    ControllerChange,
    ExitCode,
    ObjectPlan,
    Plan,
    PlannedWrite,
    TaskName,
    worst_of,
)
from rolecall.workbench.plan.shown_changes import Action, ChangedObject, Difference, Findings, ShownTexts

_SIGNS: Final = {Action.CREATE: "+", Action.CHANGE: "~", Action.DELETE: "-"}
_STYLES: Final = {"+": "green", "-": "red", "~": "yellow"}
_HEAD, _BAD, _PLAIN = "bold", "red", ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line and its style, in the words of rich; the style is empty for plain text."""

    text: str
    style: str = _PLAIN


@dataclass(frozen=True, slots=True)
class Rendering:
    """Renders a plan and what was found out about its objects.

    Without ``lists_unchanged`` objects that stay as they are are only counted. With ``is_verbose`` all that was found
    out about them is shown.
    """

    plan: Plan
    findings: tuple[Findings, ...]
    lists_unchanged: bool = True
    is_verbose: bool = False

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the plan."""
        for found in self.findings:
            if found.result != ExitCode.SAME or self.is_verbose:
                yield from _object(found)
                yield Line("")
            elif self.lists_unchanged:
                yield from _unchanged(found)
        yield from _controllers(self.plan)
        for assumption in self.plan.assumptions:
            yield Line(f"Assumed: {_printable(assumption)}")
        yield Line(_total(self.findings), _HEAD)


def _controllers(plan: Plan) -> Iterator[Line]:
    if plan.controllers:
        yield Line("Kubernetes' controllers then:", _HEAD)
        yield from map(_controller_change, plan.controllers)
        yield Line("")
    elif plan.controllers is not None:
        yield Line("Kubernetes' controllers then make and delete nothing")


def _controller_change(change: ControllerChange) -> Line:
    sign = _SIGNS[Action.DELETE if change.is_deletion else Action.CREATE]
    count = f" ({change.count} of them)" if change.count > 1 else ""
    return Line(f"  {sign} {change.gvk.kind} {_printable(str(change.key))}{count}", _STYLES[sign])


def _unchanged(found: Findings) -> Iterator[Line]:
    withheld = len(found.plan.withheld)
    yield Line(f"{_name(found)}: unchanged" + (f" ({_number(withheld, 'task')} not run)" if withheld else ""))


def _object(found: Findings) -> Iterator[Line]:
    yield Line(f"{_name(found)}: {_summary(found)}", _HEAD)
    for change in found.changes:
        yield from _change(change)
    if found.status:
        yield Line("  ~ status", _STYLES["~"])
        yield from _diff(found.status.lines())
    yield from _outcome(found)


def _name(found: Findings) -> str:
    return f"{found.plan.gvk.kind} {found.plan.key}"


def _summary(found: Findings) -> str:
    if found.result == ExitCode.FAILED:
        return "would fail"
    if found.result == ExitCode.INCOMPLETE:
        return "the plan is incomplete"
    numbers = Counter(change.action for change in found.changes)
    parts = [f"{numbers[action]} to {action}" for action in Action if numbers[action]]
    return ", ".join([*parts, *(["status changes"] if found.status else [])]) or "unchanged"


def _change(change: ChangedObject) -> Iterator[Line]:
    sign = _SIGNS[change.action]
    yield Line(f"  {sign} {change.gvk.kind} {change.key}", _STYLES[sign])
    yield from (Line(f"      by {_task(task)}") for task in change.tasks)
    if change.action != Action.DELETE:
        yield from _diff(change.difference.lines())


def _diff(lines: Iterable[str]) -> Iterator[Line]:
    yield from (Line(f"      {line}", _STYLES.get(line[:1], _PLAIN)) for line in lines)


def _outcome(found: Findings) -> Iterator[Line]:
    """Yield how the runs ended, and what the plan rests on."""
    plan, shown = found.plan, found.texts.shown
    if found.failure:
        yield from _paragraph("fails: ", found.failure, _BAD)
    if plan.stopped_at:
        yield from _paragraph("complete up to task ", shown(plan.stopped_at), _BAD)
    else:
        yield from _future(plan)
    yield from (Line(f"  not run: {_task(task)}") for task in plan.withheld)
    for assumption in plan.assumptions:
        yield from _paragraph("assumed: ", shown(assumption))


def _future(plan: ObjectPlan) -> Iterator[Line]:
    if not plan.has_settled:
        yield Line(f"  did not settle after {_number(plan.rounds, 'round')}", _BAD)
    elif plan.rounds > 1:
        yield Line(f"  settled after {plan.rounds} rounds")
    if plan.requeue_after_seconds is not None:
        yield Line(f"  runs again in {format_duration(plan.requeue_after_seconds)}")


def _task(task: TaskName) -> str:
    name = task.name or "no task that is known"
    return f"{name} ({task.shown_place})" if task.place else name


def _paragraph(before: str, text: str, style: str = _PLAIN) -> Iterator[Line]:
    """Yield the lines of a text, whose control characters must not reach a terminal."""
    first, *rest = [_printable(line) for line in text.splitlines()] or [""]
    yield Line(f"  {before}{first}", style)
    yield from (Line(f"    {line}", style) for line in rest)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _total(findings: tuple[Findings, ...]) -> str:
    results = Counter(found.result for found in findings)
    changes = {(change.action, change.gvk, change.key) for found in findings for change in found.changes}
    actions = Counter(action for action, _, _ in changes)
    planned = [f"{_number(len(findings), 'object')} planned", f"{results[ExitCode.SAME]} unchanged"]
    planned += [f"{results[ExitCode.FAILED]} would fail"] if results[ExitCode.FAILED] else []
    planned += [f"{results[ExitCode.INCOMPLETE]} incomplete"] if results[ExitCode.INCOMPLETE] else []
    return f"{', '.join(planned)}; {', '.join(f'{actions[action]} to {action}' for action in Action)}"


def _number(count: int, one: str) -> str:
    return f"{count} {one if count == 1 else f'{one}s'}"


FORMAT: Final = 1
"""The version of the format."""

_RESULTS: Final = {
    ExitCode.SAME: "same",
    ExitCode.DIFFERENT: "different",
    ExitCode.INCOMPLETE: "incomplete",
    ExitCode.FAILED: "failed",
}


def document_of(plan: Plan, findings: tuple[Findings, ...]) -> dict[str, Any]:
    """Return the document of a plan and of what was found out about its objects."""
    result = worst_of(found.result for found in findings)
    document = {
        "format": FORMAT,
        "rolecall": version("rolecall"),
        "result": _RESULTS[result],
        "counts": _counts(findings),
        "assumptions": list(plan.assumptions),
        "objects": [_document_object(found) for found in findings],
    }
    if plan.controllers is not None:
        document["controllers"] = [_document_controller_change(each) for each in plan.controllers]
    return document


def _document_controller_change(change: ControllerChange) -> dict[str, Any]:
    action = Action.DELETE if change.is_deletion else Action.CREATE
    return {"action": str(action), **_identity(change.gvk, change.key), "count": change.count}


def _counts(findings: tuple[Findings, ...]) -> dict[str, int]:
    results = Counter(found.result for found in findings)
    changes = {(change.action, change.gvk, change.key) for found in findings for change in found.changes}
    actions = Counter(action for action, _, _ in changes)
    return {
        "objects": len(findings),
        **{name: results[code] for code, name in _RESULTS.items()},
        **{str(action): actions[action] for action in Action},
    }


def _document_object(found: Findings) -> dict[str, Any]:
    plan, texts = found.plan, found.texts
    return {
        **_identity(plan.gvk, plan.key),
        "result": _RESULTS[found.result],
        "changes": [_document_change(change) for change in found.changes],
        "status": found.status and _difference(found.status),
        "requeueAfterSeconds": plan.requeue_after_seconds,
        "rounds": plan.rounds,
        "settled": plan.has_settled,
        "failure": found.failure,
        "stoppedAt": texts.shown(plan.stopped_at),
        "withheld": [_document_task(task) for task in plan.withheld],
        "assumptions": [texts.shown(each) for each in plan.assumptions],
        "writes": [_write(write, texts) for write in plan.writes],
    }


def _identity(gvk: GVK, key: ObjectKey) -> dict[str, str]:
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "namespace": key.namespace, "name": key.name}


def _document_change(change: ChangedObject) -> dict[str, Any]:
    tasks = [_document_task(task) for task in change.tasks]
    identity = _identity(change.gvk, change.key)
    return {"action": str(change.action), **identity, "tasks": tasks, **_difference(change.difference)}


def _difference(difference: Difference) -> dict[str, Any]:
    return {"before": difference.before, "after": difference.after, "diff": difference.lines()}


def _document_task(task: TaskName) -> dict[str, str]:
    return {"name": task.name, "place": task.shown_place}


def _write(write: PlannedWrite, texts: ShownTexts) -> dict[str, Any]:
    return {
        "task": _document_task(write.task),
        "method": write.method,
        "target": texts.shown(write.target),
        "contentType": write.content_type,
        "body": texts.body(write),
        "status": write.status,
    }
