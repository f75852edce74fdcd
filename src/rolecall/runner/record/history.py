"""The last runs of each object in one line each, for the dashboard.

A record takes many thousand bytes and a line about a run a few hundred, so there are lines of all objects when memory
has records of only some.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.record.run_record import RunRecord

MAX_LINES: Final = 20
"""The maximum number of lines of one object."""

MAX_EARLIER_LINES: Final = 20_000
"""The maximum number of lines of all objects, excluding their last ones."""

_RETRY: Final = re.compile(r"retry \d+")
_Object = tuple[GVK, ObjectKey]


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in one line: when it started (seconds since the epoch), how long it took, how it ended, and why it ran.

    The dashboard serves these names in JSON. ``has_record`` is whether the record is in memory. ``message`` is the
    first reason of a failure, with its secret values masked. ``first_because`` is why the first of the failed runs ran
    if this one is a retry.
    """

    id: str
    started: float
    seconds: float
    outcome: str
    because: tuple[str, ...]
    tasks: int
    requests: int
    has_record: bool = False
    message: str = ""
    first_because: tuple[str, ...] = ()


@dataclass(slots=True)
class RunHistory:
    """The lines about the last runs. The last line of an object stays as long as the object."""

    max_earlier: int = MAX_EARLIER_LINES
    _lines: dict[_Object, deque[RunLine]] = field(default_factory=dict)
    _with_earlier: deque[_Object] = field(default_factory=deque)
    """An object for each line that isn't its last one, in their order; some of the lines may have been dropped."""

    _succeeded: set[_Object] = field(default_factory=set)

    def add(self, record: RunRecord, message: str = "") -> None:
        """Add the line for a run that has ended, with the masked message of its failure."""
        obj = record.gvk, record.key
        lines = self._lines.setdefault(obj, deque(maxlen=MAX_LINES))
        before: tuple[str, ...] = ()
        if lines:
            self._with_earlier.append(obj)
            before = lines[-1].first_because or lines[-1].because
        is_retry = bool(record.causes) and all(map(_RETRY.fullmatch, record.causes))
        line = RunLine(
            id=record.ident,
            started=record.started.timestamp(),
            seconds=round(record.ending.run.duration_seconds, 3),
            outcome=record.ending.outcome,
            because=record.causes,
            tasks=len(record.tasks),
            requests=len(record.exchanges),
            message=message,
            first_because=tuple(cause for cause in before if not _RETRY.fullmatch(cause)) if is_retry else (),
        )
        lines.append(line)
        if line.outcome == "succeeded":
            self._succeeded.add(obj)
        while len(self._with_earlier) > self.max_earlier:
            oldest = self._lines.get(self._with_earlier.popleft())
            if oldest is not None and len(oldest) > 1:
                oldest.popleft()

    def last(self, gvk: GVK, key: ObjectKey) -> RunLine | None:
        """Return the line about the last run of an object, or None."""
        lines = self._lines.get((gvk, key))
        return lines[-1] if lines else None

    def of(self, gvk: GVK, key: ObjectKey) -> tuple[RunLine, ...]:
        """Return the lines about an object, the newest first."""
        return tuple(reversed(self._lines.get((gvk, key), ())))

    def has_succeeded(self, gvk: GVK, key: ObjectKey) -> bool:
        """Return whether a run of an object has succeeded, also if its line was dropped."""
        return (gvk, key) in self._succeeded

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the lines about a deleted object."""
        self._lines.pop((gvk, key), None)
        self._succeeded.discard((gvk, key))
