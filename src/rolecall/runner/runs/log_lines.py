"""Which events of a run become log lines, and what the lines say: ``--ansible-log-events``.

A line is a level, a constant message and fields; the caller adds the object and the run. Arguments of tasks never
appear, and neither does anything of a result that ``no_log`` hides. The recap at the end of a play is always logged.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rolecall.runner.runs.event_parser import DEBUG_ACTIONS
from rolecall.runner.runs.events import RunEvent

_QUIET_ACTIONS = DEBUG_ACTIONS | {"set_fact", "ansible.builtin.set_fact", "ansible.legacy.set_fact"}


class LogEvents(StrEnum):
    """How much of a run is logged; with OUTPUT it is what each task prints instead of its result."""

    NOTHING = "nothing"
    TASKS = "tasks"
    OUTPUT = "output"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log line: ``level`` is info or error; fields without a value are left out."""

    level: str
    message: str
    fields: dict[str, Any] = field(default_factory=dict)


_Shape = tuple[str, str, dict[str, str]]  # level, message, and which field of the event appears under which name

_STARTED: _Shape = ("info", "Task started", {"full_name": "full_name", "action": "action"})
_SAID: _Shape = ("info", "Task said", {"item": "item", "message": "said"})
_IGNORED: _Shape = ("info", "Task failed (ignored)", {"message": "reason"})
_ANY: _Shape = (
    "info",
    "Ansible event",
    {"name": "event_type", "item": "item", "message": "result", "stdout": "stdout"},
)
_RECAP: _Shape = ("info", "Recap", {"stdout": "stdout"})
_OUTPUT: _Shape = ("info", "Ansible event", {"name": "event_type", "stdout": "stdout"})
_SHAPES: dict[str, _Shape] = {
    "playbook_on_task_start": _STARTED,
    "playbook_on_handler_task_start": _STARTED,
    "runner_item_on_ok": ("info", "Item done", {"item": "item", "changed": "changed"}),
    "runner_item_on_failed": ("error", "Item failed", {"item": "item", "message": "reason"}),
    "runner_on_failed": ("error", "Task failed", {"message": "reason", "task_path": "path"}),
    "runner_on_unreachable": ("error", "Host unreachable", {"message": "reason"}),
}


def log_line(event: RunEvent, wanted: LogEvents) -> LogLine | None:
    """Return the line for an event, or None if the event is not logged."""
    shape = _RECAP if event.name == "playbook_on_stats" else _shape(event, wanted)
    if shape is None:
        return None
    level, message, names = shape
    values = {shown: getattr(event, name) for name, shown in {"task": "task", "host": "host", **names}.items()}
    return LogLine(level, message, {shown: value for shown, value in values.items() if value != ""})


def _shape(event: RunEvent, wanted: LogEvents) -> _Shape | None:
    if wanted is LogEvents.EVERYTHING:
        return _ANY
    if wanted is LogEvents.OUTPUT:
        return _OUTPUT if event.task and event.stdout else None
    return _task_shape(event) if wanted is LogEvents.TASKS else None


def _task_shape(event: RunEvent) -> _Shape | None:
    if event.action in DEBUG_ACTIONS and event.name in ("runner_on_ok", "runner_item_on_ok"):
        return _SAID if event.message else None
    if event.action in _QUIET_ACTIONS and event.name in ("playbook_on_task_start", "playbook_on_handler_task_start"):
        return None
    if event.ignored and event.name == "runner_on_failed":
        return _IGNORED
    return _SHAPES.get(event.name)
