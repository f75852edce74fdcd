"""The state of one reconcile, and the annotations by which users control runs.

``rolecall.dev/paused: "true"`` keeps runs from starting. A change of ``rolecall.dev/reconcile-requested-at`` to any
value starts a run. ``rolecall.dev/confirm-prune`` permits the deletions that ``pruner.py`` has proposed, by their
digest. ``ansible.sdk.operatorframework.io/reconcile-period`` sets the time until the next run. Changing one of these
annotations triggers a reconcile.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rolecall.kube.metadata import annotation_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.prune.decision import Pruning
from rolecall.runner.prune.observations import Observations
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.runs.outcome import NO_RUN, Outcome

if TYPE_CHECKING:  # only imported if traces are exported
    from rolecall.runner.record.spans import Trace

PAUSED_ANNOTATION = "rolecall.dev/paused"
RECONCILE_REQUESTED_AT_ANNOTATION = "rolecall.dev/reconcile-requested-at"
CONFIRM_ANNOTATION = "rolecall.dev/confirm-prune"
PERIOD_ANNOTATION = "ansible.sdk.operatorframework.io/reconcile-period"


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

    observations: Observations = field(default_factory=Observations)
    """What the run has named, also if it failed or was interrupted."""

    role: str | None = None
    """The digest of the role's files before the run, None if it may not prune."""

    pruning: Pruning = field(default_factory=Pruning)
    run: asyncio.Task[Outcome] | None = None
    interruption: Outcome | None = None
    """The outcome of a run that is interrupted or must not start, None if nothing stops it."""

    outcome: Outcome = NO_RUN
    """The outcome of the run."""

    written_status: RawObject | None = None
    """The status that the reconcile has written, None if it has written none."""

    record: RunRecord | None = None
    trace: "Trace | None" = None

    @property
    def finalizing(self) -> bool:
        """Whether this is the run of the finalizer."""
        return bool(self.finalizer)

    def stop(self, reason: str = "") -> None:
        """Interrupt the run in progress, or keep it from starting. The other steps continue."""
        message = f"The run was interrupted: {reason or 'the operator is stopping'}"
        self.interruption = Outcome.of_failure(message, "canceled")
        if self.run is not None:
            self.run.cancel()
