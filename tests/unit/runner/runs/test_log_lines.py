import pytest

from rolecall.runner.runs.events import HIDDEN, RunEvent
from rolecall.runner.runs.launcher import LogEvents, LogLine, log_line

TASKS = LogEvents.TASKS


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            RunEvent("playbook_on_task_start", task="A", action="k8s"),
            ("info", "Task started", {"task": "A", "action": "k8s"}),
        ),
        (
            RunEvent("playbook_on_task_start", task="A", full_name="thing : A", action="k8s"),
            ("info", "Task started", {"task": "A", "full_name": "thing : A", "action": "k8s"}),
        ),
        (
            RunEvent("runner_on_ok", task="A", action="debug", host="h", message="hi"),
            ("info", "Task said", {"task": "A", "host": "h", "said": "hi"}),
        ),
        (
            RunEvent("runner_item_on_ok", task="A", item="x", changed=True),
            ("info", "Item done", {"task": "A", "item": "x", "changed": True}),
        ),
        (
            RunEvent("runner_item_on_failed", task="A", item="x", message="no"),
            ("error", "Item failed", {"task": "A", "item": "x", "reason": "no"}),
        ),
        (
            RunEvent("runner_on_failed", task="A", message="no", task_path="p:1"),
            ("error", "Task failed", {"task": "A", "reason": "no", "path": "p:1"}),
        ),
        (
            RunEvent("runner_on_failed", task="A", message="no", ignored=True),
            ("info", "Task failed (ignored)", {"task": "A", "reason": "no"}),
        ),
        (
            RunEvent("runner_on_unreachable", task="A", host="h", message="no"),
            ("error", "Host unreachable", {"task": "A", "host": "h", "reason": "no"}),
        ),
    ],
)
def test_tasks_are_logged(event: RunEvent, line: tuple[str, str, dict[str, object]]) -> None:
    assert log_line(event, TASKS) == LogLine(*line)


@pytest.mark.parametrize(
    "event",
    [
        RunEvent("verbose", stdout="x"),
        RunEvent("runner_on_ok", task="A", action="k8s"),
        RunEvent("runner_on_ok", task="A", action="debug"),
        RunEvent("playbook_on_task_start", task="A", action="ansible.builtin.set_fact"),
    ],
)
def test_other_events_are_not_logged(event: RunEvent) -> None:
    assert log_line(event, TASKS) is None


@pytest.mark.parametrize("wanted", LogEvents)
def test_the_recap_is_always_logged(wanted: LogEvents) -> None:
    line = log_line(RunEvent("playbook_on_stats", stdout="ok=1"), wanted)
    assert line == LogLine("info", "Recap", {"stdout": "ok=1"})


def test_nothing_logs_nothing_of_tasks() -> None:
    assert log_line(RunEvent("runner_on_failed", task="A"), LogEvents.NOTHING) is None


def test_output_logs_what_tasks_print_and_nothing_else() -> None:
    event = RunEvent("runner_on_ok", task="A", stdout="ok: [localhost]", message="fine")
    fields = {"event_type": "runner_on_ok", "task": "A", "stdout": "ok: [localhost]"}
    assert log_line(event, LogEvents.OUTPUT) == LogLine("info", "Ansible event", fields)
    assert log_line(RunEvent("runner_on_start", task="A"), LogEvents.OUTPUT) is None
    assert log_line(RunEvent("verbose", stdout="Using ansible.cfg"), LogEvents.OUTPUT) is None


def test_everything_logs_each_event_with_its_output() -> None:
    line = log_line(RunEvent("verbose", stdout="config file = None"), LogEvents.EVERYTHING)
    assert line == LogLine("info", "Ansible event", {"event_type": "verbose", "stdout": "config file = None"})


def test_a_hidden_result_stays_hidden() -> None:
    line = log_line(RunEvent("runner_on_failed", task="A", message=HIDDEN, censored=True), TASKS)
    assert line is not None
    assert line.fields["reason"] == HIDDEN
