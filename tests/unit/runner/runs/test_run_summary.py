from collections.abc import Iterable
from typing import Any

import pytest

from rolecall.runner.runs.events import Counts, RunEvent, RunSummary
from rolecall.runner.runs.run_summary import Ending, RunSummaryBuilder
from tests.unit.runner.runs.raw_events import failed, recap, started

GOOD = Ending("successful", 0, 1.5)
BAD = Ending("failed", 2)


def fold(events: Iterable[RunEvent], ending: Ending) -> RunSummary:
    """Return the summary of a run from all its events at once."""
    builder = RunSummaryBuilder()
    for event in events:
        builder.add(event)
    return builder.finish(ending)


def printed(*lines: str) -> list[RunEvent]:
    return [RunEvent("verbose", stdout=line) for line in lines]


def messages(summary: RunSummary) -> list[str]:
    return [str(failure) for failure in summary.failures]


def test_a_play_without_failures_is_a_success() -> None:
    summary = fold([started("A"), recap(ok=3, changed=1, skipped=2)], GOOD)
    assert summary.is_successful
    assert (summary.failures, summary.message) == ((), "")
    assert summary.counts == Counts(ok=3, changed=1, skipped=2, failures=0)
    assert (summary.rc, summary.duration_seconds) == (0, 1.5)


def test_only_localhost_is_counted() -> None:
    assert fold([recap(ok={"web1": 5, "localhost": 1})], GOOD).counts.ok == 1


def test_a_failed_task_is_named_with_its_message() -> None:
    summary = fold([failed("Create pods", "forbidden"), recap(failures=1)], BAD)
    assert summary.status == "failed"
    assert messages(summary) == ["Task 'Create pods': forbidden"]


def test_an_ignored_failure_is_none() -> None:
    assert fold([failed("A", ignored=True), recap(ok=1)], GOOD).is_successful


def test_a_rescued_failure_is_none() -> None:
    assert fold([failed("A"), recap(ok=1, rescued=1)], GOOD).is_successful


def test_a_failure_after_a_rescue_stands_alone() -> None:
    summary = fold([failed("A", "inner"), failed("B", "real"), recap(failures=1, rescued=1)], BAD)
    assert messages(summary) == ["Task 'B': real"]


def test_rescues_are_told_apart_for_each_host() -> None:
    events = [failed("A", host="web1"), failed("A", host="web2"), recap(failures={"web1": 1}, rescued={"web2": 1})]
    assert [failure.host for failure in fold(events, BAD).failures] == ["web1"]


def test_without_a_recap_a_host_that_went_on_was_rescued() -> None:
    events = [failed("A"), RunEvent("runner_on_start", task="B", host="localhost"), failed("B", "real")]
    assert messages(fold(events, BAD)) == ["Task 'B': real"]


def test_of_a_loop_the_first_failed_item_is_quoted() -> None:
    items = [RunEvent("runner_item_on_failed", task_id="A", host="localhost", message=text) for text in ("one", "two")]
    summary = fold([*items, failed("A", "One or more items failed"), recap(failures=1)], BAD)
    assert messages(summary) == ["Task 'A': one"]


def test_a_failure_without_a_message_says_so() -> None:
    assert messages(fold([failed("A", ""), recap(failures=1)], BAD)) == ["Task 'A': failed without a message"]


def test_an_unreachable_host_is_a_failure() -> None:
    events = [RunEvent("runner_on_unreachable", task="A", host="web1", message="no route"), recap(dark={"web1": 1})]
    summary = fold(events, Ending("failed", 4))
    assert summary.unreachable
    assert messages(summary) == ["Task 'A' on web1: unreachable: no route"]


def test_an_unreachable_host_is_no_failure_for_those_who_rely_on_that() -> None:
    gone = RunEvent("runner_on_unreachable", task="A", host="web1", message="no route")
    folder = RunSummaryBuilder(unreachable_ok=True)
    for event in (gone, recap(ok=1, dark={"web1": 1})):
        folder.add(event)
    summary = folder.finish(Ending("failed", 4))
    assert summary.is_successful
    assert summary.unreachable
    assert summary.failures == ()


def test_a_failed_task_beside_an_unreachable_host_is_a_failure_all_the_same() -> None:
    gone = RunEvent("runner_on_unreachable", task="A", host="web1", message="no route")
    folder = RunSummaryBuilder(unreachable_ok=True)
    for event in (gone, failed("B"), recap(failures=1, dark={"web1": 1})):
        folder.add(event)
    assert messages(folder.finish(Ending("failed", 6))) == ["Task 'B': broken"]


def test_a_play_without_hosts_is_no_failure_for_those_who_rely_on_that() -> None:
    folder = RunSummaryBuilder(unreachable_ok=True)
    for event in (RunEvent("playbook_on_no_hosts_matched"), recap(processed={})):
        folder.add(event)
    assert folder.finish(GOOD).is_successful


@pytest.mark.parametrize(
    "ending", [Ending("failed", 1), Ending("canceled", reason="stopped"), Ending("timeout", reason="late")]
)
def test_a_play_that_ended_early_is_a_failure_whatever_is_said_of_unreachable_hosts(ending: Ending) -> None:
    folder = RunSummaryBuilder(unreachable_ok=True)
    folder.add(RunEvent("runner_on_unreachable", task="A", host="web1"))
    assert not folder.finish(ending).is_successful


def test_an_unreachable_host_that_the_play_ignores_is_none() -> None:
    events = [RunEvent("runner_on_unreachable", task="A", host="web1"), recap(ok=1, dark={})]
    assert fold(events, GOOD).is_successful


def test_a_play_that_did_nothing_for_want_of_hosts_failed() -> None:
    skipped = RunEvent("playbook_on_no_hosts_matched")
    assert "no host" in fold([skipped, recap(processed={})], GOOD).message
    assert fold([skipped, recap(processed=1)], GOOD).is_successful


def test_without_a_recap_the_printed_error_is_the_reason() -> None:
    lines = printed(
        "some header", "[ERROR]: YAML parsing failed: no comma", "Origin: /roles/a/tasks/main.yml:3:1", "", "3 x"
    )
    assert fold(lines, Ending("failed", 4)).message == "YAML parsing failed: no comma (/roles/a/tasks/main.yml:3:1)"


def test_an_error_of_several_lines_is_quoted_whole() -> None:
    lines = printed("[ERROR]: conflicting statements:", "  debug, command", "", "Origin: a.yml:3:7", "", "3 - debug:")
    assert fold(lines, Ending("failed", 4)).message == "conflicting statements: debug, command (a.yml:3:7)"


def test_the_older_form_of_errors_is_known() -> None:
    assert fold(printed("ERROR! no such role"), Ending("failed", 1)).message == "no such role"


def test_an_error_printed_for_an_ignored_task_is_not_the_reason() -> None:
    lines = printed("[ERROR]: first", "Origin: a:1:1", "[ERROR]: second", "Origin: b:2:2")
    assert fold(lines, Ending("failed", 1)).message == "second (b:2:2)"


def test_without_any_error_the_end_of_the_output_is_the_reason() -> None:
    message = fold(printed("a", "b", "c", "d"), Ending("failed", 127)).message
    assert message == "ansible-playbook ended with exit code 127: b | c | d"


def test_a_play_that_printed_nothing_says_so() -> None:
    assert fold([], Ending("failed", 1)).message == "ansible-playbook ended with exit code 1 and printed nothing"


def test_an_exit_code_of_success_without_a_recap_is_a_failure() -> None:
    assert fold([], Ending("successful", 0)).status == "failed"


def test_a_failing_exit_code_after_a_clean_recap_is_a_failure() -> None:
    assert "250" in fold([recap(ok=1)], Ending("failed", 250)).message


def test_a_timeout_names_the_task_that_was_running() -> None:
    summary = fold([started("A"), started("Wait for it")], Ending("timeout", reason="took longer than 5s"))
    assert summary.status == "timeout"
    assert messages(summary) == ["Task 'Wait for it': took longer than 5s"]


def test_the_stats_of_the_role_are_passed_on() -> None:
    assert fold([recap(stats={"pods": 3})], GOOD).stats == {"pods": 3}


@pytest.mark.parametrize(
    ("wish", "after", "at"),
    [
        ({"period": "1m30s"}, 90.0, None),
        ({"period": "250ms"}, 0.25, None),
        ({"at": 1700000000500}, None, 1700000000.5),
        ({"at": "1700000000500"}, None, 1700000000.5),
    ],
)
def test_a_wish_to_run_again_becomes_a_time(wish: dict[str, Any], after: float | None, at: float | None) -> None:
    summary = fold([RunEvent("runner_on_ok", requeue=wish), recap(ok=1)], GOOD)
    assert (summary.requeue_after_seconds, summary.requeue_at) == (after, at)
    assert summary.is_successful


def test_the_last_wish_wins_and_the_run_goes_on() -> None:
    events = [
        RunEvent("runner_on_ok", requeue={"period": "1s"}),
        RunEvent("runner_on_ok", requeue={"at": 2000}),
        recap(),
    ]
    summary = fold([*events[:2], failed("later"), recap(failures=1)], BAD)
    assert (summary.requeue_after_seconds, summary.requeue_at) == (None, 2.0)
    assert messages(summary) == ["Task 'later': broken"]


@pytest.mark.parametrize(
    "wish", [{"period": ""}, {"period": "5"}, {"period": None}, {"at": "soon"}, {"period": 5}, {"at": [1]}]
)
def test_a_wish_that_cannot_be_read_is_a_failure(wish: dict[str, Any]) -> None:
    summary = fold([RunEvent("runner_on_ok", task="Again", requeue=wish), recap(ok=1)], GOOD)
    assert summary.status == "failed"
    assert summary.message.startswith("Task 'Again': cannot tell when to run again: ")


def test_a_hidden_wish_is_a_failure_that_says_why() -> None:
    event = RunEvent("runner_on_ok", task="Again", censored=True, requeue={"period": None})
    assert "no_log" in fold([event, recap(ok=1)], GOOD).message


@pytest.mark.parametrize(
    ("created", "completion"),
    [
        ("2026-01-01T00:00:00.123456+00:00", "2026-01-01T00:00:00.123456+00:00"),
        ("2026-01-01T00:00:00.120000+00:00", "2026-01-01T00:00:00.12+00:00"),
        ("2026-01-01T00:00:00.123456789+00:00", "2026-01-01T00:00:00.12345678+00:00"),
        ("2026-01-01T00:00:00.000000+00:00", "2026-01-01T00:00:00+00:00"),
        ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"),
        ("", ""),
    ],
)
def test_completion_is_written_as_the_go_runner_does(created: str, completion: str) -> None:
    assert fold([recap(created=created)], GOOD).completion == completion


def test_the_tail_of_the_output_is_its_end() -> None:
    summary = fold([*printed(*(f"line {number}" for number in range(200))), recap()], GOOD)
    assert summary.stdout_tail.endswith("line 199")
    assert "line 100" not in summary.stdout_tail
