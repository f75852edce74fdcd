"""Builds events of runs for tests, as ansible-runner and `reading` make them."""

from typing import Any

from rolecall.runner.runs.events import RunEvent


def raw_event(name: str, result: dict[str, Any] | None = None, **data: Any) -> dict[str, Any]:
    """Return an event as ansible-runner hands it over."""
    base = {"task": "Do it", "task_action": "command", "task_uuid": "t1", "host": "localhost"}
    return {"event": name, "created": "2026-01-01T00:00:00+00:00", "event_data": base | data | {"res": result or {}}}


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
