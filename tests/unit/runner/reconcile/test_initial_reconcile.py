from typing import Any

import pytest

from rolecall.runner.controller.priorities import Priority
from rolecall.runner.watch_controller import priority_in_first_round

DELETED = "2026-01-01T12:00:00Z"


def conditions(*types: str) -> dict[str, Any]:
    """Return a status with these conditions."""
    return {"conditions": [{"type": each, "status": "True"} for each in types]}


@pytest.mark.parametrize(
    ("status", "deleted", "expected"),
    [
        ({"observedGeneration": 3}, None, Priority.LOW),
        ({"observedGeneration": 2}, None, Priority.HIGH),
        ({"observedGeneration": 3}, DELETED, Priority.HIGH),
        ({"observedGeneration": 2} | conditions("Successful"), None, Priority.HIGH),
        (None, None, Priority.HIGH),
        ("text", None, Priority.HIGH),
        ({}, None, Priority.HIGH),
        (conditions("Running"), None, Priority.HIGH),
        (conditions("Running", "Successful"), None, Priority.LOW),
        (conditions("Failure"), None, Priority.LOW),
        (conditions("Failure"), DELETED, Priority.HIGH),
    ],
)
def test_new_changed_and_deleted_objects_go_first(status: object, deleted: str | None, expected: Priority) -> None:
    obj = {"metadata": {"generation": 3} | ({"deletionTimestamp": deleted} if deleted else {}), "status": status}
    assert priority_in_first_round(obj, manages_status=True) is expected


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("True", "Running", Priority.HIGH),
        ("False", "Interrupted", Priority.HIGH),
        ("True", "Successful", Priority.LOW),
        ("False", "Running", Priority.LOW),
    ],
)
def test_object_whose_run_did_not_end_goes_first(status: str, reason: str, expected: Priority) -> None:
    running = {"type": "Running", "status": status, "reason": reason}
    obj = {"metadata": {"generation": 3}, "status": {"observedGeneration": 3, "conditions": [running]}}
    assert priority_in_first_round(obj, manages_status=True) is expected


@pytest.mark.parametrize(
    ("status", "expected"), [({}, Priority.LOW), ({"observedGeneration": 2}, Priority.HIGH), (None, Priority.LOW)]
)
def test_where_runs_report_no_status_its_absence_says_nothing(status: object, expected: Priority) -> None:
    obj = {"metadata": {"generation": 3}, "status": status}
    assert priority_in_first_round(obj, manages_status=False) is expected


def test_a_kind_without_generations_is_judged_by_its_conditions() -> None:
    assert priority_in_first_round({"metadata": {}, "status": conditions("Successful")}, manages_status=True) is (
        Priority.LOW
    )
