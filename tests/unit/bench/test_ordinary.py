"""The time of a task is what passes until the next one starts."""

from typing import Any

from bench.ordinary import TaskTime, task_times


def event(counter: int, name: str, seconds: float, task: str = "") -> dict[str, Any]:
    """Return an event of ansible-runner."""
    created = f"2026-01-01T00:00:{seconds:09.6f}"
    return {"counter": counter, "event": name, "created": created, "event_data": {"name": task}}


def test_a_task_takes_until_the_next_one_starts_and_a_loop_is_divided_by_its_items() -> None:
    events = [
        event(1, "playbook_on_play_start", 0.5),
        event(2, "playbook_on_task_start", 1, "ordinary : compute the names"),
        event(3, "runner_on_ok", 1.005),
        event(4, "playbook_on_task_start", 1.01, "ordinary : loop of k8s"),
        event(5, "runner_item_on_ok", 1.02),
        event(6, "runner_item_on_ok", 1.03),
        event(7, "runner_on_ok", 1.04),
        event(10, "playbook_on_stats", 1.05),
    ]
    found = [TaskTime(each.kind, round(each.milliseconds, 3)) for each in task_times([*reversed(events)])]
    assert found == [TaskTime("compute", 10.0), TaskTime("loop", 20.0)]
