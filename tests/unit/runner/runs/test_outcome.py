from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import (
    Counts,
    MemoryKill,
    Outcome,
    OutcomeBuilder,
    Status,
    TaskFailure,
    explain_memory,
)

GOOD = Outcome("successful", 0, duration_seconds=1.5)
BAD = Outcome("failed", 2)
UNREACHABLE = RunEvent("runner_on_unreachable", task="A", host="web1", message="no route")
NO_HOSTS = RunEvent("playbook_on_no_hosts_matched")


def failed(task: str, message: str = "broken", host: str = "localhost", **fields: Any) -> RunEvent:
    """Return the failure of a task."""
    return RunEvent("runner_on_failed", task=task, task_id=task, host=host, message=message, **fields)


def started(task: str) -> RunEvent:
    """Return the start of a task."""
    return RunEvent("playbook_on_task_start", task=task, task_id=task)


def recap(created: str = "2026-01-01T00:00:00.5+00:00", stats: dict[str, Any] | None = None, **counts: Any) -> RunEvent:
    """Return the recap of a play; counts are host to number, or a number for localhost."""
    by_host = {name: {"localhost": count} if isinstance(count, int) else count for name, count in counts.items()}
    return RunEvent("playbook_on_stats", created=created, counts=by_host, stats=stats or {})


def printed(*lines: str) -> list[RunEvent]:
    return [RunEvent("verbose", stdout=line) for line in lines]


def outcome_of(events: Iterable[RunEvent], ending: Outcome, *, unreachable_ok: bool = False) -> Outcome:
    """Return the outcome of a run from all its events."""
    builder = OutcomeBuilder(unreachable_ok=unreachable_ok)
    for event in events:
        builder.add(event)
    return builder.finish(ending)


def messages(outcome: Outcome) -> list[str]:
    return [str(failure) for failure in outcome.failures]


def test_play_without_failures_is_successful() -> None:
    outcome = outcome_of([started("A"), recap(ok=3, changed=1, skipped=2, stats={"pods": 3})], GOOD)
    assert outcome.is_successful
    assert (outcome.failures, outcome.message, outcome.stats) == ((), "", {"pods": 3})
    assert outcome.counts == Counts(ok=3, changed=1, skipped=2, failures=0)
    assert (outcome.rc, outcome.duration_seconds) == (0, 1.5)


def test_message_of_a_run_has_a_line_for_each_failure() -> None:
    outcome = Outcome("failed", failures=(TaskFailure("A", "", "x"), TaskFailure("B", "", "y")))
    assert outcome.message == "Task 'A': x\nTask 'B': y"


def test_only_localhost_is_counted() -> None:
    assert outcome_of([recap(ok={"web1": 5, "localhost": 1})], GOOD).counts.ok == 1


LOOP = [RunEvent("runner_item_on_failed", task_id="A", host="localhost", message=text) for text in ("one", "two")]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([failed("Create pods", "forbidden"), recap(failures=1)], "Task 'Create pods': forbidden"),
        ([failed("A", "inner"), failed("B", "real"), recap(failures=1, rescued=1)], "Task 'B': real"),
        ([failed("A"), RunEvent("runner_on_start", task="B", host="localhost"), failed("B", "real")], "Task 'B': real"),
        ([*LOOP, failed("A", "One or more items failed"), recap(failures=1)], "Task 'A': one"),
        ([failed("A", ""), recap(failures=1)], "Task 'A': failed without a message"),
        (
            [failed("A", host="web1"), failed("A", host="web2"), recap(failures={"web1": 1}, rescued={"web2": 1})],
            "Task 'A' on web1: broken",
        ),
    ],
    ids=["task", "after a rescue", "rescued without a recap", "loop", "no message", "rescued on one host"],
)
def test_unrescued_failure_is_reported(events: list[RunEvent], expected: str) -> None:
    outcome = outcome_of(events, BAD)
    assert outcome.status == "failed"
    assert messages(outcome) == [expected]


@pytest.mark.parametrize(
    "events",
    [
        [failed("A", ignored=True), recap(ok=1)],
        [failed("A"), recap(ok=1, rescued=1)],
        [UNREACHABLE, recap(ok=1, dark={})],
    ],
    ids=["ignored", "rescued", "ignored unreachable host"],
)
def test_tolerated_failure_does_not_count(events: list[RunEvent]) -> None:
    assert outcome_of(events, GOOD).is_successful


def test_files_of_all_tasks_and_handlers_are_known() -> None:
    events = [
        RunEvent(name, task="A", task_path=f"/roles/{path}:{line}")
        for name, path, line in (
            ("playbook_on_task_start", "a.yml", 1),
            ("playbook_on_task_start", "a.yml", 9),
            ("playbook_on_handler_task_start", "b:c.yml", 3),
        )
    ]
    found = outcome_of([*events, RunEvent("playbook_on_task_start", task="B"), recap(ok=1)], GOOD)
    assert found.task_files == ("/roles/a.yml", "/roles/b:c.yml")


def test_unreachable_host_is_a_failure() -> None:
    outcome = outcome_of([UNREACHABLE, recap(dark={"web1": 1})], Outcome("failed", 4))
    assert messages(outcome) == ["Task 'A' on web1: unreachable: no route"]


def test_unreachable_host_is_tolerated_with_unreachable_ok() -> None:
    outcome = outcome_of([UNREACHABLE, recap(ok=1, dark={"web1": 1})], Outcome("failed", 4), unreachable_ok=True)
    assert outcome.is_successful
    assert outcome.failures == ()


def test_play_without_hosts_is_a_failure_unless_tolerated() -> None:
    assert "no host" in outcome_of([NO_HOSTS, recap(processed={})], GOOD).message
    assert outcome_of([NO_HOSTS, recap(processed=1)], GOOD).is_successful
    assert outcome_of([NO_HOSTS, recap(processed={})], GOOD, unreachable_ok=True).is_successful


@pytest.mark.parametrize(
    ("lines", "rc", "message"),
    [
        (
            ["header", "[ERROR]: YAML parsing failed: no comma", "Origin: /roles/a/tasks/main.yml:3:1", "", "3 x"],
            4,
            "YAML parsing failed: no comma (/roles/a/tasks/main.yml:3:1)",
        ),
        (
            ["[ERROR]: conflicting statements:", "  debug, command", "", "Origin: a.yml:3:7", "", "3 - debug:"],
            4,
            "conflicting statements: debug, command (a.yml:3:7)",
        ),
        (["ERROR! no such role"], 1, "no such role"),
        (["[ERROR]: first", "Origin: a:1:1", "[ERROR]: second", "Origin: b:2:2"], 1, "second (b:2:2)"),
        (["a", "b", "c", "d"], 127, "ansible-playbook ended with exit code 127: b | c | d"),
        ([], 1, "ansible-playbook ended with exit code 1 and printed nothing"),
    ],
    ids=["with position", "several lines", "older form", "last of several", "no error", "no output"],
)
def test_printed_error_is_the_reason_without_a_recap(lines: list[str], rc: int, message: str) -> None:
    assert outcome_of(printed(*lines), Outcome("failed", rc)).message == message


def test_successful_exit_without_a_recap_is_a_failure() -> None:
    assert outcome_of([], Outcome("successful", 0)).status == "failed"


def test_failing_exit_after_a_clean_recap_is_a_failure() -> None:
    assert "250" in outcome_of([recap(ok=1)], Outcome("failed", 250)).message


def test_run_that_succeeded_before_its_limit_was_not_ended_by_it() -> None:
    assert outcome_of([recap()], Outcome("successful", 0, limit="disk")).limit == ""


def test_timeout_names_the_running_task() -> None:
    outcome = outcome_of([started("A"), started("Wait for it")], Outcome.of_failure("took longer than 5s", "timeout"))
    assert outcome.status == "timeout"
    assert messages(outcome) == ["Task 'Wait for it': took longer than 5s"]


@pytest.mark.parametrize(
    ("request_", "after", "at"),
    [
        ({"period": "1m30s"}, 90.0, None),
        ({"period": "250ms"}, 0.25, None),
        ({"at": 1700000000500}, None, 1700000000.5),
        ({"at": "1700000000500"}, None, 1700000000.5),
    ],
)
def test_requeue_request_becomes_a_time(request_: dict[str, Any], after: float | None, at: float | None) -> None:
    outcome = outcome_of([RunEvent("runner_on_ok", requeue=request_), recap(ok=1)], GOOD)
    assert (outcome.requeue_after_seconds, outcome.requeue_at) == (after, at)
    assert outcome.is_successful


def test_last_requeue_request_wins_and_the_run_continues() -> None:
    events = [RunEvent("runner_on_ok", requeue=each) for each in ({"period": "1s"}, {"at": 2000})]
    outcome = outcome_of([*events, failed("later"), recap(failures=1)], BAD)
    assert (outcome.requeue_after_seconds, outcome.requeue_at) == (None, 2.0)
    assert messages(outcome) == ["Task 'later': broken"]


@pytest.mark.parametrize(
    "request_", [{"period": ""}, {"period": "5"}, {"period": None}, {"at": "soon"}, {"period": 5}, {"at": [1]}]
)
def test_invalid_requeue_request_is_a_failure(request_: dict[str, Any]) -> None:
    outcome = outcome_of([RunEvent("runner_on_ok", task="Again", requeue=request_), recap(ok=1)], GOOD)
    assert outcome.status == "failed"
    assert outcome.message.startswith("Task 'Again': invalid requeue time: ")


def test_hidden_requeue_request_is_a_failure_with_its_reason() -> None:
    event = RunEvent("runner_on_ok", task="Again", censored=True, requeue={"period": None})
    assert "no_log" in outcome_of([event, recap(ok=1)], GOOD).message


def test_background_job_without_an_end_is_a_doubt() -> None:
    began = RunEvent("runner_on_ok", task="Begin", job="1.2")
    ended = RunEvent("runner_on_ok", task="Wait", job="1.2", job_ended=True)
    other = RunEvent("runner_on_ok", task="Wait", job="3.4", job_ended=True)
    assert outcome_of([began, other, recap(ok=2)], GOOD).doubts == ("the background job of task 'Begin' had not ended",)
    assert outcome_of([began, ended, recap(ok=2)], GOOD).doubts == ()


def test_task_that_bypasses_the_credentials_of_the_run_is_a_doubt() -> None:
    event = RunEvent("runner_on_ok", task="Look", bypass="host")
    [doubt] = outcome_of([event, recap(ok=1)], GOOD).doubts
    assert doubt == "task 'Look' bypasses the credentials of the run with host"


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
def test_completion_has_the_format_of_the_go_runner(created: str, completion: str) -> None:
    assert outcome_of([recap(created=created)], GOOD).completion == completion


def test_failure_names_the_finalizer() -> None:
    outcome = Outcome.of_failure("no more coffee")
    assert outcome.failure == "no more coffee"
    assert replace(outcome, finalizer="a/b").failure == "Finalizer a/b: no more coffee"
    assert Outcome("failed").failure == "the run failed without a message"


@pytest.mark.parametrize("status", ["successful", "unknown"])
def test_success_and_missing_run_are_no_failure(status: Status) -> None:
    assert Outcome(status, finalizer="a/b").failure is None


@pytest.mark.parametrize(
    ("change", "is_found"),
    [({}, True), ({"api_version": "a.dev/v2"}, True), ({"api_version": "b.dev/v1"}, False), ({"name": "two"}, False)],
)
def test_conditions_of_an_object_are_those_of_its_group_and_name(change: dict[str, str], *, is_found: bool) -> None:
    condition = {"type": "Ready", "status": "True", "reason": "Mine"}
    target = {"api_version": "a.dev/v1", "kind": "Thing", "namespace": "default", "name": "one"}
    outcome = Outcome("successful", written=({**target, **change, "conditions": [condition]},))
    obj = {"apiVersion": "a.dev/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": "one"}}
    assert outcome.conditions_of(obj) == ((condition,) if is_found else ())


LIMIT = 400 << 20
OTHER = TaskFailure("Eat", "localhost", "Error rendering template.")


def failure(*failures: TaskFailure, peak_bytes: int = 0) -> Outcome:
    return Outcome("failed", failures=failures, peak_memory_bytes=peak_bytes)


@pytest.mark.parametrize(
    "reported", ["MemoryError", "fatal error: runtime: out of memory", "[Errno 12] Cannot allocate memory"]
)
def test_failure_that_reports_memory_is_out_of_memory(reported: str) -> None:
    found = explain_memory(failure(OTHER, TaskFailure("Eat", "", reported)), LIMIT, None)
    assert found.failures[0] == OTHER
    assert found.failures[1].message.startswith("out of memory: a process of the run needed more than 400Mi")
    assert reported in found.failures[1].message
    assert found.limit == "memory"


def test_failure_of_a_large_process_without_a_reason_is_probably_out_of_memory() -> None:
    found = explain_memory(failure(OTHER, peak_bytes=LIMIT * 9 // 10), LIMIT, None)
    assert found.message.startswith("Task 'Eat': probably out of memory: a process of the run had 360Mi and may have")
    assert "Error rendering template." in found.message


@pytest.mark.parametrize(
    ("outcome", "limit", "kill"),
    [
        (failure(OTHER, peak_bytes=LIMIT // 4), LIMIT, None),
        (failure(TaskFailure("Eat", "", "no more coffee"), peak_bytes=LIMIT), LIMIT, None),
        (failure(TaskFailure("Eat", "", "MemoryError"), peak_bytes=LIMIT), 0, None),
        (Outcome("successful", peak_memory_bytes=LIMIT), LIMIT, None),
        (Outcome("successful", peak_memory_bytes=LIMIT), LIMIT, MemoryKill("killed")),
        (Outcome("successful", peak_memory_bytes=LIMIT), LIMIT, MemoryKill("killed", by_kernel=True)),
    ],
    ids=["small", "other reason", "no limit", "success", "success before a kill", "success in a full container"],
)
def test_other_outcome_is_unchanged(outcome: Outcome, limit: int, kill: MemoryKill | None) -> None:
    assert explain_memory(outcome, limit, kill) == outcome


def test_kill_replaces_other_failures_except_for_the_task() -> None:
    consequence = TaskFailure("Eat", "", "the process of the run ended unexpectedly with exit code -9")
    found = explain_memory(failure(OTHER, consequence), LIMIT, MemoryKill("killed"))
    assert (found.message, found.limit) == ("Task 'Eat': killed", "memory")


def test_kernel_kill_is_put_before_the_last_failure() -> None:
    found = explain_memory(failure(OTHER), LIMIT, MemoryKill("probably killed", by_kernel=True))
    assert found.message == "Task 'Eat': probably killed: Error rendering template."
