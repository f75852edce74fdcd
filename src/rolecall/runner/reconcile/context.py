"""What one reconcile knows about its object and its run, and the annotations by which users control runs.

``rolecall.dev/paused: "true"`` keeps runs from starting. A change of ``rolecall.dev/reconcile-requested-at`` to any
value starts a run. Changing either annotation triggers a reconcile.
"""

import asyncio
from dataclasses import dataclass, field

from rolecall.kube.metadata import annotation_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.record.traces import ReconcileTrace
from rolecall.runner.runs.events import RunSummary


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
    """The finalizer that this run is for, empty for an ordinary run."""
    summary: RunSummary | None = None
    status_before: RawObject = field(default_factory=dict)
    """The object's status before the operator marked it as running."""
    is_stopping: bool = False
    stop_reason: str = ""
    play: asyncio.Task[RunSummary] | None = None
    record: RunRecord | None = None
    written_status: RawObject | None = None
    """The status that the reconcile has written, None if it has written none."""
    trace: ReconcileTrace = field(default_factory=ReconcileTrace)

    @property
    def status(self) -> RawObject:
        """The object's status before the run; empty if there is none, or if it is not a mapping."""
        found = self.obj.get("status")
        return found if isinstance(found, dict) else {}

    @property
    def finalizing(self) -> bool:
        """Whether this run is the one that the finalizer waits for."""
        return bool(self.finalizer)

    @property
    def failure(self) -> str | None:
        """Why the run failed; None after a success and before the run."""
        if self.summary is None or self.summary.is_successful:
            return None
        message = self.summary.message or "the run failed without a message"
        return f"Finalizer {self.finalizer}: {message}" if self.finalizer else message

    @property
    def requests_requeue(self) -> bool:
        """Return whether the run itself said when to run again, because there is more to do."""
        summary = self.summary
        return summary is not None and (summary.requeue_at is not None or summary.requeue_after_seconds is not None)

    def stop(self, reason: str = "the operator is stopping") -> None:
        """Interrupt the run in progress, or keep it from starting. The other steps continue."""
        self.is_stopping, self.stop_reason = True, reason
        if self.play is not None:
            self.play.cancel()


PAUSED_ANNOTATION = "rolecall.dev/paused"
RECONCILE_REQUESTED_AT_ANNOTATION = "rolecall.dev/reconcile-requested-at"


def is_paused(obj: RawObject) -> bool:
    """Return whether runs are paused; any value but the text ``true`` means that they are not."""
    return annotation_of(obj, PAUSED_ANNOTATION) == "true"
