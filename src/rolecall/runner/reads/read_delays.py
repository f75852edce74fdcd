"""Delays for objects that trigger each other by what they read.

Two roles that read what the other writes would run without end, and so would all objects that share something that each
of them writes. Such a loop needs a write of a run: an object that was triggered only by reads of objects that runs of
this operator wrote, and whose run changed something, waits one second before such reads trigger it again, then twice as
long each time, up to five minutes. The time counts from the end of the run: a later change triggers immediately.

A run that changes nothing ends this, and so does any other trigger, or a minute without one (or the wait, if that is
longer). A minute, because the trigger of a loop takes as long as the runs of all objects in the loop.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rolecall.kube.references import ObjectKey
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.reads.read_sets import ReadCause
from rolecall.system.clock import Clock

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
QUIET_SECONDS: Final = 60.0
_MOST_DOUBLINGS: Final = 16


@dataclass(slots=True)
class _Repetition:
    """How many runs in a row may belong to a loop, and when the last of them ended."""

    runs: int
    ended: float

    @property
    def wait_seconds(self) -> float:
        """The time from the end of the last run to the next one."""
        return min(FIRST_SECONDS * 2.0 ** min(self.runs - 1, _MOST_DOUBLINGS), LONGEST_SECONDS)


@dataclass(slots=True)
class ReadDelays:
    """The delays of the objects of one kind."""

    clock: Clock
    _repetitions: dict[ObjectKey, _Repetition] = field(default_factory=dict)

    def run_ended(self, key: ObjectKey, causes: Iterable[Cause], *, changed: bool) -> None:
        """Take note of why a run was started, and whether it changed anything."""
        causes = tuple(causes)
        is_in_loop = all(isinstance(cause, ReadCause) and cause.may_be_in_loop for cause in causes)
        if not changed or not causes or not is_in_loop:
            self._repetitions.pop(key, None)
            return
        known = self._repetitions.get(key)
        self._repetitions[key] = _Repetition(known.runs + 1 if known else 1, self.clock.monotonic())

    def seconds(self, key: ObjectKey) -> float:
        """Return how long an object has to wait whose read may belong to a loop and has changed now."""
        known = self._repetitions.get(key)
        if known is None:
            return 0.0
        passed = self.clock.monotonic() - known.ended
        if passed >= max(known.wait_seconds, QUIET_SECONDS):
            self.forget(key)
        return max(0.0, known.wait_seconds - passed)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about an object that is gone."""
        self._repetitions.pop(key, None)
