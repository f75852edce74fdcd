"""What a reconcile tells about itself to whoever traces it; ``rolecall.runner.record`` is the operator's.

Without traces nothing is done and nothing is kept.
"""

from typing import Protocol

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.run_record import Ending, RunRecord


class ReconcileTrace(Protocol):
    """Follows one reconcile. Raises nothing."""

    def run_started(self, record: RunRecord | None) -> None:
        """Take note that the run starts, and give its requests their place in the trace."""

    def run_ended(self) -> None:
        """Take note that the run has ended."""

    async def finish(self, obj: RawObject, record: RunRecord | None, ending: Ending) -> None:
        """Take note of how the reconcile ended; call it before the record is given away."""


class ReconcileTracer(Protocol):
    """Follows all reconciles."""

    def start(self, watch: Watch, key: ObjectKey, ident: str, causes: tuple[Cause, ...]) -> ReconcileTrace:
        """Return what follows a reconcile that starts now."""


class Untraced:
    """Follows nothing."""

    def start(self, _watch: Watch, _key: ObjectKey, _ident: str, _causes: tuple[Cause, ...]) -> "Untraced":
        """Return itself."""
        return self

    def run_started(self, record: RunRecord | None) -> None:
        """Do nothing."""

    def run_ended(self) -> None:
        """Do nothing."""

    async def finish(self, obj: RawObject, record: RunRecord | None, ending: Ending) -> None:
        """Do nothing."""


UNTRACED = Untraced()
