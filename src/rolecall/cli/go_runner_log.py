"""The log in the wording of the Go runner, for ``ansible-operator``.

Tests, dashboards, and alerts made for the Go runner search for some of its messages, keys, and logger names. A table
translates ours; other lines keep their words.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rolecall.system.logs import Event

_GVK = re.compile(r"(?P<group>[^/]*)/(?P<version>[^,]*), Kind=(?P<kind>.*)", re.DOTALL)
_HANDLER = "logging_event_handler"
_FAILED_KEYS = {"task": "EventData.Task", "path": "EventData.FailedTaskPath"}

_LOGGERS = {"operator": "cmd", "run": "runner", "watch": "ansible-controller", "controller": "ansible-controller"}
_LEVELS = {"warning": "warn", "critical": "panic"}


@dataclass(frozen=True, slots=True)
class _Words:
    """The translation of one of our messages; ``logger`` is empty where our logger has the right name."""

    message: str
    keys: Mapping[str, str] = field(default_factory=dict)
    logger: str = ""


_MESSAGES = {
    "Task started": _Words(
        "[playbook task start]", {"task": "EventData.Name", "full_name": "EventData.Name"}, _HANDLER
    ),
    "Task message": _Words("[playbook debug]", {"task": "EventData.Task", "message": "EventData.TaskArgs"}, _HANDLER),
    "Task failed": _Words("[playbook task failed]", _FAILED_KEYS, _HANDLER),
    "Task failed (ignored)": _Words("[playbook task failed]", _FAILED_KEYS, _HANDLER),
    "Item failed": _Words("Item failed", _FAILED_KEYS, _HANDLER),
    "Item done": _Words("Item done", {"task": "EventData.Task"}, _HANDLER),
    "Ansible event": _Words("Ansible event", {"task": "EventData.Task"}, _HANDLER),
    "Recap": _Words("Ansible Task Status Event StdOut", logger=_HANDLER),
    "Output of the run": _Words("Ansible Debug Result", logger="runner"),
    "Run succeeded": _Words("Ansible-runner exited successfully", logger="runner"),
    "Watching resource": _Words("Watching resource", logger="cmd"),
    "Watching child resource": _Words("Watching child resource", {"dependent": "kind", "gvk": "enqueue_kind"}, "proxy"),
    "Not watching a kind of dependents": _Words("Resource will not be watched/cached.", {"dependent": "GVK"}, "proxy"),
    "Exiting": _Words("Exiting.", logger="cmd"),
}


def use_go_runner_wording(_logger: object, _method: str, event: Event) -> Event:
    """Translate one log line. This is a ``rolecall.system.logs.Processor``."""
    words = _MESSAGES.get(event["event"])
    event["level"] = _LEVELS.get(event["level"], event["level"])
    if "logger" in event:
        event["logger"] = _LOGGERS.get(event["logger"], event["logger"])
    if words is None:
        return event
    event["event"] = words.message
    event["logger"] = words.logger
    for ours, theirs in words.keys.items():
        if ours in event:
            event[theirs] = event.pop(ours)
    if words.message == "Watching resource" and (match := _GVK.fullmatch(str(event.get("gvk")))):
        event.update({f"Options.{name.capitalize()}": value for name, value in match.groupdict().items()})
    return event
