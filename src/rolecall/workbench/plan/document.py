"""A plan as a JSON document, for programs.

docs/reference/plan-format.md describes each field. What is shown is the same as in text: no secrets, no noise. The same
plan gives the same document, so that the documents of two plans can be compared.
"""

from collections import Counter
from importlib.metadata import version
from typing import Any, Final

from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.plan.differences import Action, ChangedObject, Difference, Findings
from rolecall.workbench.plan.results import ControllerChange, ExitCode, Plan, PlannedWrite, TaskName, worst_of
from rolecall.workbench.plan.shown_texts import ShownTexts

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
        "objects": [_object(found) for found in findings],
    }
    if plan.controllers is not None:
        document["controllers"] = [_controller_change(each) for each in plan.controllers]
    return document


def _controller_change(change: ControllerChange) -> dict[str, Any]:
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


def _object(found: Findings) -> dict[str, Any]:
    plan, texts = found.plan, found.texts
    return {
        **_identity(plan.gvk, plan.key),
        "result": _RESULTS[found.result],
        "changes": [_change(change) for change in found.changes],
        "status": found.status and _difference(found.status),
        "requeueAfterSeconds": plan.requeue_after_seconds,
        "rounds": plan.rounds,
        "settled": plan.has_settled,
        "failure": found.failure,
        "stoppedAt": texts.shown(plan.stopped_at),
        "withheld": [_task(task) for task in plan.withheld],
        "assumptions": [texts.shown(each) for each in plan.assumptions],
        "writes": [_write(write, texts) for write in plan.writes],
    }


def _identity(gvk: GVK, key: ObjectKey) -> dict[str, str]:
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "namespace": key.namespace, "name": key.name}


def _change(change: ChangedObject) -> dict[str, Any]:
    tasks = [_task(task) for task in change.tasks]
    identity = _identity(change.gvk, change.key)
    return {"action": str(change.action), **identity, "tasks": tasks, **_difference(change.difference)}


def _difference(difference: Difference) -> dict[str, Any]:
    return {"before": difference.before, "after": difference.after, "diff": difference.lines()}


def _task(task: TaskName) -> dict[str, str]:
    return {"name": task.name, "place": task.shown_place}


def _write(write: PlannedWrite, texts: ShownTexts) -> dict[str, Any]:
    return {
        "task": _task(write.task),
        "method": write.method,
        "target": texts.shown(write.target),
        "contentType": write.content_type,
        "body": texts.body(write),
        "status": write.status,
    }
