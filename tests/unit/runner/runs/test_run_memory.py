import pytest

from rolecall.runner.runs.events import RunSummary, TaskFailure
from rolecall.runner.runs.memory import (
    explain_kernel_kill,
    explain_kill,
    explain_memory_limit,
    resolve_memory_limit,
)

LIMIT = 400 << 20
FAILURE = TaskFailure("Eat", "localhost", "non-zero return code 1: MemoryError")
OTHER = TaskFailure("Eat", "localhost", "Error rendering template.")


def failed(*failures: TaskFailure, peak_bytes: int = 0) -> RunSummary:
    return RunSummary("failed", failures=failures, peak_memory_bytes=peak_bytes)


@pytest.mark.parametrize(
    ("asked", "container", "limit"),
    [(None, None, 0), (None, 768 << 20, 384 << 20), (None, 300 << 20, 256 << 20), (0, 768 << 20, 0), (5, None, 5)],
)
def test_a_process_gets_half_of_the_container_unless_something_else_was_asked_for(
    asked: int | None, container: int | None, limit: int
) -> None:
    assert resolve_memory_limit(asked, container) == limit


@pytest.mark.parametrize(
    "said", ["MemoryError", "fatal error: runtime: out of memory", "[Errno 12] Cannot allocate memory"]
)
def test_a_failure_that_says_so_is_out_of_memory(said: str) -> None:
    found = explain_memory_limit(failed(OTHER, TaskFailure("Eat", "", said)), LIMIT)
    assert found.failures[0] == OTHER
    assert found.failures[1].message.startswith("out of memory: a process of the run needed more than 400Mi")
    assert said in found.failures[1].message


def test_a_failure_that_does_not_say_why_is_probably_out_of_memory_if_a_process_was_large() -> None:
    found = explain_memory_limit(failed(OTHER, peak_bytes=LIMIT * 9 // 10), LIMIT)
    assert found.message.startswith("Task 'Eat': probably out of memory: a process of the run had 360Mi and may have")
    assert "Error rendering template." in found.message


@pytest.mark.parametrize(
    ("summary", "limit"),
    [
        (failed(OTHER, peak_bytes=LIMIT // 4), LIMIT),
        (failed(TaskFailure("Eat", "", "no more coffee"), peak_bytes=LIMIT), LIMIT),
        (failed(FAILURE, peak_bytes=LIMIT), 0),
    ],
    ids=["small", "says why", "no limit"],
)
def test_any_other_end_stays_as_it_is(summary: RunSummary, limit: int) -> None:
    assert explain_memory_limit(summary, limit) == summary


def test_a_killed_run_is_told_why_and_in_which_task() -> None:
    gone = TaskFailure("Eat", "", "the process of the run ended unexpectedly with exit code -9")
    assert (
        explain_kill(failed(gone), "out of memory: it was killed").message == "Task 'Eat': out of memory: it was killed"
    )


def test_a_failure_while_the_kernel_killed_says_so() -> None:
    found = explain_kernel_kill(failed(OTHER), 768 << 20)
    assert found.message.startswith("Task 'Eat': probably out of memory: the 768Mi of the container were full")
