"""The log of ``rolecall run`` on a terminal: lines for people, of the terminal's width.

A line has the local time, the object, and what happened to it: ``08:11:57 Team/checkout  TASK Limit the resources …
changed 95ms``. Failures are red, with their whole reason below. A table has the events of runs; other events keep their
words and keys. Events that say nothing more than others are left out, except at level debug.
"""

import os
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from structlog import DropEvent

from rolecall.cli.terminal import width_of
from rolecall.kube.quantities import format_duration
from rolecall.system.logs import Event

INDENT: Final = " " * len("08:11:57 ")
_MIN_WIDTH: Final = 40
"""Lines aren't cut to less, so that a narrow terminal shows what happens."""

_LEFT_OUT: Final = frozenset({"Recap", "Run succeeded", "Watching child resource", "Proxy started", "Item done"})
_NOT_SHOWN: Final = frozenset(
    {"event", "level", "ts", "logger", "gvk", "group", "version", "kind", "namespace", "name", "job", "event_type"}
    | {"host", "exception", "stacktrace"}
)
"""Keys that other parts of a line contain, or that only programs need."""

_ENDS: Final = frozenset({"Reconcile failed", "Reconcile succeeded", "Run interrupted"})
_VALIDATION: Final = "Validating arguments against arg spec"
"""The start of the name of the task that Ansible adds to a role with argument specs."""

_COLORS: Final = {"bad": "31", "good": "32", "changed": "33", "quiet": "2", "note": "36"}
_LEVELS: Final = {"warning": ("WARNING ", "changed"), "error": ("ERROR ", "bad"), "critical": ("ERROR ", "bad")}
_RESULTS: Final = {"changed": "changed", "ok": "good", "skipped": "quiet"}


@dataclass(frozen=True, slots=True)
class _Parts:
    """A line: a text that may be cut, an end that may not, its color, and a text of any length that follows."""

    text: str
    end: str = ""
    color: str = ""
    below: str = ""
    joint: str = " … "


@dataclass(slots=True)
class TextLog:
    """Writes the lines. This is a ``rolecall.system.logs.Renderer``."""

    is_colored: bool = False
    is_complete: bool = False
    """Whether no event is left out."""

    width: Callable[[], int] = field(default=lambda: width_of(sys.stderr))
    _explained: set[object] = field(default_factory=set)
    """The jobs whose failed task has been shown with its reason."""

    def __call__(self, _logger: object, _method: str, event: Event) -> str:
        """Return the lines of an event. Raise DropEvent if it is left out."""
        message = str(event.get("event"))
        if message in _LEFT_OUT and not self.is_complete:
            raise DropEvent
        parts = self._parts(message, event)
        width = max(_MIN_WIDTH, self.width()) if self.width() else 0
        label = _label(event, width)
        head = f"{_clock()} {label}{'  ' if label else ''}"
        line, rest = _fitted(parts, width - len(head) if width else 0)
        lines = [f"{self._painted(head, 'quiet')}{self._painted(line, parts.color)}"]
        lines += [f"{INDENT}{self._painted(each, parts.color)}" for each in _wrapped(rest, width)]
        lines += [self._painted(str(event[key]), "quiet") for key in ("exception", "stacktrace") if key in event]
        return "\n".join(lines)

    def _parts(self, message: str, event: Event) -> _Parts:
        make = _EVENTS.get(message)
        if make is not None:
            parts = make(event)
            job = event.get("job")
            is_explained = job in self._explained
            if message == "Task failed":
                self._explained.add(job)
            elif message in _ENDS:
                self._explained.discard(job)
            if message == "Reconcile failed" and is_explained:
                return _Parts(f"{parts.text} {' '.join(parts.below.split())}", color=parts.color)
            return parts
        prefix, color = _LEVELS.get(str(event.get("level")), ("", ""))
        fields = [f"{key}={_value(value)}" for key, value in event.items() if key not in _NOT_SHOWN]
        return _Parts(prefix + message, color=color, below="  ".join(fields))

    def _painted(self, text: str, color: str) -> str:
        return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if self.is_colored and color and text else text


def _clock() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"


def _label(event: Mapping[str, Any], width: int) -> str:
    """Return the object: its kind, namespace, and name, or without its namespace if that takes too much room."""
    kind, namespace, name = (str(event.get(key) or "") for key in ("kind", "namespace", "name"))
    if not kind or not name:
        return ""
    whole, short = "/".join(filter(None, (kind, namespace, name))), f"{kind}/{name}"
    room = width * 2 // 5
    return whole if not width or len(whole) <= room else cut(short, room)


def _fitted(parts: _Parts, width: int) -> tuple[str, str]:
    """Return the line, and what follows below it; a short rest is a part of the line."""
    below = parts.below
    if below and "\n" not in below and (not width or len(f"{parts.text}  {below}") <= width):
        return f"{parts.text}  {below}", ""
    whole = f"{parts.text}{parts.joint}{parts.end}" if parts.end else parts.text
    if not width or len(whole) <= width:
        return whole, below
    end = f" {parts.end}" if parts.end else ""
    room = max(1, width - len(end) - 1)
    return f"{parts.text[:room].rstrip()}…{end}", below


def cut(text: str, width: int) -> str:
    """Return a text of at most that many characters, with a mark if it was longer."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)].rstrip()}…"


def _wrapped(text: str, width: int) -> list[str]:
    lines = text.splitlines() or [""] if text else []
    if not width:
        return lines
    room = width - len(INDENT)
    return [part for line in lines for part in textwrap.wrap(line, room, break_on_hyphens=False) or [""]]


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _task_ended(event: Event) -> _Parts:
    result = str(event.get("result"))
    return _Parts(_task(event), f"{result} {event.get('duration')}", _RESULTS.get(result, ""))


def _task_failed(event: Event) -> _Parts:
    return _Parts(_task(event), "failed", "bad", str(event.get("reason") or "without a message"))


def _task_ignored(event: Event) -> _Parts:
    return _Parts(_task(event), "failed, ignored", "changed", str(event.get("reason") or ""))


def _task(event: Event) -> str:
    name = str(event.get("task"))
    return f"TASK {'Validate the arguments' if name.startswith(_VALIDATION) else name}"


def _item_failed(event: Event) -> _Parts:
    return _Parts(f"ITEM {event.get('item')}", "failed", "bad", str(event.get("reason") or ""))


def _started(event: Event) -> _Parts:
    """Return the first cause, without the object, which the line has already."""
    causes = [str(each) for each in event.get("causes") or ()] or ["no cause"]
    subject = f"{event.get('kind')} {'/'.join(filter(None, (event.get('namespace'), event.get('name'))))}"
    first = causes[0]
    if first.startswith(f"{subject}: "):
        first = f"changed: {first.removeprefix(f'{subject}: ')}"
    more = f"and {len(causes) - 1} more" if len(causes) > 1 else ""
    return _Parts(f"RUN  {first.removeprefix(subject).strip()}", more, "note", joint=" ")


def _succeeded(event: Event) -> _Parts:
    after = event.get("requeue_after_seconds")
    following = f", next run in {format_duration(after)}" if isinstance(after, int | float) else ""
    return _Parts(f"OK   in {event.get('duration')}{following}", color="good")


def _watching(event: Event) -> _Parts:
    group_version, _, kind = str(event.get("gvk")).partition(", Kind=")
    content = os.path.relpath(str(event.get("content")))
    content = content if not content.startswith("..") else Path(str(event.get("content"))).name
    return _Parts(f"Watching {kind} ({group_version.removeprefix('/')})", below=f"with {content}")


def _version(event: Event) -> _Parts:
    return _Parts(", ".join(f"{key} {value}" for key, value in event.items() if key not in _NOT_SHOWN))


_EVENTS: Final[Mapping[str, Callable[[Event], _Parts]]] = {
    "Task ended": _task_ended,
    "Task failed": _task_failed,
    "Task failed (ignored)": _task_ignored,
    "Item failed": _item_failed,
    "Task message": lambda event: _Parts(f"MSG  {event.get('task')}", below=str(event.get("message") or "")),
    "Task started": lambda event: _Parts(_task(event), "started"),
    "Reconcile started": _started,
    "Reconcile succeeded": _succeeded,
    "Reconcile failed": lambda event: _Parts("FAILED", color="bad", below=str(event.get("error") or "")),
    "Run interrupted": lambda event: _Parts("INTERRUPTED", color="changed", below=str(event.get("reason") or "")),
    "Object was deleted": lambda _: _Parts("DELETED", color="note"),
    "Watching resource": _watching,
    "Version": _version,
}
"""How the events of runs, and of the start, are shown."""
