"""What one reconcile knows of its object and of its run, from the first step to the last.

The steps fill it in one after the other; nothing of it outlives the reconcile.
"""

import asyncio
from dataclasses import dataclass, field

from rolecall.controller.work_queue import Cause
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runs.events import RunSummary


@dataclass(slots=True)
class ReconcileContext:
    """What one reconcile knows so far."""

    key: ObjectKey
    ident: str
    causes: tuple[Cause, ...] = ()
    obj: RawObject = field(default_factory=dict)
    fresh: RawObject = field(default_factory=dict)
    period_seconds: float = 0.0
    finalizer: str = ""
    """The finalizer for which this run is, empty for an ordinary run."""
    summary: RunSummary | None = None
    is_marked: bool = False
    is_stopping: bool = False
    play: asyncio.Task[RunSummary] | None = None

    @property
    def status(self) -> RawObject:
        """The object's status before the run, empty if it has none that is a mapping."""
        found = self.obj.get("status")
        return found if isinstance(found, dict) else {}

    @property
    def finalizing(self) -> bool:
        """Whether this run is the one before the object may go."""
        return bool(self.finalizer)

    @property
    def failure(self) -> str | None:
        """The message of what failed, None after a success or before the run."""
        if self.summary is None or self.summary.is_successful:
            return None
        message = self.summary.message or "the run failed without saying why"
        return f"Finalizer {self.finalizer}: {message}" if self.finalizer else message

    @property
    def requests_requeue(self) -> bool:
        """Tell whether the run itself said when the next one shall be, because there is more to do."""
        summary = self.summary
        return summary is not None and (summary.requeue_at is not None or summary.requeue_after_seconds is not None)

    def stop(self) -> None:
        """End the play that is under way, or see to it that none begins; the other steps go on."""
        self.is_stopping = True
        if self.play is not None:
            self.play.cancel()
