import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.runs.events import RunEvent, RunSummary, TaskFailure, cut, strip_colours


@given(st.text(), st.integers(min_value=3, max_value=50))
def test_a_cut_text_fits_and_ends_at_a_character(text: str, limit: int) -> None:
    assert len(cut(text, limit).encode()) <= limit


def test_a_text_that_fits_is_not_changed() -> None:
    assert cut("é" * 1024) == "é" * 1024


def test_a_longer_text_says_that_it_was_cut() -> None:
    assert cut("é" * 1025) == "é" * 1022 + "…"


def test_half_a_surrogate_pair_does_no_harm() -> None:
    assert cut("a\ud800b") == "a?b"


def test_colours_and_carriage_returns_are_removed() -> None:
    assert strip_colours("\x1b[0;31mred\x1b[0m\r\nplain") == "red\nplain"


def test_an_event_without_a_name_survives_the_way_through_a_pipe() -> None:
    assert RunEvent.from_json(RunEvent("", stdout="a line").to_json()) == RunEvent("", stdout="a line")


def test_an_event_survives_the_way_through_a_pipe() -> None:
    event = RunEvent(
        "runner_on_ok", task="Say", changed=True, requeue={"period": "3s"}, counts={"ok": {"localhost": 1}}
    )
    assert RunEvent.from_json(event.to_json()) == event


def test_an_event_is_one_line() -> None:
    assert "\n" not in RunEvent("verbose", stdout="a\nb").to_json()


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (TaskFailure("Create", "localhost", "no"), "Task 'Create': no"),
        (TaskFailure("Create", "web1", "no"), "Task 'Create' on web1: no"),
        (TaskFailure("", "", "syntax error"), "syntax error"),
    ],
)
def test_a_failure_names_task_and_host(failure: TaskFailure, text: str) -> None:
    assert str(failure) == text


def test_the_message_of_a_run_has_a_line_for_each_failure() -> None:
    summary = RunSummary("failed", failures=(TaskFailure("A", "", "x"), TaskFailure("B", "", "y")))
    assert summary.message == "Task 'A': x\nTask 'B': y"


def test_the_message_of_a_run_is_limited() -> None:
    summary = RunSummary("failed", failures=tuple(TaskFailure("A", "", "x" * 2000) for _ in range(5)))
    assert len(summary.message.encode()) == 2048
