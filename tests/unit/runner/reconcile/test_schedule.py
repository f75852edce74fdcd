from pathlib import Path

import pytest

from rolecall.kube.references import ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.reconciler import PERIOD_ANNOTATION, after_success, period_seconds
from rolecall.runner.runs.events import RunSummary
from tests.integration.things import THING

WATCH = Watch(THING, RoleContent(Path("/roles/thing")), reconcile_period_seconds=0.2)


@pytest.mark.parametrize(("text", "seconds"), [("1ms", 1.0), ("1ns", 1.0), ("1s", 1.0), ("90s", 90.0), ("0s", 0.0)])
def test_an_object_cannot_ask_for_a_period_below_a_second(text: str, seconds: float) -> None:
    assert period_seconds({"metadata": {"annotations": {PERIOD_ANNOTATION: text}}}, WATCH, 60.0) == seconds


def test_a_watch_can() -> None:
    assert period_seconds({"metadata": {}}, WATCH, 60.0) == 0.2


@pytest.mark.parametrize(
    ("asked", "deleted", "seconds", "why", "priority"),
    [
        (None, False, 60.0, "period", Priority.LOW),
        (5.0, False, 5.0, "requeue_after", Priority.HIGH),
        (None, True, 5.0, "deleted during its run", Priority.HIGH),
    ],
)
def test_what_a_role_asked_for_and_deletions_are_urgent_and_periods_are_not(
    *, asked: float | None, deleted: bool, seconds: float, why: str, priority: Priority
) -> None:
    context = ReconcileContext(ObjectKey("default", "one"), "ident", period_seconds=60.0)
    context.fresh = {"metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"} if deleted else {}}
    context.summary = RunSummary("successful", 0, requeue_after_seconds=asked)
    result = after_success(context, context.summary, has_finalizer=True)
    assert (result.requeue_after_seconds, result.cause.text, result.cause.priority) == (seconds, why, priority)
