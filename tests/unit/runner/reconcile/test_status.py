import copy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.jsonpath import parse_path
from rolecall.runner.reconcile.status import (
    ReconcileOutcome,
    Stamp,
    Status,
    condition_of,
    finished,
    map_result,
    paused,
    running,
    should_mark_running,
    should_write,
    unready_reason,
)
from rolecall.runner.runs.events import MESSAGE_LIMIT_BYTES, Counts
from tests.unit.json_values import JSON, STATUS

EARLIER = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NOW = EARLIER + timedelta(minutes=1)
STAMP = Stamp(NOW, generation=3)
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
        {}, ReconcileOutcome(counts=Counts(ok=2, changed=1), completion=completion, **outcome), Stamp(at, 3)
    )


def test_times_are_written_in_whole_seconds_of_utc() -> None:
    local = datetime(2026, 1, 1, 14, 1, 0, 999, tzinfo=timezone(timedelta(hours=2)))
    assert Stamp(local, 1).text == NOW_TEXT


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
    failure = conditions(finished(finished({}, FAILURE, Stamp(EARLIER, 3)), SUCCESS, STAMP))["Failure"]
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
    status = finished(finished({}, FAILURE, Stamp(EARLIER, 3)), ReconcileOutcome(failure="something else"), STAMP)
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
    old = finished(succeeded(), FAILURE, Stamp(EARLIER, 3))
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
    new = conditions(finished(running(succeeded(), Stamp(EARLIER, 3)), SUCCESS, STAMP))
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
    assert "observedGeneration" not in finished({}, SUCCESS, Stamp(NOW, 0))


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
        succeeded(long_ago), ReconcileOutcome("no", Counts(failures=1), EARLIER.isoformat()), Stamp(EARLIER, 3)
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
        finished(succeeded(), SUCCESS, Stamp(NOW, 4)),
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
    assert not should_write(status, paused(status, Stamp(NOW + timedelta(hours=1), 3)), NOW + timedelta(hours=1))


def test_a_pause_that_is_over_leaves_no_condition() -> None:
    status = paused(succeeded(), STAMP)
    assert should_mark_running(status, 3)
    assert "Paused" not in conditions(running(status, STAMP))
    assert "Paused" not in conditions(finished(status, SUCCESS, STAMP))


@given(STATUS, st.dictionaries(st.text(), JSON, max_size=2), st.none() | st.text(), st.integers(0, 2**63))
def test_no_status_is_too_odd(old: Status, mapped: Status, failure: str | None, generation: int) -> None:
    stamp = Stamp(NOW, generation)
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
