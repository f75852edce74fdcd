import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rolecall.util.plugins.module_utils.status import merge_status
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.jsonpath import parse_path
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.reconcile.status import (
    STALLED_AFTER,
    ConditionContext,
    Readiness,
    ReconcileOutcome,
    Status,
    condition_of,
    finished,
    map_result,
    paused,
    running,
    should_mark_running,
    should_write,
    unready_reason,
    without_ready_conditions,
)
from rolecall.runner.runs.events import MESSAGE_LIMIT_BYTES, Counts
from tests.integration.things import THING
from tests.unit.json_values import JSON, STATUS

EARLIER = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NOW = EARLIER + timedelta(minutes=1)
STAMP = ConditionContext(NOW, generation=3)
THEN, NOW_TEXT = "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z"
COMPLETION = "2026-01-01T12:01:00.25+00:00"
SUCCESS = ReconcileOutcome(counts=Counts(ok=2, changed=1), completion=COMPLETION)
FAILURE = ReconcileOutcome(failure="Task 'Boom': no", counts=Counts(ok=1, failures=1), completion=COMPLETION)
RESULT = {"ok": 2, "changed": 1, "skipped": 0, "failures": 0, "completion": COMPLETION}


def conditions(status: Status) -> dict[str, dict[str, Any]]:
    """Return the conditions by type."""
    return {item["type"]: item for item in status["conditions"]}


def succeeded(at: datetime = EARLIER, **outcome: Any) -> Status:
    """Return the status of an object whose last run succeeded."""
    completion = at.isoformat()
    return finished(
        {}, ReconcileOutcome(counts=Counts(ok=2, changed=1), completion=completion, **outcome), ConditionContext(at, 3)
    )


def test_times_are_written_in_whole_seconds_of_utc() -> None:
    local = datetime(2026, 1, 1, 14, 1, 0, 999, tzinfo=timezone(timedelta(hours=2)))
    assert ConditionContext(local, 1).text == NOW_TEXT


def test_a_first_success_sets_the_three_conditions_of_the_go_runner() -> None:
    assert finished({}, SUCCESS, STAMP) == {
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
            {"type": "Failure", "status": "False", "reason": "", "message": "", "lastTransitionTime": NOW_TEXT},
        ],
    }


def test_a_failure_before_any_other_status_says_nothing_of_running() -> None:
    status = finished({}, FAILURE, STAMP)
    assert [item["type"] for item in status["conditions"]] == ["Failure", "Successful"]
    failure = conditions(status)["Failure"]
    assert (failure["status"], failure["reason"], failure["message"]) == ("True", "Failed", "Task 'Boom': no")
    assert failure["ansibleResult"]["failures"] == 1
    assert conditions(status)["Successful"]["status"] == "False"


def test_a_failure_after_a_success_ends_running_and_keeps_what_it_said() -> None:
    old = succeeded()
    new = conditions(finished(old, FAILURE, STAMP))
    before = conditions(old)["Running"]
    assert new["Running"] == before | {"status": "False", "lastTransitionTime": NOW_TEXT}
    assert new["Successful"]["status"] == "False"
    assert new["Successful"]["reason"] == new["Successful"]["message"] == ""


def test_a_success_after_a_failure_clears_it() -> None:
    failure = conditions(finished(finished({}, FAILURE, ConditionContext(EARLIER, 3)), SUCCESS, STAMP))["Failure"]
    assert failure == {
        "type": "Failure",
        "status": "False",
        "reason": "",
        "message": "",
        "lastTransitionTime": NOW_TEXT,
    }


def test_a_play_that_never_began_has_no_result() -> None:
    failure = conditions(finished({}, ReconcileOutcome(failure="Unable to run reconciliation: no"), STAMP))["Failure"]
    assert "ansibleResult" not in failure


def test_the_message_of_a_failure_is_always_the_latest() -> None:
    status = finished(
        finished({}, FAILURE, ConditionContext(EARLIER, 3)), ReconcileOutcome(failure="something else"), STAMP
    )
    assert conditions(status)["Failure"]["message"] == "something else"
    assert conditions(status)["Failure"]["lastTransitionTime"] == THEN


def test_a_remark_is_added_to_the_message_of_a_success() -> None:
    status = finished({}, ReconcileOutcome(remark="half of it"), STAMP)
    assert conditions(status)["Successful"]["message"] == "Last reconciliation succeeded; half of it"


@pytest.mark.parametrize("outcome", [ReconcileOutcome(failure="é" * 5000), ReconcileOutcome(remark="é" * 5000)])
def test_messages_are_cut(outcome: ReconcileOutcome) -> None:
    for condition in finished({}, outcome, STAMP)["conditions"]:
        assert len(condition["message"].encode()) <= MESSAGE_LIMIT_BYTES


def test_running_marks_a_run_and_leaves_an_earlier_failure_visible() -> None:
    old = finished(succeeded(), FAILURE, ConditionContext(EARLIER, 3))
    new = conditions(running(old, STAMP))
    assert (new["Running"]["status"], new["Running"]["reason"]) == ("True", "Running")
    assert new["Running"]["message"] == "Running reconciliation"
    assert "ansibleResult" not in new["Running"]
    assert new["Failure"] == conditions(old)["Failure"]


def test_running_takes_back_success_but_not_what_it_said() -> None:
    old = succeeded()
    new = conditions(running(old, STAMP))["Successful"]
    assert new == conditions(old)["Successful"] | {"status": "False", "lastTransitionTime": NOW_TEXT}


def test_running_says_nothing_of_a_success_that_never_was() -> None:
    assert list(conditions(running({}, STAMP))) == ["Running"]


def test_running_does_not_say_that_the_generation_was_observed() -> None:
    assert running({"observedGeneration": 2}, STAMP)["observedGeneration"] == 2


def test_the_time_of_a_condition_stays_while_its_status_does() -> None:
    new = conditions(finished(running(succeeded(), ConditionContext(EARLIER, 3)), SUCCESS, STAMP))
    assert new["Running"]["lastTransitionTime"] == THEN
    assert new["Successful"]["lastTransitionTime"] == NOW_TEXT


def test_a_condition_without_a_time_gets_one() -> None:
    old = {"conditions": [{"type": "Running", "status": "True"}]}
    assert conditions(finished(old, SUCCESS, STAMP))["Running"]["lastTransitionTime"] == NOW_TEXT


def test_foreign_fields_and_conditions_stay_as_and_where_they_are() -> None:
    foreign = {"type": "Ready", "status": "True", "observedGeneration": 9, "lastTransitionTime": "yesterday"}
    old = {"replicas": 2, "conditions": [foreign, *succeeded()["conditions"]]}
    for new in (finished(old, SUCCESS, STAMP), finished(old, FAILURE, STAMP), running(old, STAMP)):
        assert new["replicas"] == 2
        assert new["conditions"][0] == foreign
        assert [item["type"] for item in new["conditions"]] == ["Ready", "Running", "Successful", "Failure"]


@pytest.mark.parametrize("found", [None, "none", {"a": 1}, ["a", None, 3]])
def test_conditions_that_are_none_count_as_absent(found: object) -> None:
    assert [item["type"] for item in running({"conditions": found}, STAMP)["conditions"]] == ["Running"]


def test_mapped_values_replace_fields_but_never_the_conditions() -> None:
    outcome = ReconcileOutcome(mapped={"pods": 4, "conditions": "mine"})
    status = finished({"pods": 3, "ready": 1}, outcome, STAMP)
    assert (status["pods"], status["ready"]) == (4, 1)
    assert condition_of(status, "Successful") is not None


def test_a_kind_that_counts_no_generation_observes_none() -> None:
    assert "observedGeneration" not in finished({}, SUCCESS, ConditionContext(NOW, 0))


@pytest.mark.parametrize("outcome", [SUCCESS, FAILURE])
def test_the_old_status_is_not_touched(outcome: ReconcileOutcome) -> None:
    old = succeeded()
    before = copy.deepcopy(old)
    finished(old, outcome, STAMP)
    running(old, STAMP)
    assert old == before


@given(st.lists(st.sampled_from(["success", "failure", "running"]), max_size=8))
def test_whatever_happened_exactly_the_last_outcome_shows(history: list[str]) -> None:
    status: Status = {}
    for step in history:
        status = (
            running(status, STAMP)
            if step == "running"
            else finished(status, {"success": SUCCESS}.get(step, FAILURE), STAMP)
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
        (finished({}, FAILURE, STAMP), True),
        (running(succeeded(), STAMP), True),
        ({key: value for key, value in succeeded().items() if key != "observedGeneration"}, False),
    ],
    ids=["new", "unchanged", "new generation", "after a failure", "left running", "schema drops the generation"],
)
def test_running_is_shown_at_once_for_what_is_new_changed_or_failed(old: Status, *, expected: bool) -> None:
    assert should_mark_running(old, 3) is expected


def test_a_status_that_differs_only_in_times_and_counts_is_no_news_for_ten_minutes() -> None:
    old = succeeded(EARLIER)
    new = finished(old, ReconcileOutcome(counts=Counts(ok=99), completion=COMPLETION), STAMP)
    assert new != old
    assert not should_write(old, new, EARLIER + timedelta(minutes=9, seconds=59))
    assert should_write(old, new, EARLIER + timedelta(minutes=10))


def test_a_failing_object_is_refreshed_ten_minutes_after_its_last_run_not_its_last_success() -> None:
    long_ago = EARLIER - timedelta(hours=1)
    old = finished(
        succeeded(long_ago),
        ReconcileOutcome("no", Counts(failures=1), EARLIER.isoformat()),
        ConditionContext(EARLIER, 3),
    )
    new = finished(old, ReconcileOutcome("no", Counts(failures=1), NOW.isoformat()), STAMP)
    assert not should_write(old, new, NOW)
    assert should_write(old, new, EARLIER + timedelta(minutes=10))


def test_a_status_that_is_the_same_to_the_letter_is_never_written() -> None:
    old = finished({}, ReconcileOutcome(failure="Unable to parse"), STAMP)
    assert not should_write(
        old, finished(old, ReconcileOutcome(failure="Unable to parse"), STAMP), NOW + timedelta(days=1)
    )


@pytest.mark.parametrize(
    "new",
    [
        finished(succeeded(), FAILURE, STAMP),
        running(succeeded(), STAMP),
        succeeded(mapped={"pods": 4}),
        finished(succeeded(), SUCCESS, ConditionContext(NOW, 4)),
        succeeded(remark="refused"),
    ],
    ids=["outcome", "running", "mapped value", "generation", "message"],
)
def test_a_status_that_says_something_new_is_written_at_once(new: Status) -> None:
    assert should_write(succeeded(), new, NOW)


def test_the_order_of_conditions_is_no_news() -> None:
    old = succeeded()
    assert not should_write(old, old | {"conditions": old["conditions"][::-1]}, NOW)


def test_a_generation_that_the_schema_drops_is_no_news() -> None:
    old = {key: value for key, value in succeeded().items() if key != "observedGeneration"}
    assert not should_write(old, finished(old, SUCCESS, STAMP), NOW)


@pytest.mark.parametrize("completion", [None, 5, "", "yesterday"])
def test_a_status_without_a_time_of_its_last_run_is_written(completion: object) -> None:
    old = succeeded()
    old["conditions"][0]["ansibleResult"]["completion"] = completion
    assert should_write(old, finished(old, SUCCESS, STAMP), NOW)


def test_a_result_that_is_no_mapping_is_written_over() -> None:
    old = succeeded()
    old["conditions"][0]["ansibleResult"] = "fine"
    assert should_write(old, finished(old, SUCCESS, STAMP), NOW)


def test_a_time_without_a_zone_is_utc() -> None:
    old = succeeded()
    old["conditions"][0]["ansibleResult"]["completion"] = "2026-01-01T12:00:30"
    new = finished(old, SUCCESS, STAMP)
    assert not should_write(old, new, NOW)
    assert should_write(old, new, NOW + timedelta(minutes=10))


def test_a_mapping_takes_what_its_paths_find() -> None:
    mapping = {"one": parse_path("$.stats.a"), "all": parse_path("$.stats.list[*]"), "none": parse_path("$.stats.x")}
    document = {"stats": {"a": 0, "list": [1, 2]}}
    assert map_result(mapping, document) == {"one": 0, "all": [1, 2]}


def test_a_mapped_null_is_a_value() -> None:
    assert map_result({"gone": parse_path("$.stats.a")}, {"stats": {"a": None}}) == {"gone": None}


def test_a_condition_is_found_by_its_type() -> None:
    assert condition_of({}, "Running") is None
    assert condition_of(succeeded(), "Failure") == succeeded()["conditions"][2]


def test_a_pause_is_a_condition_and_what_came_of_the_last_run_stays() -> None:
    old = succeeded()
    status = paused(old, STAMP)
    told = conditions(status)["Paused"]
    assert (told["status"], told["reason"]) == ("True", "Paused")
    assert told["message"] == 'Nothing runs as long as the annotation rolecall.dev/paused is "true"'
    assert conditions(status)["Running"]["status"] == "False"
    assert conditions(status)["Successful"] == conditions(old)["Successful"]
    assert not should_write(
        status, paused(status, ConditionContext(NOW + timedelta(hours=1), 3)), NOW + timedelta(hours=1)
    )


def test_a_pause_that_is_over_leaves_no_condition() -> None:
    status = paused(succeeded(), STAMP)
    assert should_mark_running(status, 3)
    assert "Paused" not in conditions(running(status, STAMP))
    assert "Paused" not in conditions(finished(status, SUCCESS, STAMP))


@given(STATUS, st.dictionaries(st.text(), JSON, max_size=2), st.none() | st.text(), st.integers(0, 2**63))
def test_no_status_is_too_odd(old: Status, mapped: Status, failure: str | None, generation: int) -> None:
    stamp = ConditionContext(NOW, generation)
    outcome = ReconcileOutcome(failure, Counts(), COMPLETION, mapped)
    before = copy.deepcopy(old)
    for new in (running(old, stamp), paused(old, stamp), finished(old, outcome, stamp)):
        assert should_write(old, new, NOW) in (True, False)
        assert not should_write(new, new, NOW)
        assert {key: new[key] for key in old if key not in {*mapped, "conditions", "observedGeneration"}} == {
            key: old[key] for key in old if key not in {*mapped, "conditions", "observedGeneration"}
        }
    assert should_mark_running(old, generation) in (True, False)
    assert old == before


@given(STATUS)
def test_foreign_conditions_stay_as_they_are(old: Status) -> None:
    ours = ("Running", "Successful", "Failure", "Paused")
    found = old.get("conditions")
    foreign = (
        [item for item in found if isinstance(item, dict) and item.get("type") not in ours]
        if isinstance(found, list)
        else []
    )
    new = finished(old, SUCCESS, STAMP)
    assert [item for item in new["conditions"] if item.get("type") not in ours] == foreign


@pytest.mark.parametrize(
    ("stats", "reason"),
    [
        ({"is_ready": True}, ""),
        ({"is_ready": "True"}, ""),
        ({"is_ready": 2}, ""),
        ({"is_ready": False}, "The run succeeded; $.stats.is_ready is not true yet"),
        ({"is_ready": "no"}, "The run succeeded; $.stats.is_ready is not true yet"),
        ({"is_ready": None}, "The run succeeded; $.stats.is_ready is not true yet"),
        ({}, "The run reported no value at $.stats.is_ready"),
    ],
)
def test_object_is_ready_only_if_the_value_of_the_path_is_true(stats: dict[str, Any], reason: str) -> None:
    assert unready_reason(parse_path("$.stats.is_ready"), {"stats": stats}) == reason


START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
START_TEXT = "2026-01-01T12:00:00Z"
SUCCESS_READINESS = ReconcileOutcome(counts=Counts(ok=2), completion="2026-01-01T12:00:00+00:00")
REQUEUE = replace(SUCCESS_READINESS, requests_requeue=True)
FAILURE_READINESS = ReconcileOutcome(failure="Task 'Boom': no")
FINAL = ReconcileOutcome(failure="Unable to parse reconcile period annotation", is_final=True)
ON = Readiness(is_on=True)
OFF = Readiness(is_on=False)
NEVER_RUN: Status = {"observedGeneration": -1}


def at(seconds: float = 0, generation: int = 1) -> ConditionContext:
    """Return the time so many seconds after the start, and the generation."""
    return ConditionContext(START + timedelta(seconds=seconds), generation)


def run(old: Status, stamp: ConditionContext, readiness: Readiness = ON) -> Status:
    """Return the status while a run is marked."""
    return readiness.while_running(old, running(old, stamp), stamp)


def pause(old: Status, stamp: ConditionContext, readiness: Readiness = ON) -> Status:
    """Return the status of a paused object."""
    return readiness.while_paused(old, paused(old, stamp), stamp)


def end(old: Status, outcome: ReconcileOutcome, stamp: ConditionContext, readiness: Readiness = ON) -> Status:
    """Return the status after a run."""
    return readiness.after_run(old, finished(old, outcome, stamp), outcome, stamp)


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


@pytest.mark.parametrize("old", [{}, NEVER_RUN], ids=["no status", "default of the CRD"])
def test_a_first_run_is_in_progress(old: Status) -> None:
    assert three(run(old, at())) == IN_PROGRESS


def test_a_success_is_ready() -> None:
    status = end(run({}, at()), SUCCESS_READINESS, at(1))
    assert three(status) == DONE
    assert condition_of(status, "Ready") == {
        "type": "Ready",
        "status": "True",
        "reason": "RunSucceeded",
        "message": "The last run succeeded",
        "lastTransitionTime": "2026-01-01T12:00:01Z",
        "observedGeneration": 1,
    }


def test_each_of_the_three_names_the_generation_and_the_others_do_not() -> None:
    status = end({}, SUCCESS_READINESS, at(generation=7))
    of = {item["type"]: item.get("observedGeneration") for item in status["conditions"]}
    assert of == {"Ready": 7, "Reconciling": 7, "Stalled": 7, "Running": None, "Successful": None, "Failure": None}


def test_an_edit_makes_an_object_unfinished_as_soon_as_its_run_begins() -> None:
    done = end({}, SUCCESS_READINESS, at(generation=1))
    status = run(done, at(generation=2))
    assert three(status) == IN_PROGRESS
    assert (condition_of(status, "Ready") or {})["observedGeneration"] == 2
    assert three(end(status, SUCCESS_READINESS, at(generation=2))) == DONE


@pytest.mark.parametrize(
    "before",
    [end({}, SUCCESS_READINESS, at()), end({}, FAILURE_READINESS, at()), end({}, FINAL, at()), end({}, REQUEUE, at())],
    ids=["ready", "retried", "stalled", "requeued"],
)
def test_a_run_of_an_unchanged_generation_leaves_the_three_as_they_are(before: Status) -> None:
    for kind in ("Ready", "Reconciling", "Stalled"):
        assert condition_of(run(before, at(9)), kind) == condition_of(before, kind)


def test_a_period_that_changed_nothing_is_no_news() -> None:
    done = end({}, SUCCESS_READINESS, at())
    assert not should_write(done, end(done, SUCCESS_READINESS, at(60)), at(60).now)


def test_a_failure_is_retried_and_says_why() -> None:
    status = end({}, FAILURE_READINESS, at())
    assert three(status) == RETRIED
    assert (condition_of(status, "Ready") or {})["message"] == "Task 'Boom': no"
    told = (condition_of(status, "Reconciling") or {})["message"]
    assert told == "The last run failed and is retried: Task 'Boom': no"


def test_failures_stall_an_object_once_retries_have_not_helped_for_long_enough() -> None:
    first = end({}, FAILURE_READINESS, at(0))
    soon = end(run(first, at(29)), FAILURE_READINESS, at(29))
    assert three(soon) == RETRIED
    late = end(run(soon, at(30)), FAILURE_READINESS, at(30))
    assert three(late) == STALLED
    assert (condition_of(late, "Stalled") or {})["message"] == "Task 'Boom': no"
    assert three(end(run(late, at(31)), FAILURE_READINESS, at(31))) == STALLED


def test_a_single_failure_does_not_stall_however_long_the_run_took() -> None:
    assert three(end(run({}, at(0)), FAILURE_READINESS, at(3600))) == RETRIED


def test_a_failure_after_a_long_success_is_retried_first() -> None:
    done = end({}, SUCCESS_READINESS, at(0))
    assert three(end(done, FAILURE_READINESS, at(3600))) == RETRIED


def test_stalled_after_nothing_means_from_the_first_failure_on() -> None:
    assert three(end({}, FAILURE_READINESS, at(), Readiness(is_on=True, stalled_after=timedelta(0)))) == STALLED


def test_what_only_another_spec_can_mend_stalls_at_once() -> None:
    assert three(end({}, FINAL, at())) == STALLED


def test_an_edit_ends_the_stall_and_its_time_begins_anew() -> None:
    stalled = end({}, FINAL, at(0, generation=1))
    edited = run(stalled, at(100, generation=2))
    assert three(edited) == IN_PROGRESS
    assert three(end(edited, FAILURE_READINESS, at(100, generation=2))) == RETRIED
    assert three(end(edited, SUCCESS_READINESS, at(100, generation=2))) == DONE


def test_an_unmarked_failure_of_a_new_generation_does_not_stall() -> None:
    old = end(end({}, FAILURE_READINESS, at(0)), FAILURE_READINESS, at(1))
    assert three(end(old, FAILURE_READINESS, at(100, generation=2))) == RETRIED


def test_a_retry_that_helps_ends_the_stall() -> None:
    stalled = end({}, FINAL, at())
    assert three(end(run(stalled, at(1)), SUCCESS_READINESS, at(2))) == DONE


def test_a_run_that_asks_for_another_one_is_not_the_last() -> None:
    status = end(run({}, at()), REQUEUE, at(1))
    assert three(status) == ("Unknown", "True", "False", "RunRequeued")
    assert not should_write(status, end(status, REQUEUE, at(2)), at(2).now)
    assert three(end(status, SUCCESS_READINESS, at(3))) == DONE


UNREADY = replace(SUCCESS_READINESS, unready="The run succeeded; $.stats.is_ready is not true yet")
READY_NOW = replace(SUCCESS_READINESS, unready="")


@pytest.mark.parametrize("requests_requeue", [False, True])
def test_object_that_is_not_ready_after_a_success_is_in_progress_until_it_is(*, requests_requeue: bool) -> None:
    status = end({}, replace(UNREADY, requests_requeue=requests_requeue), at())
    assert three(status) == ("False", "True", "False", "NotReadyYet")
    assert condition_of(status, "Successful") is not None
    assert three(run(status, at(1))) == ("False", "True", "False", "NotReadyYet")
    assert three(end(status, replace(READY_NOW, requests_requeue=requests_requeue), at(2))) == DONE


def test_object_that_becomes_unready_later_shows_it() -> None:
    assert three(end(end({}, READY_NOW, at()), UNREADY, at(1))) == ("False", "True", "False", "NotReadyYet")


def test_time_without_readiness_does_not_count_as_time_of_failures() -> None:
    unready = end({}, UNREADY, at(0))
    failing = end(unready, FAILURE_READINESS, at(600))
    assert three(end(failing, FAILURE_READINESS, at(601))) == RETRIED
    assert three(end(failing, FAILURE_READINESS, at(630))) == STALLED


def test_a_pause_before_the_first_run_is_not_finished() -> None:
    status = pause({}, at())
    assert three(status) == ("Unknown", "True", "False", "RunsPaused")
    assert three(run(status, at(1))) == IN_PROGRESS


@pytest.mark.parametrize("outcome", [SUCCESS_READINESS, FAILURE_READINESS, FINAL])
def test_a_pause_leaves_what_came_of_the_last_run(outcome: ReconcileOutcome) -> None:
    before = end({}, outcome, at())
    assert three(pause(before, at(1))) == three(before)


def test_an_edit_while_paused_is_not_written() -> None:
    resting = pause(end({}, SUCCESS_READINESS, at()), at(1))
    assert not should_write(resting, pause(resting, at(2, generation=2)), at(2).now)


def test_a_finished_object_that_never_had_the_three_stays_finished_while_it_runs() -> None:
    before = end({}, SUCCESS_READINESS, at(), OFF)
    assert condition_of(run(before, at(1)), "Reconciling") is None
    assert three(end(run(before, at(1)), SUCCESS_READINESS, at(2))) == DONE


def test_times_change_only_with_the_status() -> None:
    failing = end(end({}, FAILURE_READINESS, at(0)), ReconcileOutcome(failure="other"), at(5))
    assert (condition_of(failing, "Ready") or {})["lastTransitionTime"] == START_TEXT
    done = end(failing, SUCCESS_READINESS, at(9))
    assert (condition_of(done, "Ready") or {})["lastTransitionTime"] == "2026-01-01T12:00:09Z"
    assert (condition_of(done, "Stalled") or {})["lastTransitionTime"] == START_TEXT


def test_messages_are_cut_of_readiness() -> None:
    for outcome in (ReconcileOutcome(failure="é" * 5000), ReconcileOutcome(failure="é" * 5000, is_final=True)):
        assert all(
            len(item["message"].encode()) <= MESSAGE_LIMIT_BYTES for item in end({}, outcome, at())["conditions"]
        )


@pytest.mark.parametrize("kind", ["Ready", "Reconciling", "Stalled"])
@pytest.mark.parametrize("value", ["True", "False", "Unknown"])
def test_what_a_role_says_stands_while_it_runs_and_after_a_success(kind: str, value: str) -> None:
    said = role_says(end({}, SUCCESS_READINESS, at()), kind, value)
    for status in (run(said, at(1)), run(said, at(1, 2)), pause(said, at(1)), end(said, SUCCESS_READINESS, at(1))):
        assert condition_of(status, kind) == condition_of(said, kind)


def test_a_role_that_says_the_same_again_makes_no_write() -> None:
    said = end(role_says(end({}, SUCCESS_READINESS, at()), "Ready", "False"), SUCCESS_READINESS, at(1))
    assert not should_write(said, end(said, SUCCESS_READINESS, at(60)), at(60).now)


@pytest.mark.parametrize("value", ["True", "False"])
def test_a_role_and_the_operator_do_not_take_turns_in_writing(value: str) -> None:
    said = [{"type": "Ready", "status": value, "reason": "Mine", "message": "m"}]
    parameters = {"status": None, "conditions": said, "replace": False, "replace_lists": False}
    status: Status = {}
    versions = []
    for seconds in range(3):
        for generation in (1, 2):
            stamp = at(seconds, generation)
            status = merge_status(run(status, stamp), parameters, stamp.text)
            status = end(status, SUCCESS_READINESS, stamp)
            versions.append(condition_of(status, "Ready"))
    assert versions == [{**said[0], "lastTransitionTime": START_TEXT}] * 6


def test_a_role_that_says_ready_itself_may_ask_for_another_run() -> None:
    status = end(role_says({}, "Ready", "True"), REQUEUE, at())
    assert (condition_of(status, "Ready") or {})["reason"] == "Mine"
    assert (condition_of(status, "Reconciling") or {})["status"] == "False"


def test_a_failed_run_takes_back_the_ready_of_a_role_but_not_its_not_ready() -> None:
    lies, agrees = (end(role_says({}, "Ready", value), FAILURE_READINESS, at()) for value in ("True", "False"))
    assert (condition_of(lies, "Ready") or {})["reason"] == "RunFailed"
    assert (condition_of(agrees, "Ready") or {})["reason"] == "Mine"


def test_a_role_that_says_stalled_and_fails_is_stalled() -> None:
    status = end(role_says({}, "Stalled", "True"), FAILURE_READINESS, at())
    assert (condition_of(status, "Stalled") or {})["reason"] == "Mine"
    assert (condition_of(status, "Reconciling") or {})["status"] == "False"


def test_a_role_that_is_not_ready_stalls_only_when_its_run_has_failed_before() -> None:
    said = role_says(end({}, SUCCESS_READINESS, at()), "Ready", "False")
    first = end(said, FAILURE_READINESS, at(100))
    assert (condition_of(first, "Stalled") or {})["status"] == "False"
    assert (condition_of(end(first, FAILURE_READINESS, at(101)), "Stalled") or {})["status"] == "False"
    assert (condition_of(end(first, FAILURE_READINESS, at(130)), "Stalled") or {})["status"] == "True"


def test_a_generation_that_the_schema_drops_is_no_news_of_readiness() -> None:
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
def test_a_time_that_is_none_does_not_stall(since: object) -> None:
    failing = copy.deepcopy(end({}, FAILURE_READINESS, at()))
    next(item for item in failing["conditions"] if item["type"] == "Ready")["lastTransitionTime"] = since
    assert three(end(failing, FAILURE_READINESS, at(100))) == RETRIED


@pytest.mark.parametrize("outcome", [SUCCESS_READINESS, REQUEUE, FAILURE_READINESS])
def test_switched_off_the_status_is_that_of_the_go_runner(outcome: ReconcileOutcome) -> None:
    assert run({}, at(), OFF) == running({}, at())
    assert pause({}, at(), OFF) == paused({}, at())
    assert end({}, outcome, at(), OFF) == finished({}, outcome, at())


def test_switching_off_removes_what_the_operator_wrote_and_nothing_else() -> None:
    before = role_says(end({}, SUCCESS_READINESS, at()), "Stalled", "False")
    for status in (run(before, at(1), OFF), pause(before, at(1), OFF), end(before, SUCCESS_READINESS, at(1), OFF)):
        assert condition_of(status, "Ready") is condition_of(status, "Reconciling") is None
        assert condition_of(status, "Stalled") == condition_of(before, "Stalled")


@pytest.mark.parametrize("found", [None, "none", {"a": 1}])
def test_a_status_without_a_list_of_conditions_has_nothing_to_remove(found: object) -> None:
    assert without_ready_conditions({"conditions": found}) == {"conditions": found}


@pytest.mark.parametrize(
    ("keys", "default", "expected"),
    [
        ({}, True, Readiness(is_on=True, stalled_after=STALLED_AFTER)),
        ({}, False, Readiness(is_on=False)),
        ({"ready_conditions": False}, True, Readiness(is_on=False)),
        ({"ready_conditions": True}, False, Readiness(is_on=True)),
        ({"stalled_after_seconds": 0.0}, True, Readiness(is_on=True, stalled_after=timedelta(0))),
        ({"stalled_after_seconds": 90.0}, True, Readiness(is_on=True, stalled_after=timedelta(seconds=90))),
    ],
)
def test_the_watch_decides_before_the_flag(keys: dict[str, Any], default: bool, expected: Readiness) -> None:  # noqa: FBT001 - a case
    watch = Watch(THING, RoleContent(Path("roles/thing")), **keys)
    assert Readiness.of_watch(watch, default=default) == expected


@given(st.lists(st.tuples(st.sampled_from("srfqcp"), st.integers(0, 40), st.booleans()), max_size=12))
def test_whatever_happened_at_most_one_of_ready_reconciling_and_stalled_is_true(
    history: list[tuple[str, int, bool]],
) -> None:
    outcomes = {"s": SUCCESS_READINESS, "f": FAILURE_READINESS, "q": REQUEUE}
    status, seconds, generation = NEVER_RUN, 0, 1
    for step, pause_seconds, is_edited in history:
        seconds, generation = seconds + pause_seconds, generation + is_edited
        stamp = at(seconds, generation)
        if step in outcomes:
            status = end(status, outcomes[step], stamp)
        else:
            status = run(status, stamp) if step == "r" else pause(status, stamp)
        values = three(status)
        assert values[:3].count("True") == 1
        assert (values[0] == "True") == (values[3] == "RunSucceeded")


@given(STATUS, st.integers(0, 2**63), st.none() | st.text(), st.booleans())
def test_no_status_is_too_odd_of_readiness(old: Status, generation: int, failure: str | None, flag: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    stamp = at(5, generation)
    before = copy.deepcopy(old)
    outcome = ReconcileOutcome(failure, requests_requeue=flag, is_final=flag)
    for new in (run(old, stamp), pause(old, stamp), end(old, outcome, stamp)):
        assert not should_write(new, new, stamp.now)
        assert end(old, outcome, stamp, OFF) == without_ready_conditions(finished(old, outcome, stamp))
    assert old == before
