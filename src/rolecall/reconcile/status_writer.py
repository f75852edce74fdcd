"""Writes the status of a primary, and repeats the write until it succeeds or cannot.

A new status is computed from the object as it is at that moment and written with its resourceVersion, so no change of
another client is lost. After a conflict the object is read again; while the API server is down the write is retried.
A run is never repeated because its status could not be written.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rolecall.kube.errors import InvalidError, KubeError, NotFoundError, TooLargeError
from rolecall.kube.metadata import generation_of
from rolecall.kube.references import RawObject
from rolecall.logs import get_logger
from rolecall.reconcile import status as new_status
from rolecall.reconcile.conditions import Stamp, Status
from rolecall.reconcile.primaries import Primaries
from rolecall.reconcile.status import ReconcileOutcome
from rolecall.reconcile.write_retry import write_with_retry

logger = get_logger("status")
Update = Callable[[RawObject, Status], Status]
"""Computes the new status from the object and its old status."""


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Writes the status of the objects of one kind."""

    primaries: Primaries

    async def mark_running(self, primary: RawObject) -> RawObject | None:
        """Mark a run as in progress and return the object as written; None if it is gone or cannot be written.

        No run depends on this mark, so the write is tried once.
        """

        def update(obj: RawObject, old: Status) -> Status:
            return new_status.running(old, _stamp(obj))

        try:
            return await self._write_once(primary, update)
        except KubeError as error:
            logger.info("Could not mark the object as running", error=str(error))
            return None

    async def mark_paused(self, primary: RawObject) -> None:
        """Mark the object as paused; a primary that is gone needs no status."""
        await self._write_until_done(primary, lambda obj, old: new_status.paused(old, _stamp(obj)))

    async def write(self, primary: RawObject, outcome: ReconcileOutcome, generation: int) -> None:
        """Write the result of a run that worked with this generation; a primary that is gone needs no status."""

        def update_with(outcome: ReconcileOutcome) -> Update:
            return lambda _obj, old: new_status.finished(old, outcome, Stamp(datetime.now(UTC), generation))

        try:
            await self._write_until_done(primary, update_with(outcome))
        except (InvalidError, TooLargeError) as error:
            if not outcome.mapped:
                raise
            logger.warning("API server refused the mapped status", error=str(error), fields=sorted(outcome.mapped))
            remark = f"the mapped status was refused: {error.message}"
            await self._write_until_done(primary, update_with(_without_mapping(outcome, remark)))

    async def _write_until_done(self, primary: RawObject, update: Update) -> None:
        with contextlib.suppress(NotFoundError):
            await write_with_retry(lambda: self._write_once(primary, update))

    async def _write_once(self, primary: RawObject, update: Update) -> RawObject:
        """Read, update and replace; return the object as it is afterwards. Raises NotFoundError if it is gone."""
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


def _without_mapping(outcome: ReconcileOutcome, remark: str) -> ReconcileOutcome:
    if outcome.failure is None:
        return replace(outcome, mapped={}, remark=remark)
    return replace(outcome, mapped={}, failure=f"{outcome.failure}\n{remark}")
