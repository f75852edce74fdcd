"""Writes the status of a primary, and repeats the write until it succeeds or cannot.

A new status is computed from the object as it is at that moment and written with its resourceVersion, so no change of
another client is lost. After a conflict the object is read again; while the API server is down the write is retried.
A run is never repeated because its status could not be written.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from rolecall.kube.errors import ApiError, KubeError, NotFoundError, TooLargeError
from rolecall.kube.metadata import generation_of
from rolecall.kube.references import RawObject
from rolecall.runner.reconcile import status as new_status
from rolecall.runner.reconcile.conditions import Stamp, Status
from rolecall.runner.reconcile.primaries import Primaries
from rolecall.runner.reconcile.readiness import Readiness, without_ours
from rolecall.runner.reconcile.status import ReconcileOutcome
from rolecall.runner.reconcile.write_retry import write_with_retry
from rolecall.system.logs import get_logger

logger = get_logger("status")
_FIRST_CLIENT_ERROR, _FIRST_SERVER_ERROR = 400, 500
_NOT_FOR_THE_VALUES = frozenset({401, 404, 409, 410, 429})
"""Not authenticated, not found, conflict, gone, too many requests."""

Update = Callable[[RawObject, Status], Status]
"""Computes the new status from the object and its old status."""


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Writes the status of the objects of one kind, with ``Ready`` and its like if these are on."""

    primaries: Primaries
    readiness: Readiness = field(default_factory=lambda: Readiness(is_on=False))

    async def mark_running(self, primary: RawObject) -> RawObject | None:
        """Mark a run as in progress and return the object as written; None if it was deleted or cannot be written.

        No run depends on this mark, so the write is tried once.
        """

        def update(obj: RawObject, old: Status) -> Status:
            stamp = _stamp(obj)
            return self.readiness.while_running(old, new_status.running(old, stamp), stamp)

        try:
            return await self._write_once(primary, update)
        except KubeError as error:
            logger.info("Could not mark the object as running", error=str(error))
            return None

    async def mark_paused(self, primary: RawObject) -> None:
        """Mark the object as paused; a deleted primary needs no status."""

        def update(obj: RawObject, old: Status) -> Status:
            stamp = _stamp(obj)
            return self.readiness.while_paused(old, new_status.paused(old, stamp), stamp)

        await self._write_until_done(primary, update)

    async def mark_interrupted(self, primary: RawObject, before: Status, message: str) -> Status | None:
        """Report that the operator interrupted a run of the object, whose status was ``before`` until then.

        Return the status as it is afterwards, None if the primary was deleted.
        """
        generation = generation_of(primary)

        def update(_obj: RawObject, old: Status) -> Status:
            new = new_status.interrupted(old, before, message, Stamp(datetime.now(UTC), generation))
            return new if self.readiness.is_on else without_ours(new)

        return await self._write_until_done(primary, update)

    async def write(self, primary: RawObject, outcome: ReconcileOutcome, generation: int) -> Status | None:
        """Write the result of a run that worked with this generation; a deleted primary needs no status.

        Return the status as it is afterwards, None if the primary was deleted.
        """

        def update_with(outcome: ReconcileOutcome) -> Update:
            def update(_obj: RawObject, old: Status) -> Status:
                stamp = Stamp(datetime.now(UTC), generation)
                return self.readiness.after_run(old, new_status.finished(old, outcome, stamp), outcome, stamp)

            return update

        if unfit := {name for name, value in outcome.mapped.items() if not _is_finite(value)}:
            text = (
                f"{', '.join(sorted(unfit))}: found a number that is infinite or NaN, expected one that JSON can hold"
            )
            outcome = _without_mapped(outcome, unfit, text)
        try:
            return await self._write_until_done(primary, update_with(outcome))
        except ApiError as error:
            if not outcome.mapped or not _refuses_values(error):
                raise
            outcome = _without_mapped(outcome, set(outcome.mapped), error.message)
            return await self._write_until_done(primary, update_with(outcome))

    async def _write_until_done(self, primary: RawObject, update: Update) -> Status | None:
        with contextlib.suppress(NotFoundError):
            return _status_of(await write_with_retry(lambda: self._write_once(primary, update)))
        return None

    async def _write_once(self, primary: RawObject, update: Update) -> RawObject:
        """Read, update and replace; return the object as it is afterwards. Raises NotFoundError if it was deleted."""
        obj = await self.primaries.read_again(primary)
        old = _status_of(obj)
        new = update(obj, old)
        if not new_status.should_write(old, new, datetime.now(UTC)):
            return obj
        resource = await self.primaries.client.resource(self.primaries.gvk)
        if "status" not in resource.subresources:
            logger.warning("Kind has no status subresource; set manageStatus: false or add the subresource to the CRD")
            return obj
        return await self.primaries.replace({**obj, "status": new}, "status")


def _stamp(obj: RawObject) -> Stamp:
    return Stamp(datetime.now(UTC), generation_of(obj))


def _status_of(obj: RawObject) -> dict[str, Any]:
    found = obj.get("status")
    return found if isinstance(found, dict) else {}


def _refuses_values(error: ApiError) -> bool:
    """Return whether another status of the same object may be accepted where this one was refused."""
    is_own_fault = _FIRST_CLIENT_ERROR <= error.status < _FIRST_SERVER_ERROR
    return isinstance(error, TooLargeError) or (is_own_fault and error.status not in _NOT_FOR_THE_VALUES)


def _is_finite(value: object) -> bool:
    """Return whether a value is without numbers that JSON does not have, at any depth."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _without_mapped(outcome: ReconcileOutcome, fields: set[str], why: str) -> ReconcileOutcome:
    """Return an outcome without some of its mapped fields, with a message that says so."""
    logger.warning("Mapped status was refused", error=why, fields=sorted(fields))
    remark = f"the mapped status was refused: {why}"
    mapped = {name: value for name, value in outcome.mapped.items() if name not in fields}
    if outcome.failure is None:
        return replace(outcome, mapped=mapped, remark="; ".join(filter(None, (outcome.remark, remark))))
    return replace(outcome, mapped=mapped, failure=f"{outcome.failure}\n{remark}")
