"""Delays for objects that wake each other by what they read.

Two roles that read what the other writes would run without end, and so would all objects that share something that each
of them writes. An object that was woken by reads alone, and whose run changed something, waits one second before reads
wake it again, then twice as long each time, up to five minutes. A run that changes nothing ends this, and so does
anything else that wakes the object. The time counts from the end of the run: a change that comes later wakes at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rolecall.controller.clock import Clock
from rolecall.controller.reads.read_sets import ReadCause
from rolecall.controller.work_queue import Cause
from rolecall.kube.references import ObjectKey

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
_MOST_DOUBLINGS: Final = 16


@dataclass(slots=True)
class _Repetition:
    """How many runs in a row were woken by reads alone, and when the last of them ended."""

    runs: int
    ended: float


@dataclass(slots=True)
class ReadDelays:
    """The delays of the objects of one kind."""

    clock: Clock
    _repetitions: dict[ObjectKey, _Repetition] = field(default_factory=dict)

    def run_ended(self, key: ObjectKey, causes: Iterable[Cause], *, changed: bool) -> None:
        """Take note of why a run was started, and whether it changed anything."""
        causes = tuple(causes)
        if not changed or not causes or not all(isinstance(cause, ReadCause) for cause in causes):
            self._repetitions.pop(key, None)
            return
        known = self._repetitions.get(key)
        self._repetitions[key] = _Repetition(known.runs + 1 if known else 1, self.clock.monotonic())

    def seconds(self, key: ObjectKey) -> float:
        """Return how long an object that reads wake now has to wait."""
        known = self._repetitions.get(key)
        if known is None:
            return 0.0
        wait = min(FIRST_SECONDS * 2.0 ** min(known.runs - 1, _MOST_DOUBLINGS), LONGEST_SECONDS)
        return max(0.0, known.ended + wait - self.clock.monotonic())

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about an object that is gone."""
        self._repetitions.pop(key, None)
