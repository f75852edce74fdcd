"""The first round: which objects go first when an operator starts and reconciles every object once.

Most objects have not changed while no operator was running. The objects that clients wait for are new, have another
generation than the last run saw, are being deleted, or had a run in progress when the last operator stopped.
"""

from rolecall.kube.metadata import generation_of, is_being_deleted
from rolecall.kube.references import RawObject
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.reconcile.conditions import FAILURE, IN_PROGRESS, INTERRUPTED, RUNNING, SUCCESSFUL, condition_of


def priority_in_first_round(obj: RawObject, *, manages_status: bool) -> Priority:
    """Return the priority of a primary at the start; ``manages_status`` says whether its runs report a status."""
    return Priority.HIGH if is_being_deleted(obj) or not _is_reconciled(obj, manages_status) else Priority.LOW


def _is_reconciled(obj: RawObject, manages_status: bool) -> bool:  # noqa: FBT001 - one of two arguments
    status = obj.get("status")
    status = status if isinstance(status, dict) else {}
    running = condition_of(status, RUNNING) or {}
    # A failure leaves the reason of the run in place, with the status False.
    if manages_status and (running.get("status"), running.get("reason")) in (
        ("True", IN_PROGRESS),
        ("False", INTERRUPTED),
    ):
        return False
    observed = status.get("observedGeneration")
    if observed is not None:
        return bool(observed == generation_of(obj))
    # The schema of a CRD may drop the field, and the Go runner does not write it: then a result is all that is known.
    return not manages_status or any(condition_of(status, kind) for kind in (SUCCESSFUL, FAILURE))
