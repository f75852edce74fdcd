"""The runs of a demo's objects as the operator logs them: durations, successes, and failures with their reasons.

The log has each run, also those that the demo misses because it reads the objects only twice a second. If a role fails
several times in a row with the same message, more runs won't help, so the demo ends with the task and the reason.
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.errors import plain_errors
from rolecall.kube.failures import task_and_reason
from rolecall.kube.references import GVK

ENOUGH_FAILURES: Final = 3
"""After so many equal failures of an object in a row, the demo ends."""

DENIED_SECONDS: Final = 10.0
"""A new permission takes a moment to become effective: a watch denied for longer stays so."""

PAGE_MESSAGE: Final = "Serving the dashboard"
_MAX_REASON: Final = 400
_FAILURES: Final = ("Reconcile failed", "Failed to write the status")
_WATCHED_AGAIN: Final = "Watching this kind again"

_DENIED: Final = re.compile(
    r"cannot \S+ (?:resource|path) |403 Forbidden|cannot set blockOwnerDeletion|attempting to grant RBAC permissions"
)
"""The messages of RBAC. A quota, for example, also forbids requests, but no permission changes that."""

_VARIES: Final = re.compile(
    r"0x[0-9a-f]{6,}|127\.0\.0\.1:\d+|ansible[-_.]tmp[\w.-]*|/tmp/[\w./-]+|\d+(?:\.\d+)? ?m?s\b"
)
"""The parts of a message that differ in each run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure: the task (empty if no task failed), and the reason."""

    task: str
    reason: str

    @classmethod
    def of(cls, message: str) -> "Failure":
        """Return the failure with the message of a condition or a log line."""
        task, reason = task_and_reason(message)
        return cls(task, plain_errors(reason))

    @property
    def is_denied(self) -> bool:
        """Whether the operator's account lacks a permission."""
        return bool(_DENIED.search(self.reason))

    def __str__(self) -> str:
        """Return one line, which may be cut."""
        text = " ".join((f"task {self.task!r}: {self.reason}" if self.task else self.reason).split())
        return text if len(text) <= _MAX_REASON else f"{text[: _MAX_REASON - 1]}…"


@dataclass(slots=True)
class ObjectRuns:
    """The runs of one object: the duration of the last successful one, the successes, and the equal last failures."""

    duration: str = ""
    successes: int = 0
    failure: Failure | None = None
    """Why the last run failed, None if it succeeded."""

    failures: int = 0
    _key: str = ""

    def succeeded(self, duration: str) -> None:
        """Count a success."""
        self.duration, self.failure, self.failures = duration, None, 0
        self.successes += 1

    def failed(self, message: str) -> None:
        """Count a failure; one with another message starts the count again."""
        key = _VARIES.sub("…", message)
        self.failures = self.failures + 1 if self.failure and key == self._key else 1
        self.failure, self._key = Failure.of(message), key


@dataclass(slots=True)
class RunLog:
    """The lines of the operator's log that the demo needs."""

    page: str = ""
    """The address of the dashboard, once the log has reported it."""

    objects: dict[tuple[str, str], ObjectRuns] = field(default_factory=dict)
    """The runs by kind and name of the object."""

    _denied: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Since when a kind can't be watched, and the reason."""

    def of(self, kind: str, name: str) -> ObjectRuns:
        """Return the runs of an object."""
        return self.objects.get((kind, name), ObjectRuns())

    def add(self, line: bytes) -> None:
        """Read a line; one that isn't an entry of the log is ignored."""
        try:
            entry = json.loads(line)
        except ValueError:
            return
        if not isinstance(entry, dict):
            return
        message, gvk = entry.get("msg"), str(entry.get("gvk"))
        if message == PAGE_MESSAGE:
            self.page = str(entry.get("url", ""))
        elif message == _WATCHED_AGAIN:
            self._denied.pop(gvk, None)
        elif "watched_namespace" in entry and str(entry.get("reason")).startswith("403 "):
            self._denied.setdefault(gvk, (time.monotonic(), str(entry["reason"])))
        elif message in _FAILURES and "name" in entry:
            self._object(entry).failed(str(entry.get("error", "")))
        elif "duration" in entry:
            self._object(entry).succeeded(str(entry["duration"]))

    def _object(self, entry: dict[str, Any]) -> ObjectRuns:
        name = "/".join(str(part) for part in (entry.get("namespace"), entry.get("name")) if part)
        return self.objects.setdefault((str(entry.get("kind", "")), name), ObjectRuns())

    def denied(self, gvk: GVK) -> Failure | None:
        """Return why the operator can't watch a kind, None if it can."""
        since, reason = self._denied.get(str(gvk), (0.0, ""))
        return Failure("", reason) if reason and time.monotonic() - since > DENIED_SECONDS else None


def last_warnings(lines: list[str], count: int) -> Iterator[str]:
    """Yield the last warnings and errors of a log in words, and lines that aren't entries as they are."""
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            found.append(line)
            continue
        if isinstance(entry, dict) and entry.get("level") in ("warning", "error"):
            shown = ("error", "reason", "kind", "namespace", "name", "gvk")
            fields = ", ".join(f"{key}: {plain_errors(str(entry[key]))}" for key in shown if entry.get(key))
            found.append(f"{entry['level']}: {entry.get('msg')} ({fields})" if fields else f"{entry.get('msg')}")
    yield from found[-count:]
