"""A plan as text and as a JSON document; docs/reference/plan-format.md describes the fields of the document.

Both show the changes to each object and their tasks, without secrets and noise, in the order of the objects and tasks.
The same plan gives the same output, so that two plans can be compared; durations are not shown.
"""

from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

from rolecall.kube.quantities import format_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.record.timeline import diff_lines
from rolecall.workbench.comparison.reports import (
    STYLES,
    ExitCode,
    Line,
    counted,
    diff,
    escaped,
    paragraph,
    task_text,
    task_to_json,
    worst_of,
)
from rolecall.workbench.plan.model import ControllerChange, Plan
from rolecall.workbench.plan.shown_changes import Action, Findings

FORMAT: Final = 1
"""The version of the document's format."""

_SIGNS: Final = {Action.CREATE: "+", Action.CHANGE: "~", Action.DELETE: "-"}
_HEAD, _BAD = "bold", "red"


def lines_of(
    plan: Plan, findings: tuple[Findings, ...], *, lists_unchanged: bool = True, is_verbose: bool = False
) -> Iterator[Line]:
    """Yield the lines of a plan.

    Without ``lists_unchanged`` unchanged objects are only counted. With ``is_verbose`` all findings about them are
    shown.
    """
    for found in findings:
        name = f"{found.plan.gvk.kind} {found.plan.key}"
        if found.exit_code != ExitCode.SAME or is_verbose:
            yield Line(f"{name}: {_summary(found)}", _HEAD)
            yield from _details(found)
            yield Line("")
        elif lists_unchanged:
            withheld = len(found.plan.withheld)
            yield Line(f"{name}: unchanged" + (f" ({counted(withheld, 'task')} not run)" if withheld else ""))
    if plan.controllers:
        yield Line("Kubernetes' controllers then:", _HEAD)
        yield from map(_controller_change, plan.controllers)
        yield Line("")
    elif plan.controllers is not None:
        yield Line("Kubernetes' controllers then create and delete nothing")
    for assumption in plan.assumptions:
        yield Line(f"Assumed: {escaped(assumption)}")
    yield Line(_total(findings), _HEAD)


def _summary(found: Findings) -> str:
    if found.exit_code == ExitCode.FAILED:
        return "would fail"
    if found.exit_code == ExitCode.INCOMPLETE:
        return "the plan is incomplete"
    numbers = Counter(change.action for change in found.changes)
    parts = [f"{numbers[action]} to {action}" for action in Action if numbers[action]]
    parts += [f"{len(found.plan.obsolete)} obsolete"] if found.plan.obsolete else []
    return ", ".join([*parts, *(["status changes"] if found.status else [])]) or "unchanged"


def _details(found: Findings) -> Iterator[Line]:
    """Yield the changes of an object, the end of its runs, and the assumptions of the plan."""
    plan, shown = found.plan, found.texts.shown
    for change in found.changes:
        sign = _SIGNS[change.action]
        yield Line(f"  {sign} {change.gvk.kind} {change.key}", STYLES[sign])
        yield from (Line(f"      by {task_text(task)}") for task in change.tasks)
        if change.action != Action.DELETE:
            yield from diff(change.before, change.after, " " * 6)
    yield from (
        Line(f"  {_SIGNS[Action.DELETE]} {shown(each)}", STYLES[_SIGNS[Action.DELETE]]) for each in plan.obsolete
    )
    if found.status:
        yield Line("  ~ status", STYLES["~"])
        yield from diff(*found.status, " " * 6)
    if found.failure:
        yield from paragraph("  fails: ", found.failure, _BAD)
    if plan.stopped_at:
        yield from paragraph("  complete up to task ", shown(plan.stopped_at), _BAD)
    else:
        if not plan.has_settled:
            yield Line(f"  did not settle after {counted(plan.rounds, 'round')}", _BAD)
        elif plan.rounds > 1:
            yield Line(f"  settled after {plan.rounds} rounds")
        if plan.requeue_after_seconds is not None:
            yield Line(f"  runs again in {format_duration(plan.requeue_after_seconds)}")
    yield from (Line(f"  not run: {task_text(task)}") for task in plan.withheld)
    for assumption in plan.assumptions:
        yield from paragraph("  assumed: ", shown(assumption))


def _controller_change(change: ControllerChange) -> Line:
    sign = _SIGNS[Action.DELETE if change.is_deletion else Action.CREATE]
    count = f" ({change.count} of them)" if change.count > 1 else ""
    return Line(f"  {sign} {change.gvk.kind} {escaped(str(change.key))}{count}", STYLES[sign])


def _total(findings: tuple[Findings, ...]) -> str:
    counts = _counts(findings)
    planned = [f"{counted(counts['objects'], 'object')} planned", f"{counts['same']} unchanged"]
    planned += [f"{counts['failed']} would fail"] if counts["failed"] else []
    planned += [f"{counts['incomplete']} incomplete"] if counts["incomplete"] else []
    return f"{', '.join(planned)}; {', '.join(f'{counts[action]} to {action}' for action in Action)}"


def _counts(findings: tuple[Findings, ...]) -> dict[str, int]:
    results = Counter(found.exit_code for found in findings)
    changes = {(change.action, change.gvk, change.key) for found in findings for change in found.changes}
    actions = Counter(action for action, _, _ in changes)
    return {
        "objects": len(findings),
        **{
            code.result: results[code]
            for code in (ExitCode.SAME, ExitCode.DIFFERENT, ExitCode.INCOMPLETE, ExitCode.FAILED)
        },
        **{str(action): actions[action] for action in Action},
    }


def document_of(plan: Plan, findings: tuple[Findings, ...]) -> dict[str, Any]:
    """Return a plan and the findings about its objects as a JSON document."""
    document = {
        "format": FORMAT,
        "rolecall": version("rolecall"),
        "result": worst_of(found.exit_code for found in findings).result,
        "counts": _counts(findings),
        "assumptions": list(plan.assumptions),
        "objects": [_object_to_json(found) for found in findings],
    }
    if plan.controllers is not None:
        document["controllers"] = [
            {
                "action": str(Action.DELETE if each.is_deletion else Action.CREATE),
                **_identity(each.gvk, each.key),
                "count": each.count,
            }
            for each in plan.controllers
        ]
    return document


def _object_to_json(found: Findings) -> dict[str, Any]:
    plan, texts = found.plan, found.texts
    return {
        **_identity(plan.gvk, plan.key),
        "result": found.exit_code.result,
        "changes": [
            {
                "action": str(change.action),
                **_identity(change.gvk, change.key),
                "tasks": [task_to_json(task) for task in change.tasks],
                **_difference(change.before, change.after),
            }
            for change in found.changes
        ],
        "status": found.status and _difference(*found.status),
        "obsolete": [texts.shown(each) for each in plan.obsolete],
        "requeueAfterSeconds": plan.requeue_after_seconds,
        "rounds": plan.rounds,
        "settled": plan.has_settled,
        "failure": found.failure,
        "stoppedAt": texts.shown(plan.stopped_at),
        "withheld": [task_to_json(task) for task in plan.withheld],
        "assumptions": [texts.shown(each) for each in plan.assumptions],
        "writes": [
            {
                "task": task_to_json(write.task),
                "method": write.method,
                "target": texts.shown(write.target),
                "contentType": write.content_type,
                "body": texts.body(write),
                "status": write.status,
            }
            for write in plan.writes
        ],
    }


def _identity(gvk: GVK, key: ObjectKey) -> dict[str, str]:
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "namespace": key.namespace, "name": key.name}


def _difference(before: RawObject | None, after: RawObject | None) -> dict[str, Any]:
    return {"before": before, "after": after, "diff": diff_lines(before, after)}
