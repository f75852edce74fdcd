import copy
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rolecall.util.plugins.module_utils.status import merge_status
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.quantities import parse_time
from rolecall.kube.references import GVK
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.reconcile.status import (
    STALLED_AFTER,
    ConditionContext,
    Readiness,
    Status,
    condition_of,
    finished,
    invalid_texts,
    is_ours,
    map_result,
    paused,
    running,
    should_mark_running,
    should_write,
    smaller,
    unready_reason,
    without_ready_conditions,
)
from rolecall.runner.runs.events import MESSAGE_LIMIT_BYTES
from rolecall.runner.runs.outcome import Counts, Outcome, Reported
from tests.support.things import THING
from tests.unit.json_values import JSON, STATUS

EARLIER = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NOW = EARLIER + timedelta(minutes=1)
CONTEXT = ConditionContext(NOW, generation=3)
THEN, NOW_TEXT = "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z"
COMPLETION = "2026-01-01T12:01:00.25+00:00"
SUCCESS = Outcome("successful", counts=Counts(ok=2, changed=1), completion=COMPLETION)
FAILURE = replace(Outcome.of_failure("Task 'Boom': no"), counts=Counts(ok=1, failures=1), completion=COMPLETION)
RESULT = {"ok": 2, "changed": 1, "skipped": 0, "failures": 0, "completion": COMPLETION}


def conditions(status: Status) -> dict[str, dict[str, Any]]:
    """Return the conditions by type."""
    return {item["type"]: item for item in status["conditions"]}


def succeeded(at: datetime = EARLIER, **reported: Any) -> Status:
    """Return the status of an object whose last run succeeded."""
    outcome = replace(SUCCESS, completion=at.isoformat(), reported=Reported(**reported))
    return finished({}, outcome, ConditionContext(at, 3))


def test_times_are_in_utc_seconds() -> None:
    local = datetime(2026, 1, 1, 14, 1, 0, 999, tzinfo=timezone(timedelta(hours=2)))
    assert ConditionContext(local, 1).text == NOW_TEXT


def test_first_success_sets_the_conditions_of_the_go_runner() -> None:
    assert finished({}, SUCCESS, CONTEXT) == {
        "observedGeneration": 3,
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "reason": "Successful",
                "message": "Awaiting next reconciliation",
                "lastTransitionTime": NOW_TEXT,
                "ansibleResult": RESULT,
            },
            {
                "type": "Successful",
                "status": "True",
                "reason": "Successful",
                "message": "Last reconciliation succeeded",
                "lastTransitionTime": NOW_TEXT,
            },
            {
                "type": "Failure",
                "status": "False",
                "reason": "Successful",
                "message": "",
                "lastTransitionTime": NOW_TEXT,
            },
        ],
    }


def test_first_failure_sets_no_running_condition() -> None:
    status = finished({}, FAILURE, CONTEXT)
    assert [item["type"] for item in status["conditions"]] == ["Failure", "Successful"]
    failure = conditions(status)["Failure"]
    assert (failure["status"], failure["reason"], failure["message"]) == ("True", "Failed", "Task 'Boom': no")
    assert failure["ansibleResult"]["failures"] == 1
    assert conditions(status)["Successful"]["status"] == "False"


def test_failure_after_success_keeps_reason_and_message_of_running() -> None:
    old = succeeded()
    new = conditions(finished(old, FAILURE, CONTEXT))
    before = conditions(old)["Running"]
    assert new["Running"] == before | {"status": "False", "lastTransitionTime": NOW_TEXT}
    assert new["Successful"]["status"] == "False"
    assert (new["Successful"]["reason"], new["Successful"]["message"]) == ("Failed", "")


def test_success_clears_failure() -> None:
    failure = conditions(finished(finished({}, FAILURE, ConditionContext(EARLIER, 3)), SUCCESS, CONTEXT))["Failure"]
    assert failure == {
        "type": "Failure",
        "status": "False",
        "reason": "Successful",
        "message": "",
        "lastTransitionTime": NOW_TEXT,
    }


def test_failure_without_play_has_no_result() -> None:
    failure = conditions(finished({}, Outcome.of_failure("Unable to run reconciliation: no"), CONTEXT))["Failure"]
    assert "ansibleResult" not in failure


def test_failure_has_latest_message_and_first_time() -> None:
    status = finished(
        finished({}, FAILURE, ConditionContext(EARLIER, 3)), Outcome.of_failure("something else"), CONTEXT
    )
    assert conditions(status)["Failure"]["message"] == "something else"
    assert conditions(status)["Failure"]["lastTransitionTime"] == THEN


def test_remark_is_added_to_success_message() -> None:
    status = finished({}, Outcome("successful", reported=Reported(remarks=("half of it",))), CONTEXT)
    assert conditions(status)["Successful"]["message"] == "Last reconciliation succeeded; half of it"


@pytest.mark.parametrize(
    "outcome", [Outcome.of_failure("é" * 5000), replace(SUCCESS, reported=Reported(remarks=("é" * 5000,)))]
)
def test_messages_are_cut(outcome: Outcome) -> None:
    for condition in finished({}, outcome, CONTEXT)["conditions"]:
        assert len(condition["message"].encode()) <= MESSAGE_LIMIT_BYTES


def test_running_keeps_earlier_failure() -> None:
    old = finished(succeeded(), FAILURE, ConditionContext(EARLIER, 3))
    new = conditions(running(old, CONTEXT))
    assert (new["Running"]["status"], new["Running"]["reason"]) == ("True", "Running")
    assert new["Running"]["message"] == "Running reconciliation"
    assert "ansibleResult" not in new["Running"]
    assert new["Failure"] == conditions(old)["Failure"]


def test_running_keeps_reason_and_message_of_success() -> None:
    old = succeeded()
    new = conditions(running(old, CONTEXT))["Successful"]
    assert new == conditions(old)["Successful"] | {"status": "False", "lastTransitionTime": NOW_TEXT}


def test_running_adds_no_success() -> None:
    assert list(conditions(running({}, CONTEXT))) == ["Running"]


def test_running_keeps_observed_generation() -> None:
    assert running({"observedGeneration": 2}, CONTEXT)["observedGeneration"] == 2


def test_transition_time_changes_only_with_the_status() -> None:
    new = conditions(finished(running(succeeded(), ConditionContext(EARLIER, 3)), SUCCESS, CONTEXT))
    assert new["Running"]["lastTransitionTime"] == THEN
    assert new["Successful"]["lastTransitionTime"] == NOW_TEXT


def test_condition_without_time_gets_one() -> None:
    old = {"conditions": [{"type": "Running", "status": "True"}]}
    assert conditions(finished(old, SUCCESS, CONTEXT))["Running"]["lastTransitionTime"] == NOW_TEXT


def test_foreign_fields_and_conditions_keep_value_and_position() -> None:
    foreign = {"type": "Ready", "status": "True", "observedGeneration": 9, "lastTransitionTime": "yesterday"}
    old = {"replicas": 2, "conditions": [foreign, *succeeded()["conditions"]]}
    for new in (finished(old, SUCCESS, CONTEXT), finished(old, FAILURE, CONTEXT), running(old, CONTEXT)):
        assert new["replicas"] == 2
        assert new["conditions"][0] == foreign
        assert [item["type"] for item in new["conditions"]] == ["Ready", "Running", "Successful", "Failure"]


@pytest.mark.parametrize("found", [None, "none", {"a": 1}, ["a", None, 3]])
def test_invalid_conditions_are_ignored(found: object) -> None:
    assert [item["type"] for item in running({"conditions": found}, CONTEXT)["conditions"]] == ["Running"]


def test_mapped_values_never_replace_conditions() -> None:
    outcome = replace(SUCCESS, reported=Reported({"pods": 4, "conditions": "mine"}))
    status = finished({"pods": 3, "ready": 1}, outcome, CONTEXT)
    assert (status["pods"], status["ready"]) == (4, 1)
    assert condition_of(status, "Successful") is not None


def test_kind_without_generation_has_no_observed_generation() -> None:
    assert "observedGeneration" not in finished({}, SUCCESS, ConditionContext(NOW, 0))


@pytest.mark.parametrize("outcome", [SUCCESS, FAILURE])
def test_old_status_is_not_modified(outcome: Outcome) -> None:
    old = succeeded()
    before = copy.deepcopy(old)
    finished(old, outcome, CONTEXT)
    running(old, CONTEXT)
    assert old == before


@given(st.lists(st.sampled_from(["success", "failure", "running"]), max_size=8))
def test_only_the_last_outcome_is_true_after_any_history(history: list[str]) -> None:
    status: Status = {}
    for step in history:
        status = (
            running(status, CONTEXT)
            if step == "running"
            else finished(status, {"success": SUCCESS}.get(step, FAILURE), CONTEXT)
        )
    types = [item["type"] for item in status.get("conditions", [])]
    assert len(types) == len(set(types))
    true = {item["type"] for item in status.get("conditions", []) if item["status"] == "True"}
    last = history[-1] if history else ""
    assert ("Successful" in true) == (last == "success")
    assert last != "failure" or true == {"Failure"}
    assert last != "success" or true == {"Running", "Successful"}


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ({}, True),
        (succeeded(), False),
        (succeeded() | {"observedGeneration": 2}, True),
        (finished({}, FAILURE, CONTEXT), True),
        (running(succeeded(), CONTEXT), True),
        ({key: value for key, value in succeeded().items() if key != "observedGeneration"}, False),
    ],
    ids=["new", "unchanged", "new generation", "after a failure", "left running", "schema drops the generation"],
)
def test_run_of_new_changed_or_failed_object_is_marked(old: Status, *, expected: bool) -> None:
    assert should_mark_running(old, 3) is expected


def test_times_and_counts_are_written_after_ten_minutes() -> None:
    old = succeeded(EARLIER)
    new = finished(old, replace(SUCCESS, counts=Counts(ok=99)), CONTEXT)
    assert new != old
    assert not should_write(old, new, EARLIER + timedelta(minutes=9, seconds=59))
    assert should_write(old, new, EARLIER + timedelta(minutes=10))


def test_failing_object_is_refreshed_ten_minutes_after_its_last_run() -> None:
    long_ago = EARLIER - timedelta(hours=1)
    old = finished(
        succeeded(long_ago),
        replace(FAILURE, completion=EARLIER.isoformat()),
        ConditionContext(EARLIER, 3),
    )
    new = finished(old, replace(FAILURE, completion=NOW.isoformat()), CONTEXT)
    assert not should_write(old, new, NOW)
    assert should_write(old, new, EARLIER + timedelta(minutes=10))


def test_equal_status_is_never_written() -> None:
    old = finished({}, Outcome.of_failure("Unable to parse"), CONTEXT)
    assert not should_write(old, finished(old, Outcome.of_failure("Unable to parse"), CONTEXT), NOW + timedelta(days=1))


@pytest.mark.parametrize(
    "new",
    [
        finished(succeeded(), FAILURE, CONTEXT),
        running(succeeded(), CONTEXT),
        succeeded(mapped={"pods": 4}),
        finished(succeeded(), SUCCESS, ConditionContext(NOW, 4)),
        succeeded(remarks=("refused",)),
    ],
    ids=["outcome", "running", "mapped value", "generation", "message"],
)
def test_changed_status_is_written_immediately(new: Status) -> None:
    assert should_write(succeeded(), new, NOW)


def test_order_of_conditions_is_ignored() -> None:
    old = succeeded()
    assert not should_write(old, old | {"conditions": old["conditions"][::-1]}, NOW)


def test_generation_dropped_by_the_schema_is_ignored() -> None:
    old = {key: value for key, value in succeeded().items() if key != "observedGeneration"}
    assert not should_write(old, finished(old, SUCCESS, CONTEXT), NOW)


@pytest.mark.parametrize("completion", [None, 5, "", "yesterday"])
def test_status_without_completion_is_written(completion: object) -> None:
    old = succeeded()
    old["conditions"][0]["ansibleResult"]["completion"] = completion
    assert should_write(old, finished(old, SUCCESS, CONTEXT), NOW)


def test_invalid_result_is_overwritten() -> None:
    old = succeeded()
    old["conditions"][0]["ansibleResult"] = "fine"
    assert should_write(old, finished(old, SUCCESS, CONTEXT), NOW)


def test_time_without_zone_is_utc() -> None:
    old = succeeded()
    old["conditions"][0]["ansibleResult"]["completion"] = "2026-01-01T12:00:30"
    new = finished(old, SUCCESS, CONTEXT)
    assert not should_write(old, new, NOW)
    assert should_write(old, new, NOW + timedelta(minutes=10))


def test_mapping_has_values_at_its_paths() -> None:
    mapping = {
        "one": FieldPath.parse("$.stats.a"),
        "all": FieldPath.parse("$.stats.list[*]"),
        "none": FieldPath.parse("$.stats.x"),
    }
    document = {"stats": {"a": 0, "list": [1, 2]}}
    assert map_result(mapping, document) == {"one": 0, "all": [1, 2]}


def test_mapped_null_is_a_value() -> None:
    assert map_result({"gone": FieldPath.parse("$.stats.a")}, {"stats": {"a": None}}) == {"gone": None}


def test_condition_is_found_by_type() -> None:
    assert condition_of({}, "Running") is None
    assert condition_of(succeeded(), "Failure") == succeeded()["conditions"][2]


def test_pause_adds_a_condition_and_keeps_the_last_outcome() -> None:
    old = succeeded()
    status = paused(old, CONTEXT)
    told = conditions(status)["Paused"]
    assert (told["status"], told["reason"]) == ("True", "Paused")
    assert told["message"] == 'Nothing runs as long as the annotation rolecall.dev/paused is "true"'
    assert conditions(status)["Running"]["status"] == "False"
    assert conditions(status)["Successful"] == conditions(old)["Successful"]
    assert not should_write(
        status, paused(status, ConditionContext(NOW + timedelta(hours=1), 3)), NOW + timedelta(hours=1)
    )


def test_resumed_object_has_no_pause_condition() -> None:
    status = paused(succeeded(), CONTEXT)
    assert should_mark_running(status, 3)
    assert "Paused" not in conditions(running(status, CONTEXT))
    assert "Paused" not in conditions(finished(status, SUCCESS, CONTEXT))


@given(STATUS, st.dictionaries(st.text(), JSON, max_size=2), st.none() | st.text(), st.integers(0, 2**63))
def test_any_status_is_accepted(old: Status, mapped: Status, failure: str | None, generation: int) -> None:
    context = ConditionContext(NOW, generation)
    outcome = replace(SUCCESS if failure is None else Outcome.of_failure(failure), reported=Reported(mapped))
    before = copy.deepcopy(old)
    for new in (running(old, context), paused(old, context), finished(old, outcome, context)):
        assert should_write(old, new, NOW) in (True, False)
        assert not should_write(new, new, NOW)
        assert {key: new[key] for key in old if key not in {*mapped, "conditions", "observedGeneration"}} == {
            key: old[key] for key in old if key not in {*mapped, "conditions", "observedGeneration"}
        }
    assert should_mark_running(old, generation) in (True, False)
    assert old == before


@given(STATUS)
def test_foreign_conditions_of_any_status_are_kept(old: Status) -> None:
    ours = ("Running", "Successful", "Failure", "Paused")
    found = old.get("conditions")
    foreign = (
        [item for item in found if isinstance(item, dict) and item.get("type") not in ours]
        if isinstance(found, list)
        else []
    )
    new = finished(old, SUCCESS, CONTEXT)
    assert [item for item in new["conditions"] if item.get("type") not in ours] == foreign


IS_FALSE = "The run succeeded, but $.stats.pods[*].is_ready is false"
NO_VALUE = "The run succeeded, but reported no value at $.stats.pods[*].is_ready"
NO_BOOLEAN = "The run succeeded, but the value at $.stats.pods[*].is_ready is neither true nor false: its type is "


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([True], ""),
        (["True"], ""),
        (["true", True], ""),
        ([False], IS_FALSE),
        (["False"], IS_FALSE),
        ([True, False], IS_FALSE),
        ([True, 2], NO_BOOLEAN + "number"),
        (["yes"], NO_BOOLEAN + "string"),
        ([None], NO_BOOLEAN + "null"),
        ([[True]], NO_BOOLEAN + "array"),
        ([], NO_VALUE),
    ],
)
def test_object_is_ready_if_each_value_at_the_path_is_true(values: list[Any], reason: str) -> None:
    document = {"stats": {"pods": [{"is_ready": value} for value in values]}}
    assert unready_reason(FieldPath.parse("$.stats.pods[*].is_ready"), document) == reason
    own = "2 of 3 pods are ready" if reason == IS_FALSE else reason
    assert unready_reason(FieldPath.parse("$.stats.pods[*].is_ready"), document, "2 of 3 pods are ready") == own


@pytest.mark.parametrize(
    "reason", ["", "Two words", "9lives", "_A", "Ends:", "A,", "Ä", "A\n", "A" * 1025, "RunsPaused", 3, None, ["A"], {}]
)
def test_invalid_reason_is_ignored(reason: object) -> None:
    assert invalid_texts({"value": False, "reason": reason, "message": "m"}) == ["reason"]


@pytest.mark.parametrize("reason", ["A", "z", "WaitingForPods", "a_b,c:d9", "A_", "A" * 1024])
def test_valid_reason_is_used(reason: str) -> None:
    assert invalid_texts({"value": True, "reason": reason}) == []


@pytest.mark.parametrize("message", [None, 3, True, ["a"]])
def test_message_must_be_a_string(message: object) -> None:
    assert invalid_texts({"message": message}) == ["message"]


START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
START_TEXT = "2026-01-01T12:00:00Z"
SUCCESS_READINESS = Outcome("successful", counts=Counts(ok=2), completion="2026-01-01T12:00:00+00:00")
REQUEUE = replace(SUCCESS_READINESS, requeue_after_seconds=1.0)
FAILURE_READINESS = Outcome.of_failure("Task 'Boom': no")
FINAL = Outcome.of_failure("Unable to parse reconcile period annotation", is_final=True)
ON = Readiness(is_on=True)
OFF = Readiness(is_on=False)
NEVER_RUN: Status = {"observedGeneration": -1}


def at(seconds: float = 0, generation: int = 1) -> ConditionContext:
    """Return the time so many seconds after the start, and the generation."""
    return ConditionContext(START + timedelta(seconds=seconds), generation)


def run(old: Status, context: ConditionContext, readiness: Readiness = ON) -> Status:
    """Return the status while a run is marked."""
    return readiness.while_running(old, context)


def pause(old: Status, context: ConditionContext, readiness: Readiness = ON) -> Status:
    """Return the status of a paused object."""
    return readiness.while_paused(old, context)


def end(old: Status, outcome: Outcome, context: ConditionContext, readiness: Readiness = ON) -> Status:
    """Return the status after a run."""
    return readiness.after_run(old, outcome, context)


def three(status: Status) -> tuple[str, ...]:
    """Return the status of Ready, Reconciling and Stalled, and their reason, which is the same for all."""
    found = [condition_of(status, kind) or {} for kind in ("Ready", "Reconciling", "Stalled")]
    (reason,) = {str(item.get("reason")) for item in found}
    return (*(str(item.get("status")) for item in found), reason)


def role_says(status: Status, kind: str, value: str, since: str = START_TEXT) -> Status:
    """Return a status with a condition that a role has written."""
    said = {"type": kind, "status": value, "reason": "Mine", "message": "m", "lastTransitionTime": since}
    others = [item for item in status.get("conditions", []) if item["type"] != kind]
    return {**status, "conditions": [*others, said]}


IN_PROGRESS = ("Unknown", "True", "False", "RunInProgress")
DONE = ("True", "False", "False", "RunSucceeded")
RETRIED = ("False", "True", "False", "RunFailed")
STALLED = ("False", "False", "True", "RunFailed")


REQUEUED = ("Unknown", "True", "False", "RunRequeued")
UNREADY = ("False", "True", "False", "NotReadyYet")
PAUSED = ("Unknown", "True", "False", "RunsPaused")
NOT_READY = replace(SUCCESS_READINESS, reported=Reported(unready="The run succeeded, but $.stats.is_ready is false"))
READY_NOW = replace(SUCCESS_READINESS, reported=Reported(unready=""))
OUTCOMES = {
    "success": SUCCESS_READINESS,
    "failure": FAILURE_READINESS,
    "final": FINAL,
    "requeue": REQUEUE,
    "unready": NOT_READY,
    "unready-requeue": replace(NOT_READY, requeue_after_seconds=1.0),
    "ready": READY_NOW,
    "ready-requeue": replace(READY_NOW, requeue_after_seconds=1.0),
    "waiting": replace(SUCCESS_READINESS, reported=Reported({}, "1 of 2 pods", "Waiting", "1 of 2 pods")),
    "served": replace(SUCCESS_READINESS, reported=Reported({}, "", "Served", "2 of 2 pods")),
}


def after(steps: str, status: Status | None = None, readiness: Readiness = ON) -> Status:
    """Return the status after some steps: each a run, a pause or an outcome, ``@`` a second, ``/`` a generation."""
    status = status or {}
    for step in steps.split():
        name, second, generation = re.fullmatch(r"([a-z-]+)(?:@(\d+))?(?:/(\d))?", step).groups()  # type: ignore[union-attr] # a mistake of the test
        context = at(int(second or 0), int(generation or 1))
        if name in OUTCOMES:
            status = end(status, OUTCOMES[name], context, readiness)
        else:
            status = (run if name == "run" else pause)(status, context, readiness)
    return status


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("run", IN_PROGRESS),
        ("run success@1", DONE),
        # A new generation is unfinished as soon as its run starts; a run of the same one changes nothing.
        ("success run@1/2", IN_PROGRESS),
        ("success run@1/2 success@2/2", DONE),
        ("success run@9", DONE),
        ("failure run@9", RETRIED),
        ("final run@9", STALLED),
        ("requeue run@9", REQUEUED),
        # Failures of one generation stall an object after 30 seconds, and only if a retry has failed too.
        ("failure", RETRIED),
        ("failure run@29 failure@29", RETRIED),
        ("failure run@29 failure@29 run@30 failure@30", STALLED),
        ("failure failure@30 run@31 failure@31", STALLED),
        ("run failure@3600", RETRIED),
        ("success failure@3600", RETRIED),
        ("failure failure@1 failure@100/2", RETRIED),
        # A failure that only another spec can fix stalls immediately; an edit or a success ends this.
        ("final", STALLED),
        ("final run@100/2", IN_PROGRESS),
        ("final run@100/2 failure@100/2", RETRIED),
        ("final run@100/2 success@100/2", DONE),
        ("final run@1 success@2", DONE),
        # A run that requests another one isn't the last.
        ("run requeue@1", REQUEUED),
        ("requeue success@3", DONE),
        # With the watch's ready path, its value decides; time without readiness isn't time of failures.
        ("unready", UNREADY),
        ("unready run@1", UNREADY),
        ("unready ready@2", DONE),
        ("unready-requeue", UNREADY),
        ("unready-requeue ready-requeue@2", DONE),
        ("ready unready@1", UNREADY),
        ("unready failure@600 failure@601", RETRIED),
        ("unready failure@600 failure@630", STALLED),
        # A reason that a run has reported doesn't outlive the next outcome or generation.
        ("waiting unready@1", UNREADY),
        ("waiting ready@1", DONE),
        ("served waiting@1 run@2 ready@3", DONE),
        ("waiting run@1/2", IN_PROGRESS),
        ("served run@1/2", IN_PROGRESS),
        ("waiting failure@1", RETRIED),
        ("served failure@1 failure@31", STALLED),
        ("waiting failure@600 failure@601", RETRIED),
        # A pause keeps the outcome of the last run.
        ("pause", PAUSED),
        ("pause run@1", IN_PROGRESS),
        ("success pause@1", DONE),
        ("failure pause@1", RETRIED),
        ("final pause@1", STALLED),
    ],
)
def test_ready_conditions_follow_runs(steps: str, expected: tuple[str, ...]) -> None:
    assert three(after(steps)) == expected


def test_default_status_of_a_crd_counts_as_never_run() -> None:
    assert three(after("run", NEVER_RUN)) == IN_PROGRESS


def test_stalled_after_zero_stalls_at_the_first_failure() -> None:
    assert three(after("failure", readiness=Readiness(is_on=True, stalled_after=timedelta(0)))) == STALLED


@pytest.mark.parametrize(
    ("steps", "next_step"),
    [
        ("success", "success@60"),
        ("run requeue@1", "requeue@2"),
        ("unready", "unready@60"),
        ("waiting", "waiting@60"),
        ("served", "served@60"),
        ("success pause@1", "pause@2/2"),
    ],
)
def test_repeated_outcome_is_not_written(steps: str, next_step: str) -> None:
    old = after(steps)
    assert not should_write(old, after(next_step, old), at(60).now)


def test_messages_have_the_failure() -> None:
    retried, stalled = after("failure"), after("failure failure@30")
    assert (condition_of(retried, "Ready") or {})["message"] == "Task 'Boom': no"
    message = (condition_of(retried, "Reconciling") or {})["message"]
    assert message == "The last run failed and will be retried: Task 'Boom': no"
    assert (condition_of(stalled, "Stalled") or {})["message"] == "Task 'Boom': no"


@pytest.mark.parametrize(
    "steps", ["{}", "unready {}@1", "waiting served@1 {}@2", "{} run@1", "{} pause@1", "failure {}@1"]
)
@pytest.mark.parametrize(("name", "value"), [("waiting", "False"), ("served", "True")])
def test_ready_has_the_reason_and_message_of_the_run(steps: str, name: str, value: str) -> None:
    status = after(steps.format(name))
    ready, reconciling = (condition_of(status, kind) or {} for kind in ("Ready", "Reconciling"))
    assert ready["observedGeneration"] == reconciling["observedGeneration"] == 1
    reported = OUTCOMES[name].reported
    assert (ready["status"], ready["reason"], ready["message"]) == (value, reported.reason, reported.message)
    assert reconciling["reason"] == ("NotReadyYet" if name == "waiting" else "RunSucceeded")
    assert reconciling["message"] == ("1 of 2 pods" if name == "waiting" else "")


def test_reported_reason_changes_no_transition_time() -> None:
    status = after("unready waiting@9 run@10 unready@11 waiting@12")
    assert (condition_of(status, "Ready") or {})["lastTransitionTime"] == START_TEXT


@pytest.mark.parametrize("kind", ["Ready", "Stalled"])
def test_reported_reason_is_ignored_next_to_a_condition_of_the_role(kind: str) -> None:
    status = after("waiting@1 waiting@2", role_says({}, kind, "False"))
    found = {item["type"]: item["reason"] for item in status["conditions"]}
    assert found[kind] == "Mine"
    assert found["Ready"] in ("Mine", "NotReadyYet")
    assert three(after("ready@3", {**status, "conditions": [c for c in status["conditions"] if c["reason"] != "Mine"]}))


@pytest.mark.parametrize("steps", ["success", "run/2", "pause", "failure"])
def test_ready_with_a_reported_reason_is_removed_when_conditions_are_off(steps: str) -> None:
    status = after(steps, after("waiting"), OFF)
    assert not {"Ready", "Reconciling", "Stalled"} & {item["type"] for item in status["conditions"]}


def test_smaller_status_has_the_operators_reason() -> None:
    long = Reported(unready="m" * 1000, reason="W" * 1000, message="m" * 1000)
    new = end({}, replace(NOT_READY, reported=long), at(5))
    found = smaller({}, new, ["status.conditions[3].message"])
    ready = condition_of(found, "Ready") or {}
    assert (ready["reason"], len(ready["message"].encode())) == ("NotReadyYet", 256)
    assert three(after("ready@9", found)) == DONE


def test_long_reported_message_is_cut() -> None:
    status = end({}, replace(READY_NOW, reported=Reported(unready="", message="é" * 2000)), at(5))
    assert len((condition_of(status, "Ready") or {})["message"].encode()) <= 2048


def test_success_is_written_as_a_whole_condition() -> None:
    assert condition_of(after("run success@1"), "Ready") == {
        "type": "Ready",
        "status": "True",
        "reason": "RunSucceeded",
        "message": "The last run succeeded",
        "lastTransitionTime": "2026-01-01T12:00:01Z",
        "observedGeneration": 1,
    }


def test_changed_condition_moves_to_the_end_as_in_the_go_runner() -> None:
    def types(status: Status) -> list[str]:
        return [item["type"] for item in status["conditions"]]

    custom = {"type": "Custom", "status": "True"}
    context = replace(CONTEXT, moves_changed=True)
    done = finished({"conditions": [custom]}, SUCCESS, context)
    assert types(done) == ["Custom", "Running", "Successful", "Failure"]
    started = running(done, context)
    assert types(started) == ["Custom", "Failure", "Successful", "Running"]
    assert types(finished(started, SUCCESS, context)) == ["Custom", "Running", "Successful", "Failure"]
    failed = finished(started, FAILURE, context)
    assert types(failed) == ["Custom", "Running", "Failure", "Successful"]
    assert types(finished(running(failed, context), FAILURE, context))[-1] == "Failure"
    assert types(finished(running(done, CONTEXT), FAILURE, CONTEXT)) == types(done)
    assert not should_write(done, {**done, "conditions": done["conditions"][::-1]}, NOW)


REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
"""The pattern of ``metav1.Condition``."""


@given(st.lists(st.sampled_from(["s", "f", "q", "u", "r", "p", "i"]), min_size=1), st.booleans())
def test_conditions_of_any_history_fit_the_usual_schema(history: list[str], is_on: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    status, readiness = dict(NEVER_RUN), Readiness(is_on=is_on)
    outcomes = {"s": SUCCESS_READINESS, "f": FAILURE_READINESS, "q": REQUEUE, "u": NOT_READY}
    for number, step in enumerate(history):
        context = at(number, 1 + number // 3)
        if step in outcomes:
            status = end(status, outcomes[step], context, readiness)
        elif step == "i":
            status = readiness.after_interruption(status, status, "stopped", context)
        else:
            status = run(status, context, readiness) if step == "r" else pause(status, context, readiness)
        for item in status["conditions"]:
            assert REASON.fullmatch(item["reason"])
            assert item["status"] in ("True", "False", "Unknown")
            assert parse_time(item["lastTransitionTime"])
            assert isinstance(item["message"], str)
            assert item.get("observedGeneration", 0) >= 0


@given(STATUS, st.none() | st.text(), st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["type", "message", ""]))))
def test_smaller_status_lacks_only_rejected_and_optional_parts(
    old: Status, failure: str | None, rejected: list[tuple[int, str]]
) -> None:
    new = end(old, SUCCESS_READINESS if failure is None else Outcome.of_failure(failure), at(5))
    fields = [f"status.conditions[{index}].{key}" for index, key in rejected]
    found = smaller(old, new, fields)
    dropped = {index for index, key in rejected if key != "message"}
    kept = [item for index, item in enumerate(new["conditions"]) if is_ours(item) and index not in dropped]
    core = ("type", "status", "reason", "lastTransitionTime")
    own = [item for item in found["conditions"] if is_ours(item)]
    assert [[item.get(key) for key in core] for item in own] == [[item.get(key) for key in core] for item in kept]
    assert all(len(item["message"].encode()) <= 256 and "ansibleResult" not in item for item in own)
    foreign = [item for item in new["conditions"] if not is_ours(item)]
    assert [item for item in found["conditions"] if not is_ours(item)] == foreign
    assert {key: found[key] for key in new if key != "conditions"} == {
        key: new[key] for key in new if key != "conditions"
    }


def test_smaller_status_keeps_old_values_of_rejected_fields_and_one_condition_of_too_many() -> None:
    new = end({"pods": 1}, FAILURE_READINESS, at(5)) | {"pods": 2}
    found = smaller({"pods": 1}, new, ["status.pods", "status.conditions", "status.observedGeneration"])
    assert [item["type"] for item in found["conditions"]] == ["Ready"]
    assert {key: found[key] for key in found if key != "conditions"} == {"pods": 1}
    found = smaller({}, end({}, FAILURE_READINESS, at(5), OFF), ["status.conditions"])
    assert [item["type"] for item in found["conditions"]] == ["Failure"]


def test_only_ready_conditions_have_the_generation() -> None:
    status = end({}, SUCCESS_READINESS, at(generation=7))
    of = {item["type"]: item.get("observedGeneration") for item in status["conditions"]}
    assert of == {"Ready": 7, "Reconciling": 7, "Stalled": 7, "Running": None, "Successful": None, "Failure": None}


def test_finished_object_without_ready_conditions_gets_them_after_its_run() -> None:
    before = end({}, SUCCESS_READINESS, at(), OFF)
    assert condition_of(run(before, at(1)), "Reconciling") is None
    assert three(end(run(before, at(1)), SUCCESS_READINESS, at(2))) == DONE


def test_transition_times_of_ready_conditions_change_only_with_the_status() -> None:
    failing = end(end({}, FAILURE_READINESS, at(0)), Outcome.of_failure("other"), at(5))
    assert (condition_of(failing, "Ready") or {})["lastTransitionTime"] == START_TEXT
    done = end(failing, SUCCESS_READINESS, at(9))
    assert (condition_of(done, "Ready") or {})["lastTransitionTime"] == "2026-01-01T12:00:09Z"
    assert (condition_of(done, "Stalled") or {})["lastTransitionTime"] == START_TEXT


def test_messages_of_ready_conditions_are_cut() -> None:
    for outcome in (Outcome.of_failure("é" * 5000), Outcome.of_failure("é" * 5000, is_final=True)):
        assert all(
            len(item["message"].encode()) <= MESSAGE_LIMIT_BYTES for item in end({}, outcome, at())["conditions"]
        )


@pytest.mark.parametrize("kind", ["Ready", "Reconciling", "Stalled"])
@pytest.mark.parametrize("value", ["True", "False", "Unknown"])
def test_condition_of_the_role_is_kept(kind: str, value: str) -> None:
    said = role_says(end({}, SUCCESS_READINESS, at()), kind, value)
    for status in (run(said, at(1)), run(said, at(1, 2)), pause(said, at(1)), end(said, SUCCESS_READINESS, at(1))):
        assert condition_of(status, kind) == condition_of(said, kind)


def test_repeated_condition_of_the_role_is_not_written() -> None:
    said = end(role_says(end({}, SUCCESS_READINESS, at()), "Ready", "False"), SUCCESS_READINESS, at(1))
    assert not should_write(said, end(said, SUCCESS_READINESS, at(60)), at(60).now)


@pytest.mark.parametrize("value", ["True", "False"])
def test_role_and_operator_do_not_overwrite_each_other(value: str) -> None:
    said = [{"type": "Ready", "status": value, "reason": "Mine", "message": "m"}]
    parameters = {"status": None, "conditions": said, "replace": False, "replace_lists": False}
    status: Status = {}
    versions = []
    for seconds in range(3):
        for generation in (1, 2):
            context = at(seconds, generation)
            status = merge_status(run(status, context), parameters, context.text)
            status = end(status, SUCCESS_READINESS, context)
            versions.append(condition_of(status, "Ready"))
    assert versions == [{**said[0], "lastTransitionTime": START_TEXT}] * 6


def test_ready_of_the_role_survives_a_requeue() -> None:
    status = end(role_says({}, "Ready", "True"), REQUEUE, at())
    assert (condition_of(status, "Ready") or {})["reason"] == "Mine"
    assert (condition_of(status, "Reconciling") or {})["status"] == "False"


def test_failed_run_replaces_only_a_contradicting_ready_that_it_has_written() -> None:
    for value, reason in (("True", "RunFailed"), ("False", "Mine")):
        context = replace(at(), written=({"type": "Ready", "status": value, "reason": "Mine"},))
        status = end(role_says({}, "Ready", value), FAILURE_READINESS, context)
        assert (condition_of(status, "Ready") or {})["reason"] == reason


def test_ready_of_the_role_is_known_in_later_runs() -> None:
    written = ({"type": "Ready", "status": "True", "reason": "Mine"},)
    status = end(role_says({}, "Ready", "True"), SUCCESS_READINESS, replace(at(), written=written))
    status = end(run(status, at(1, 2)), SUCCESS_READINESS, at(1, 2))
    assert (condition_of(status, "Ready") or {})["reason"] == "Mine"
    changed = {
        **status,
        "conditions": [
            {**each, "reason": "Issued"} if each["type"] == "Ready" else each for each in status["conditions"]
        ],
    }
    for before, reason in ((status, "RunFailed"), (changed, "Issued")):
        after_failure = end(run(before, at(2, 3)), FAILURE_READINESS, at(3, 3))
        assert (condition_of(after_failure, "Ready") or {})["reason"] == reason


def test_object_with_a_foreign_ready_stalls_after_repeated_failures() -> None:
    status = end(role_says({}, "Ready", "True"), FAILURE_READINESS, at(0))
    assert (condition_of(end(status, FAILURE_READINESS, at(29)), "Stalled") or {})["status"] == "False"
    status = end(status, FAILURE_READINESS, at(30))
    assert (condition_of(status, "Stalled") or {})["status"] == "True"
    assert (condition_of(status, "Ready") or {})["reason"] == "Mine"


FOREIGN = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["Running", "Successful", "Failure", "Paused", "Ready", "Reconciling", "Stalled"]),
        "status": st.sampled_from(["True", "False", "Unknown"]),
        "reason": st.sampled_from(["MinimumReplicasAvailable", "PausedByUser", "Issued", "ReconcileError", "Paused"]),
        "message": st.text(max_size=3),
        "lastTransitionTime": st.just(START_TEXT),
    }
)


@given(st.lists(FOREIGN, max_size=7, unique_by=lambda item: item["type"]), st.lists(st.sampled_from("rfsqpi")))
def test_foreign_conditions_survive_any_history(foreign: list[dict[str, Any]], history: list[str]) -> None:
    status: Status = {"conditions": copy.deepcopy(foreign)}
    outcomes = {"s": SUCCESS_READINESS, "f": FAILURE_READINESS, "q": REQUEUE}
    for number, step in enumerate(history):
        context = at(20 * number, 1 + number // 2)
        if step in outcomes:
            status = end(status, outcomes[step], context)
        elif step == "i":
            status = ON.after_interruption(status, status, "stopped", context)
        else:
            status = run(status, context) if step == "r" else pause(status, context)
        status = OFF.while_running(status, context) if number % 5 == 4 else status
    assert [item for item in status["conditions"] if item in foreign] == foreign


def test_stalled_of_the_role_is_kept_after_a_failure() -> None:
    status = end(role_says({}, "Stalled", "True"), FAILURE_READINESS, at())
    assert (condition_of(status, "Stalled") or {})["reason"] == "Mine"
    assert (condition_of(status, "Reconciling") or {})["status"] == "False"


def test_unready_of_the_role_stalls_only_after_repeated_failures() -> None:
    said = role_says(end({}, SUCCESS_READINESS, at()), "Ready", "False")
    first = end(said, FAILURE_READINESS, at(100))
    assert (condition_of(first, "Stalled") or {})["status"] == "False"
    assert (condition_of(end(first, FAILURE_READINESS, at(101)), "Stalled") or {})["status"] == "False"
    assert (condition_of(end(first, FAILURE_READINESS, at(130)), "Stalled") or {})["status"] == "True"


def test_ready_conditions_without_generations_are_not_rewritten() -> None:
    done = end({}, SUCCESS_READINESS, at())
    pruned = {
        "conditions": [
            {key: value for key, value in item.items() if key != "observedGeneration"} for item in done["conditions"]
        ]
    }
    assert not should_write(pruned, end(pruned, SUCCESS_READINESS, at(60)), at(60).now)
    assert three(run(pruned, at(60, generation=2))) == DONE  # nothing tells that this is another generation
    assert three(end(end(pruned, FAILURE_READINESS, at(0)), FAILURE_READINESS, at(60))) == STALLED


@pytest.mark.parametrize("since", [None, 5, "yesterday"])
def test_invalid_time_does_not_stall(since: object) -> None:
    failing = copy.deepcopy(end({}, FAILURE_READINESS, at()))
    next(item for item in failing["conditions"] if item["type"] == "Ready")["lastTransitionTime"] = since
    assert three(end(failing, FAILURE_READINESS, at(100))) == RETRIED


@pytest.mark.parametrize("outcome", [SUCCESS_READINESS, REQUEUE, FAILURE_READINESS])
def test_without_ready_conditions_the_status_is_the_go_runners(outcome: Outcome) -> None:
    assert run({}, at(), OFF) == running({}, at())
    assert pause({}, at(), OFF) == paused({}, at())
    assert end({}, outcome, at(), OFF) == finished({}, outcome, at())


def test_switching_off_removes_only_conditions_of_the_operator() -> None:
    before = role_says(end({}, SUCCESS_READINESS, at()), "Stalled", "False")
    for status in (run(before, at(1), OFF), pause(before, at(1), OFF), end(before, SUCCESS_READINESS, at(1), OFF)):
        assert condition_of(status, "Ready") is condition_of(status, "Reconciling") is None
        assert condition_of(status, "Stalled") == condition_of(before, "Stalled")


@pytest.mark.parametrize("found", [None, "none", {"a": 1}])
def test_invalid_conditions_are_not_removed(found: object) -> None:
    assert without_ready_conditions({"conditions": found}) == {"conditions": found}


@pytest.mark.parametrize(
    ("keys", "default", "expected"),
    [
        ({}, True, Readiness(is_on=True, stalled_after=STALLED_AFTER)),
        ({}, False, Readiness(is_on=False)),
        ({"ready_conditions": False}, True, Readiness(is_on=False)),
        ({"ready_conditions": True}, False, Readiness(is_on=True)),
        ({"ready": {"value": FieldPath.parse("$.stats.is_ready")}}, False, Readiness(is_on=True)),
        ({"stalled_after_seconds": 0.0}, True, Readiness(is_on=True, stalled_after=timedelta(0))),
        ({"stalled_after_seconds": 90.0}, True, Readiness(is_on=True, stalled_after=timedelta(seconds=90))),
    ],
)
def test_watch_overrides_flag(keys: dict[str, Any], default: bool, expected: Readiness) -> None:  # noqa: FBT001 - a case
    watch = Watch(THING, RoleContent(Path("roles/thing")), **keys)
    assert Readiness.of_watch(watch, default=default) == expected
    for group in ("", "apps", "networking.k8s.io"):
        built_in = replace(watch, gvk=GVK(group, "v1", "Thing"))
        assert not Readiness.of_watch(built_in, default=default).is_on


@given(st.lists(st.tuples(st.sampled_from("srfqcp"), st.integers(0, 40), st.booleans()), max_size=12))
def test_exactly_one_ready_condition_is_true_after_any_history(
    history: list[tuple[str, int, bool]],
) -> None:
    outcomes = {"s": SUCCESS_READINESS, "f": FAILURE_READINESS, "q": REQUEUE}
    status, seconds, generation = NEVER_RUN, 0, 1
    for step, pause_seconds, is_edited in history:
        seconds, generation = seconds + pause_seconds, generation + is_edited
        context = at(seconds, generation)
        if step in outcomes:
            status = end(status, outcomes[step], context)
        else:
            status = run(status, context) if step == "r" else pause(status, context)
        values = three(status)
        assert values[:3].count("True") == 1
        assert (values[0] == "True") == (values[3] == "RunSucceeded")


@given(STATUS, st.integers(0, 2**63), st.none() | st.text(), st.booleans())
def test_ready_conditions_accept_any_status(old: Status, generation: int, failure: str | None, flag: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    context = at(5, generation)
    before = copy.deepcopy(old)
    outcome = REQUEUE if flag else SUCCESS_READINESS
    if failure is not None:
        outcome = Outcome.of_failure(failure, is_final=flag)
    for new in (run(old, context), pause(old, context), end(old, outcome, context)):
        assert not should_write(new, new, context.now)
        assert end(old, outcome, context, OFF) == without_ready_conditions(finished(old, outcome, context))
    assert old == before
