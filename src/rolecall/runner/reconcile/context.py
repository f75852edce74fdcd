"""The state of one reconcile, and the annotations by which users control runs.

``rolecall.dev/paused: "true"`` keeps runs from starting. A change of ``rolecall.dev/reconcile-requested-at`` to any
value starts a run. Changing either annotation triggers a reconcile.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rolecall.kube.metadata import annotation_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.runs.outcome import Outcome

if TYPE_CHECKING:  # only imported if traces are exported
    from rolecall.runner.record.spans import Trace

PAUSED_ANNOTATION = "rolecall.dev/paused"
RECONCILE_REQUESTED_AT_ANNOTATION = "rolecall.dev/reconcile-requested-at"


def is_paused(obj: RawObject) -> bool:
    """Return whether runs are paused: whether the annotation is the string ``true``."""
    return annotation_of(obj, PAUSED_ANNOTATION) == "true"


@dataclass(slots=True)
class ReconcileContext:
    """The state of one reconcile; its steps fill it in, and nothing of it outlives the reconcile."""

    key: ObjectKey
    ident: str
    causes: tuple[Cause, ...] = ()
    obj: RawObject = field(default_factory=dict)
    """The object before the run."""

    fresh: RawObject = field(default_factory=dict)
    """The object after the run."""

    period_seconds: float = 0.0
    finalizer: str = ""
    """The finalizer that this run is for, empty for an ordinary run."""

    status_before: RawObject = field(default_factory=dict)
    """The object's status before the operator marked it as running."""

    run: asyncio.Task[Outcome] | None = None
    summary: Outcome | None = None
    stop_reason: str = ""
    """Why the run is interrupted or must not start, empty if nothing stops it."""

    written_status: RawObject | None = None
    """The status that the reconcile has written, None if it has written none."""

    record: RunRecord | None = None
    trace: "Trace | None" = None

    @property
    def finalizing(self) -> bool:
        """Whether this is the run of the finalizer."""
        return bool(self.finalizer)

    @property
    def failure(self) -> str | None:
        """Why the run failed; None after a success and before the run."""
        if self.summary is None or self.summary.is_successful:
            return None
        message = self.summary.message or "the run failed without a message"
        return f"Finalizer {self.finalizer}: {message}" if self.finalizer else message

    @property
    def written_conditions(self) -> tuple[Mapping[str, Any], ...]:
        """The conditions that the run has written into the status of its object."""
        gvk, written = GVK.of_object(self.obj), self.summary.written if self.summary else ()
        target = (gvk.group, gvk.kind, self.key.namespace, self.key.name)
        return tuple(
            condition
            for each in written
            if (GVK.of(each["api_version"], "").group, each["kind"], each["namespace"], each["name"]) == target
            for condition in each["conditions"]
        )

    @property
    def requests_requeue(self) -> bool:
        """Whether the run itself requested the next run, because there is more to do."""
        summary = self.summary
        return summary is not None and (summary.requeue_at is not None or summary.requeue_after_seconds is not None)

    def stop(self, reason: str = "") -> None:
        """Interrupt the run in progress, or keep it from starting. The other steps continue."""
        self.stop_reason = reason or "the operator is stopping"
        if self.run is not None:
            self.run.cancel()
