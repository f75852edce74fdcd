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

from rolecall.kube.client import Client
from rolecall.kube.errors import InvalidError, KubeError, NotFoundError, TooLargeError
from rolecall.kube.metadata import generation_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.logs import get_logger
from rolecall.reconcile import status as new_status
from rolecall.reconcile.conditions import Stamp, Status
from rolecall.reconcile.self_triggers import OwnWrites
from rolecall.reconcile.status import ReconcileOutcome
from rolecall.reconcile.write_retry import write_with_retry

logger = get_logger("status")
Update = Callable[[RawObject, Status], Status]
"""Computes the new status from the object and its old status."""


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Writes the status of the objects of one kind."""

    client: Client
    gvk: GVK
    own_writes: OwnWrites

    async def mark_running(self, key: ObjectKey) -> RawObject | None:
        """Mark a run as in progress and return the object as written; None if it is gone or cannot be written.

        No run depends on this mark, so the write is tried once.
        """

        def update(obj: RawObject, old: Status) -> Status:
            return new_status.running(old, _stamp(obj))

        try:
            return await self._write_once(key, update)
        except KubeError as error:
            logger.info("Could not mark the object as running", error=str(error))
            return None

    async def mark_paused(self, key: ObjectKey) -> None:
        """Mark the object as paused; a primary that is gone needs no status."""
        await self._write_until_done(key, lambda obj, old: new_status.paused(old, _stamp(obj)))

    async def write(self, key: ObjectKey, outcome: ReconcileOutcome, generation: int) -> Status | None:
        """Write the result of a run that worked with this generation; a primary that is gone needs no status.

        Return the status as it is afterwards, None if the primary is gone.
        """

        def update_with(outcome: ReconcileOutcome) -> Update:
            return lambda _obj, old: new_status.finished(old, outcome, Stamp(datetime.now(UTC), generation))

        try:
            return await self._write_until_done(key, update_with(outcome))
        except (InvalidError, TooLargeError) as error:
            if not outcome.mapped:
                raise
            logger.warning("API server refused the mapped status", error=str(error), fields=sorted(outcome.mapped))
            remark = f"the mapped status was refused: {error.message}"
            return await self._write_until_done(key, update_with(_without_mapping(outcome, remark)))

    async def _write_until_done(self, key: ObjectKey, update: Update) -> Status | None:
        with contextlib.suppress(NotFoundError):
            return _status_of(await write_with_retry(lambda: self._write_once(key, update)))
        return None

    async def _write_once(self, key: ObjectKey, update: Update) -> RawObject:
        """Read, update and replace; return the object as it is afterwards. Raises NotFoundError if it is gone."""
        obj = await self.client.get(self.gvk, key)
        old = _status_of(obj)
        new = update(obj, old)
        if not new_status.should_write(old, new, datetime.now(UTC)):
            return obj
        resource = await self.client.resource(self.gvk)
        if "status" not in resource.subresources:
            logger.warning("Kind has no status subresource; set manageStatus: false or add the subresource to the CRD")
            return obj
        written = await self.client.replace({**obj, "status": new}, "status")
        self.own_writes.record_write((self.gvk, key), written)
        return written


def _stamp(obj: RawObject) -> Stamp:
    return Stamp(datetime.now(UTC), generation_of(obj))


def _status_of(obj: RawObject) -> dict[str, Any]:
    found = obj.get("status")
    return found if isinstance(found, dict) else {}


def _without_mapping(outcome: ReconcileOutcome, remark: str) -> ReconcileOutcome:
    if outcome.failure is None:
        return replace(outcome, mapped={}, remark=remark)
    return replace(outcome, mapped={}, failure=f"{outcome.failure}\n{remark}")
