import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rolecall.util.plugins.module_utils.status import merge_status
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.reconcile.status import (
    STALLED_AFTER,
    Readiness,
    ReconcileOutcome,
    Stamp,
    Status,
    condition_of,
    finished,
    paused,
    running,
    should_write,
    without_ours,
)
from rolecall.runner.runs.events import MESSAGE_LIMIT_BYTES, Counts
from tests.integration.things import THING
from tests.unit.json_values import STATUS

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
START_TEXT = "2026-01-01T12:00:00Z"
SUCCESS = ReconcileOutcome(counts=Counts(ok=2), completion="2026-01-01T12:00:00+00:00")
REQUEUE = replace(SUCCESS, requests_requeue=True)
FAILURE = ReconcileOutcome(failure="Task 'Boom': no")
FINAL = ReconcileOutcome(failure="Unable to parse reconcile period annotation", is_final=True)
ON = Readiness(is_on=True)
OFF = Readiness(is_on=False)
NEVER_RUN: Status = {"observedGeneration": -1}


def at(seconds: float = 0, generation: int = 1) -> Stamp:
    """Return the time so many seconds after the start, and the generation."""
    return Stamp(START + timedelta(seconds=seconds), generation)


def run(old: Status, stamp: Stamp, readiness: Readiness = ON) -> Status:
    """Return the status while a run is marked."""
    return readiness.while_running(old, running(old, stamp), stamp)


def pause(old: Status, stamp: Stamp, readiness: Readiness = ON) -> Status:
    """Return the status of a paused object."""
    return readiness.while_paused(old, paused(old, stamp), stamp)


def end(old: Status, outcome: ReconcileOutcome, stamp: Stamp, readiness: Readiness = ON) -> Status:
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
    status = end(run({}, at()), SUCCESS, at(1))
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
    status = end({}, SUCCESS, at(generation=7))
    of = {item["type"]: item.get("observedGeneration") for item in status["conditions"]}
    assert of == {"Ready": 7, "Reconciling": 7, "Stalled": 7, "Running": None, "Successful": None, "Failure": None}


def test_an_edit_makes_an_object_unfinished_as_soon_as_its_run_begins() -> None:
    done = end({}, SUCCESS, at(generation=1))
    status = run(done, at(generation=2))
    assert three(status) == IN_PROGRESS
    assert (condition_of(status, "Ready") or {})["observedGeneration"] == 2
    assert three(end(status, SUCCESS, at(generation=2))) == DONE


@pytest.mark.parametrize(
    "before",
    [end({}, SUCCESS, at()), end({}, FAILURE, at()), end({}, FINAL, at()), end({}, REQUEUE, at())],
    ids=["ready", "retried", "stalled", "requeued"],
)
def test_a_run_of_an_unchanged_generation_leaves_the_three_as_they_are(before: Status) -> None:
    for kind in ("Ready", "Reconciling", "Stalled"):
        assert condition_of(run(before, at(9)), kind) == condition_of(before, kind)


def test_a_period_that_changed_nothing_is_no_news() -> None:
    done = end({}, SUCCESS, at())
    assert not should_write(done, end(done, SUCCESS, at(60)), at(60).now)


def test_a_failure_is_retried_and_says_why() -> None:
    status = end({}, FAILURE, at())
    assert three(status) == RETRIED
    assert (condition_of(status, "Ready") or {})["message"] == "Task 'Boom': no"
    told = (condition_of(status, "Reconciling") or {})["message"]
    assert told == "The last run failed and is tried again: Task 'Boom': no"


def test_failures_stall_an_object_once_retries_have_not_helped_for_long_enough() -> None:
    first = end({}, FAILURE, at(0))
    soon = end(run(first, at(29)), FAILURE, at(29))
    assert three(soon) == RETRIED
    late = end(run(soon, at(30)), FAILURE, at(30))
    assert three(late) == STALLED
    assert (condition_of(late, "Stalled") or {})["message"] == "Task 'Boom': no"
    assert three(end(run(late, at(31)), FAILURE, at(31))) == STALLED


def test_a_single_failure_does_not_stall_however_long_the_run_took() -> None:
    assert three(end(run({}, at(0)), FAILURE, at(3600))) == RETRIED


def test_a_failure_after_a_long_success_is_retried_first() -> None:
    done = end({}, SUCCESS, at(0))
    assert three(end(done, FAILURE, at(3600))) == RETRIED


def test_stalled_after_nothing_means_from_the_first_failure_on() -> None:
    assert three(end({}, FAILURE, at(), Readiness(is_on=True, stalled_after=timedelta(0)))) == STALLED


def test_what_only_another_spec_can_mend_stalls_at_once() -> None:
    assert three(end({}, FINAL, at())) == STALLED


def test_an_edit_ends_the_stall_and_its_time_begins_anew() -> None:
    stalled = end({}, FINAL, at(0, generation=1))
    edited = run(stalled, at(100, generation=2))
    assert three(edited) == IN_PROGRESS
    assert three(end(edited, FAILURE, at(100, generation=2))) == RETRIED
    assert three(end(edited, SUCCESS, at(100, generation=2))) == DONE


def test_an_unmarked_failure_of_a_new_generation_does_not_stall() -> None:
    old = end(end({}, FAILURE, at(0)), FAILURE, at(1))
    assert three(end(old, FAILURE, at(100, generation=2))) == RETRIED


def test_a_retry_that_helps_ends_the_stall() -> None:
    stalled = end({}, FINAL, at())
    assert three(end(run(stalled, at(1)), SUCCESS, at(2))) == DONE


def test_a_run_that_asks_for_another_one_is_not_the_last() -> None:
    status = end(run({}, at()), REQUEUE, at(1))
    assert three(status) == ("Unknown", "True", "False", "RunRequeued")
    assert not should_write(status, end(status, REQUEUE, at(2)), at(2).now)
    assert three(end(status, SUCCESS, at(3))) == DONE


UNREADY = replace(SUCCESS, unready="The run succeeded; $.stats.is_ready is not true yet")
READY_NOW = replace(SUCCESS, unready="")


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
    failing = end(unready, FAILURE, at(600))
    assert three(end(failing, FAILURE, at(601))) == RETRIED
    assert three(end(failing, FAILURE, at(630))) == STALLED


def test_a_pause_before_the_first_run_is_not_finished() -> None:
    status = pause({}, at())
    assert three(status) == ("Unknown", "True", "False", "RunsPaused")
    assert three(run(status, at(1))) == IN_PROGRESS


@pytest.mark.parametrize("outcome", [SUCCESS, FAILURE, FINAL])
def test_a_pause_leaves_what_came_of_the_last_run(outcome: ReconcileOutcome) -> None:
    before = end({}, outcome, at())
    assert three(pause(before, at(1))) == three(before)


def test_an_edit_while_paused_is_not_written() -> None:
    resting = pause(end({}, SUCCESS, at()), at(1))
    assert not should_write(resting, pause(resting, at(2, generation=2)), at(2).now)


def test_a_finished_object_that_never_had_the_three_stays_finished_while_it_runs() -> None:
    before = end({}, SUCCESS, at(), OFF)
    assert condition_of(run(before, at(1)), "Reconciling") is None
    assert three(end(run(before, at(1)), SUCCESS, at(2))) == DONE


def test_times_change_only_with_the_status() -> None:
    failing = end(end({}, FAILURE, at(0)), ReconcileOutcome(failure="other"), at(5))
    assert (condition_of(failing, "Ready") or {})["lastTransitionTime"] == START_TEXT
    done = end(failing, SUCCESS, at(9))
    assert (condition_of(done, "Ready") or {})["lastTransitionTime"] == "2026-01-01T12:00:09Z"
    assert (condition_of(done, "Stalled") or {})["lastTransitionTime"] == START_TEXT


def test_messages_are_cut() -> None:
    for outcome in (ReconcileOutcome(failure="é" * 5000), ReconcileOutcome(failure="é" * 5000, is_final=True)):
        assert all(
            len(item["message"].encode()) <= MESSAGE_LIMIT_BYTES for item in end({}, outcome, at())["conditions"]
        )


@pytest.mark.parametrize("kind", ["Ready", "Reconciling", "Stalled"])
@pytest.mark.parametrize("value", ["True", "False", "Unknown"])
def test_what_a_role_says_stands_while_it_runs_and_after_a_success(kind: str, value: str) -> None:
    said = role_says(end({}, SUCCESS, at()), kind, value)
    for status in (run(said, at(1)), run(said, at(1, 2)), pause(said, at(1)), end(said, SUCCESS, at(1))):
        assert condition_of(status, kind) == condition_of(said, kind)


def test_a_role_that_says_the_same_again_makes_no_write() -> None:
    said = end(role_says(end({}, SUCCESS, at()), "Ready", "False"), SUCCESS, at(1))
    assert not should_write(said, end(said, SUCCESS, at(60)), at(60).now)


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
            status = end(status, SUCCESS, stamp)
            versions.append(condition_of(status, "Ready"))
    assert versions == [{**said[0], "lastTransitionTime": START_TEXT}] * 6


def test_a_role_that_says_ready_itself_may_ask_for_another_run() -> None:
    status = end(role_says({}, "Ready", "True"), REQUEUE, at())
    assert (condition_of(status, "Ready") or {})["reason"] == "Mine"
    assert (condition_of(status, "Reconciling") or {})["status"] == "False"


def test_a_failed_run_takes_back_the_ready_of_a_role_but_not_its_not_ready() -> None:
    lies, agrees = (end(role_says({}, "Ready", value), FAILURE, at()) for value in ("True", "False"))
    assert (condition_of(lies, "Ready") or {})["reason"] == "RunFailed"
    assert (condition_of(agrees, "Ready") or {})["reason"] == "Mine"


def test_a_role_that_says_stalled_and_fails_is_stalled() -> None:
    status = end(role_says({}, "Stalled", "True"), FAILURE, at())
    assert (condition_of(status, "Stalled") or {})["reason"] == "Mine"
    assert (condition_of(status, "Reconciling") or {})["status"] == "False"


def test_a_role_that_is_not_ready_stalls_only_when_its_run_has_failed_before() -> None:
    said = role_says(end({}, SUCCESS, at()), "Ready", "False")
    first = end(said, FAILURE, at(100))
    assert (condition_of(first, "Stalled") or {})["status"] == "False"
    assert (condition_of(end(first, FAILURE, at(101)), "Stalled") or {})["status"] == "False"
    assert (condition_of(end(first, FAILURE, at(130)), "Stalled") or {})["status"] == "True"


def test_a_generation_that_the_schema_drops_is_no_news() -> None:
    done = end({}, SUCCESS, at())
    pruned = {
        "conditions": [
            {key: value for key, value in item.items() if key != "observedGeneration"} for item in done["conditions"]
        ]
    }
    assert not should_write(pruned, end(pruned, SUCCESS, at(60)), at(60).now)
    assert three(run(pruned, at(60, generation=2))) == DONE  # nothing tells that this is another generation
    assert three(end(end(pruned, FAILURE, at(0)), FAILURE, at(60))) == STALLED


@pytest.mark.parametrize("since", [None, 5, "yesterday"])
def test_a_time_that_is_none_does_not_stall(since: object) -> None:
    failing = copy.deepcopy(end({}, FAILURE, at()))
    next(item for item in failing["conditions"] if item["type"] == "Ready")["lastTransitionTime"] = since
    assert three(end(failing, FAILURE, at(100))) == RETRIED


@pytest.mark.parametrize("outcome", [SUCCESS, REQUEUE, FAILURE])
def test_switched_off_the_status_is_that_of_the_go_runner(outcome: ReconcileOutcome) -> None:
    assert run({}, at(), OFF) == running({}, at())
    assert pause({}, at(), OFF) == paused({}, at())
    assert end({}, outcome, at(), OFF) == finished({}, outcome, at())


def test_switching_off_removes_what_the_operator_wrote_and_nothing_else() -> None:
    before = role_says(end({}, SUCCESS, at()), "Stalled", "False")
    for status in (run(before, at(1), OFF), pause(before, at(1), OFF), end(before, SUCCESS, at(1), OFF)):
        assert condition_of(status, "Ready") is condition_of(status, "Reconciling") is None
        assert condition_of(status, "Stalled") == condition_of(before, "Stalled")


@pytest.mark.parametrize("found", [None, "none", {"a": 1}])
def test_a_status_without_a_list_of_conditions_has_nothing_to_remove(found: object) -> None:
    assert without_ours({"conditions": found}) == {"conditions": found}


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
    outcomes = {"s": SUCCESS, "f": FAILURE, "q": REQUEUE}
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
def test_no_status_is_too_odd(old: Status, generation: int, failure: str | None, flag: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    stamp = at(5, generation)
    before = copy.deepcopy(old)
    outcome = ReconcileOutcome(failure, requests_requeue=flag, is_final=flag)
    for new in (run(old, stamp), pause(old, stamp), end(old, outcome, stamp)):
        assert not should_write(new, new, stamp.now)
        assert end(old, outcome, stamp, OFF) == without_ours(finished(old, outcome, stamp))
    assert old == before
