"""A plan as text and as a JSON document; docs/reference/plan-format.md describes the fields of the document.

Both show the changes to each object and their tasks, without secrets and noise, in the order of the objects and tasks.
The same plan gives the same output, so that two plans can be compared; durations are not shown.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
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
from rolecall.workbench.plan.model import ControllerChange, DefinitionChanges, Plan
from rolecall.workbench.plan.shown_changes import Action, Findings

FORMAT: Final = 1
"""The version of the document's format."""

_SIGNS: Final = {Action.CREATE: "+", Action.CHANGE: "~", Action.DELETE: "-"}
_HEAD, _BAD = "bold", "red"
MAX_NAMES: Final = 5
"""How many objects with equal findings are named."""

MAX_REASON: Final = 300
"""How many characters of a failure stand in the line of several objects."""


def lines_of(
    plan: Plan, findings: tuple[Findings, ...], *, lists_unchanged: bool = True, is_verbose: bool = False
) -> Iterator[Line]:
    """Yield the lines of a plan.

    Without ``lists_unchanged`` unchanged objects are only counted. Objects with equal findings are shown once. With
    ``is_verbose`` all findings about every object are shown.
    """
    yield from _definitions(plan.definitions)
    for group in [(found,) for found in findings] if is_verbose else _groups(findings):
        found = group[0]
        if found.exit_code != ExitCode.SAME or is_verbose:
            yield from _alone(found) if len(group) == 1 else _together(group, len(findings))
            yield Line("")
        elif lists_unchanged:
            withheld = len(found.plan.withheld)
            yield Line(f"{_name(found)}: unchanged" + (f" ({counted(withheld, 'task')} not run)" if withheld else ""))
    if plan.controllers:
        yield Line("Kubernetes' controllers then:", _HEAD)
        yield from map(_controller_change, plan.controllers)
        yield Line("")
    elif plan.controllers is not None:
        yield Line("Kubernetes' controllers then create and delete nothing")
    for assumption in plan.assumptions:
        yield Line(f"Assumed: {escaped(assumption)}")
    yield Line(_total(findings), _HEAD)


def _definitions(changes: DefinitionChanges) -> Iterator[Line]:
    """Yield which definitions the plan uses, if those of the project and of the cluster differ."""
    if sentence := changes.sentence("planned"):
        yield Line(sentence, _HEAD)
        yield Line("")


def _groups(findings: tuple[Findings, ...]) -> Iterable[list[Findings]]:
    """Return the objects with equal findings together, in the order of the first of each group.

    Findings are equal if their texts are, as they are or without the name and namespace of the object. All failures
    for the same reason are equal.
    """
    groups: list[list[Findings]] = []
    known: dict[tuple[str, ...], list[Findings]] = {}
    for found in findings:
        keys = _equalities(found)
        group = next((known[key] for key in keys if key in known), None)
        if group is None:
            groups.append(group := [])
        group.append(found)
        known |= {key: group for key in keys if key not in known}
    return groups


def _equalities(found: Findings) -> tuple[tuple[str, ...], ...]:
    """Return the texts of which one is equal for objects with equal findings."""
    if found.exit_code == ExitCode.SAME:
        return ()
    failed = found.exit_code == ExitCode.FAILED
    text = found.failure if failed else "\n".join(line.text for line in _details(found))
    own = sorted({found.plan.key.name, found.plan.key.namespace} - {""}, key=len, reverse=True)
    pattern = rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, own))})(?![A-Za-z0-9])"
    names = {name: f"<{number}>" for number, name in enumerate((found.plan.key.namespace, found.plan.key.name))}
    unnamed = re.sub(pattern, lambda match: names[match[0]], text)
    subject = (str(found.plan.gvk), found.exit_code.result)
    return (*subject, "", text), (*subject, "unnamed", unnamed)


def _alone(found: Findings) -> Iterator[Line]:
    yield Line(f"{_name(found)}: {_summary(found)}", _HEAD)
    yield from _details(found)


def _together(group: list[Findings], total: int) -> Iterator[Line]:
    """Yield the common lines of objects with equal findings, and the details of the first as an example."""
    found = group[0]
    keys = [str(each.plan.key) for each in group[:MAX_NAMES]]
    more = f", and {len(group) - len(keys)} more" if len(group) > len(keys) else ""
    reason = escaped(" ".join(found.failure.split()))
    is_cut = len(reason) > MAX_REASON
    shown = f"{reason[:MAX_REASON]}…" if is_cut else reason
    what = f" would fail: {shown}" if found.exit_code == ExitCode.FAILED else f": {_summary(found)}"
    yield Line(f"{len(group)} of {total}{what} ({found.plan.gvk.kind} {', '.join(keys)}{more})", _HEAD)
    whole = paragraph("  fails: ", found.failure, _BAD) if is_cut else ()
    if details := [*whole, *_details(found, with_failure=False)]:
        yield Line(f"  {_name(found)}, for example:")
        yield from details


def _name(found: Findings) -> str:
    return f"{found.plan.gvk.kind} {found.plan.key}"


def _summary(found: Findings) -> str:
    if found.exit_code == ExitCode.FAILED:
        return "would fail"
    if found.exit_code == ExitCode.INCOMPLETE:
        return "the plan is incomplete"
    numbers = Counter(change.action for change in found.changes)
    numbers[Action.DELETE] += len(found.plan.obsolete)
    parts = [f"{numbers[action]} to {action}" for action in Action if numbers[action]]
    parts += [f"{len(found.plan.proposed)} to confirm"] if found.plan.proposed else []
    parts += ["status changes"] if found.status else []
    parts += ["rejected by the CRD"] if found.plan.rejected else []
    return ", ".join(parts) or "unchanged"


def _details(found: Findings, *, with_failure: bool = True) -> Iterator[Line]:
    """Yield the changes of an object, the end of its runs, and the assumptions of the plan.

    Without the failure, its status is left out too, which repeats it.
    """
    plan, shown = found.plan, found.texts.shown
    if plan.rejected:
        yield from paragraph("  the project's CRD rejects the object as it is stored: ", shown(plan.rejected), _BAD)
    for change in found.changes:
        sign = _SIGNS[change.action]
        yield Line(f"  {sign} {change.gvk.kind} {change.key}", STYLES[sign])
        yield from (Line(f"      by {task_text(task)}") for task in change.tasks)
        if change.action != Action.DELETE:
            yield from diff(change.before, change.after, " " * 6)
    yield from (
        Line(f"  {_SIGNS[Action.DELETE]} {shown(each)}", STYLES[_SIGNS[Action.DELETE]]) for each in plan.obsolete
    )
    yield from (Line(f"  ? {shown(each)}", STYLES["~"]) for each in plan.proposed)
    if with_failure or not found.failure:
        yield from _results(found)
    yield from _end(found)
    yield from (Line(f"  not run: {task_text(task)}") for task in plan.withheld)
    for assumption in plan.assumptions:
        yield from paragraph("  assumed: ", shown(assumption))


def _results(found: Findings) -> Iterator[Line]:
    """Yield the status that the runs leave, and why they fail."""
    if found.status:
        yield Line("  ~ status", STYLES["~"])
        yield from diff(*found.status, " " * 6)
    if found.failure:
        yield from paragraph("  fails: ", found.failure, _BAD)


def _end(found: Findings) -> Iterator[Line]:
    """Yield where the runs end, and when the next one follows."""
    plan = found.plan
    if plan.stopped_at:
        yield from paragraph("  complete up to task ", found.texts.shown(plan.stopped_at), _BAD)
        return
    if not plan.has_settled:
        yield Line(f"  did not settle after {counted(plan.rounds, 'round')}", _BAD)
    elif plan.rounds > 1:
        yield Line(f"  settled after {plan.rounds} rounds")
    if plan.requeue_after_seconds is not None:
        yield Line(f"  runs again in {format_duration(plan.requeue_after_seconds)}")


def _controller_change(change: ControllerChange) -> Line:
    sign = _SIGNS[Action.DELETE if change.is_deletion else Action.CREATE]
    count = f" ({change.count} of them)" if change.count > 1 else ""
    return Line(f"  {sign} {change.gvk.kind} {escaped(str(change.key))}{count}", STYLES[sign])


def _total(findings: tuple[Findings, ...]) -> str:
    counts = _counts(findings)
    planned = [f"{counted(counts['objects'], 'object')} planned", f"{counts['same']} unchanged"]
    planned += [f"{counts['failed']} would fail"] if counts["failed"] else []
    planned += [f"{counts['incomplete']} incomplete"] if counts["incomplete"] else []
    changes = [f"{counts[action]} to {action}" for action in Action]
    proposed = sum(len(found.plan.proposed) for found in findings)
    changes += [f"{proposed} to confirm"] if proposed else []
    return f"{', '.join(planned)}; {', '.join(changes)}"


def _counts(findings: tuple[Findings, ...]) -> dict[str, int]:
    results = Counter(found.exit_code for found in findings)
    changes = {(change.action, change.gvk, change.key) for found in findings for change in found.changes}
    actions = Counter(action for action, _, _ in changes)
    actions[Action.DELETE] += sum(len(found.plan.obsolete) for found in findings)
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
        "definitions": {
            "source": "cluster" if plan.definitions.uses_cluster else "project",
            "different": list(plan.definitions.different),
            "new": list(plan.definitions.new),
        },
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
        "proposed": [texts.shown(each) for each in plan.proposed],
        "rejected": texts.shown(plan.rejected),
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
