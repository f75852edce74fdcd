"""Reads and writes the primaries of one kind and their status, and repeats writes that must not get lost.

An object may be deleted and recreated at any time. The outcome of a run belongs to the object that the run worked for:
another object of the same name counts as not found. An earlier version than the operator has seen is read again, for a
few seconds. With leader election, nothing is written once another replica may be the leader.

A new status is computed from the object as it is at that moment and written with its resourceVersion, so no change of
another client is lost. After a conflict, the object is read and written again; while the API server is unavailable, the
write is retried, without another run. A server that responds but keeps rejecting, for example because a webhook is
broken, blocks a worker for a minute at most; then the reconcile fails.

If the API server rejects the values of a status, those that it accepts are written. Everything that isn't stored as it
was sent is reported: rejected values, and conditions and mapped fields that the schema of the kind drops.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from rolecall.kube.client import Client
from rolecall.kube.errors import (
    ApiError,
    ConflictError,
    KubeError,
    NotFoundError,
    NotServedError,
    TooLargeError,
    UnknownKindError,
    UnreachableError,
)
from rolecall.kube.json_values import all_values
from rolecall.kube.metadata import generation_of, is_later, resource_version_of, status_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.store import Entry
from rolecall.runner.election.elector import LeadershipLostError
from rolecall.runner.reconcile.second_operator import SecondOperator
from rolecall.runner.reconcile.status import (
    ConditionContext,
    Readiness,
    Status,
    conditions_of,
    is_ours,
    should_write,
    smaller,
)
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.system.clock import SYSTEM_CLOCK
from rolecall.system.logs import get_logger

logger = get_logger("status")
REREAD_SECONDS = (0.1, 0.5, 2.5)
"""The delays before an object is read again of which the operator knows a later version."""

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.1, 2.0
REJECTED_SECONDS = 60.0
BAD_VALUES = frozenset({400, 422})
TOO_MANY_REQUESTS, FIRST_CLIENT_ERROR, FIRST_SERVER_ERROR = 429, 400, 500
NOT_FOR_THE_VALUES = frozenset({401, 404, 409, 410, TOO_MANY_REQUESTS})
"""Not authenticated, not found, conflict, gone, too many requests: a status with other values has the same error."""

Written = TypeVar("Written")

Update = Callable[[Status, ConditionContext], Status]
"""Computes the new status from the old status."""


async def write_with_retry(write: Callable[[], Awaitable[Written]]) -> Written:
    """Call ``write``, which reads and then writes, until it succeeds; return what it returns.

    Raise KubeError for a response that waiting doesn't change: not found, forbidden, invalid, or rejected for a minute.
    If ``may_pass`` is true for the error, a later attempt may succeed.
    """
    loop = asyncio.get_running_loop()
    delay = FIRST_DELAY_SECONDS
    rejected_since: float | None = None
    while True:
        try:
            return await write()
        except KubeError as error:
            if not may_pass(error):
                raise
            now = loop.time()
            if isinstance(error, UnreachableError):
                rejected_since = None
            else:
                rejected_since = now if rejected_since is None else rejected_since
                if now - rejected_since >= REJECTED_SECONDS:
                    raise
            logger.info("Write failed, retrying", error=str(error), delay_seconds=delay)
        await asyncio.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY_SECONDS)


def may_pass(error: KubeError) -> bool:
    """Return whether the cause of an error may be temporary."""
    # A kind that has just been read may seem unknown while a gateway responds to discovery.
    if isinstance(error, ConflictError | NotServedError | UnknownKindError | UnreachableError):
        return True
    if isinstance(error, TooLargeError) or not isinstance(error, ApiError):
        return False
    return error.status == TOO_MANY_REQUESTS or error.status >= FIRST_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class Primaries:
    """The primaries of one kind; ``may_write`` returns whether this replica may still write."""

    client: Client
    gvk: GVK
    own_writes: OwnWrites
    may_write: Callable[[], bool] = lambda: True
    known: Callable[[ObjectKey], Entry | None] = lambda _key: None
    """Returns the informer's entry for an object."""

    async def read(self, key: ObjectKey, seen: str = "") -> RawObject:
        """Return an object, in the version ``seen`` or a later one, and in no earlier one than the informer has.

        A gateway, or a cache that lags, may respond with an earlier version. A run would work with that, or a status
        would count as written, and nothing would follow for the change. If it lags for long, the object is returned
        anyway: after a restore of the cluster, the known version may be one of the past.
        """
        delays = iter(REREAD_SECONDS)
        while True:
            found, known = await self.client.get(self.gvk, key), self.known(key)
            version = resource_version_of(found)
            if not is_later(seen, version) and (known is None or not known.is_after(version)):
                return found
            if (seconds := next(delays, None)) is None:
                logger.warning("Continuing with an earlier version than the known one")
                return found
            await asyncio.sleep(seconds)

    async def read_again(self, obj: RawObject) -> RawObject:
        """Return a primary as it is now. Raise NotFoundError if it was deleted, even if another has its name."""
        key = ObjectKey.of_object(obj)
        found = await self.read(key, resource_version_of(obj))
        if uid_of(found) != uid_of(obj):
            raise NotFoundError(404, "NotFound", f"{key} was deleted; another object has its name now")
        return found

    async def replace(self, obj: RawObject, subresource: str = "") -> RawObject:
        """Replace a primary, or a subresource of it, in the version that was read; return it as written."""
        if not self.may_write():
            raise LeadershipLostError(f"{ObjectKey.of_object(obj)} was not written: another replica may be the leader")
        written = await self.client.replace(obj, subresource)
        self.own_writes.record_write((self.gvk, ObjectKey.of_object(obj)), written)
        return written

    async def annotate(
        self,
        primary: ObjectKey,
        gvk: GVK,
        key: ObjectKey,
        known: Mapping[str, str],
        annotations: Mapping[str, str | None],
    ) -> RawObject:
        """Set annotations of an object, or remove those with None; this doesn't trigger the primary.

        ``known`` are fields of its metadata that the object must have, its ``uid`` or also its ``resourceVersion``.
        """
        patch = {"metadata": {**known, "annotations": annotations}}
        written = await self.client.patch(gvk, key, patch)
        self.own_writes.record_write((self.gvk, primary), written)
        return written


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Writes the status of the objects of one kind, with ``Ready`` and the others if these are on."""

    primaries: Primaries
    readiness: Readiness = field(default_factory=lambda: Readiness(is_on=False))
    report: Callable[[RawObject, str], None] = lambda _obj, _problem: None
    """Reports that a status was not stored as it was sent."""

    moves_changed: bool = False
    """Whether a changed condition moves to the end of the list, as in the Go runner."""

    now: Callable[[], float] = SYSTEM_CLOCK.now
    """The wall clock of the times in conditions, in seconds."""

    second_operator: SecondOperator | None = None
    """Receives each object that is read for its status, and each as it is afterwards."""

    async def mark_running(self, primary: RawObject) -> RawObject | None:
        """Mark a run as in progress and return the object as written; None if it was deleted or cannot be written.

        No run depends on this mark, so the write is attempted once.
        """
        try:
            return await self._write_once(primary, self.readiness.while_running)
        except KubeError as error:
            logger.info("Failed to mark the object as running", error=str(error))
            return None

    async def mark_paused(self, primary: RawObject) -> None:
        """Mark the object as paused; a deleted primary needs no status."""
        await self._write_until_done(primary, self.readiness.while_paused)

    async def write(self, primary: RawObject, outcome: Outcome, before: Status | None = None) -> Status:
        """Write the outcome of a run that worked with this version of the primary.

        ``before`` is the status from before the run, which an interrupted run restores in part. Return the status as it
        is afterwards. Raise NotFoundError if the primary was deleted.
        """

        def update(old: Status, context: ConditionContext) -> Status:
            if outcome.is_interrupted:
                return self.readiness.after_interruption(old, before or {}, outcome.message, context)
            context = replace(context, written=outcome.conditions_of(primary))
            return self.readiness.after_run(old, outcome, context)

        write = partial(self._write_until_done, primary, update, generation_of(primary))
        if unfit := {name for name, value in outcome.reported.mapped.items() if not _is_finite(value)}:
            reason = "found a number that is infinite or NaN, expected one that JSON can hold"
            outcome = _without_mapped(outcome, unfit, f"{', '.join(sorted(unfit))}: {reason}")
        try:
            stored = await write(may_reduce=not outcome.reported.mapped)
        except ApiError as error:
            if not outcome.reported.mapped or not _rejects_values(error):
                raise
            outcome = _without_mapped(outcome, set(outcome.reported.mapped), error.message)
            return await write()
        mapped = outcome.reported.mapped if conditions_of(stored) else {}  # a kind may have no status at all
        if lost := [name for name, each in mapped.items() if not _contains(stored.get(name), each)]:
            names = ", ".join(f"status.{name}" for name in sorted(lost))
            self.report(primary, f"The schema of the CRD drops {names}, or a part: add what the watch maps to it")
        return stored

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deleted object."""
        if self.second_operator is not None:
            self.second_operator.forget(key)

    async def _write_until_done(
        self, primary: RawObject, update: Update, generation: int | None = None, *, may_reduce: bool = True
    ) -> Status:
        write = partial(self._write_once, primary, update, generation, may_reduce=may_reduce)
        return status_of(await write_with_retry(write))

    async def _write_once(
        self, primary: RawObject, update: Update, generation: int | None = None, *, may_reduce: bool = False
    ) -> RawObject:
        """Do what ``_update_once`` does, and compare the conditions with those that the last call has left."""
        obj = await self.primaries.read_again(primary)
        if self.second_operator is None:
            return await self._update_once(obj, update, generation, may_reduce=may_reduce)
        self.second_operator.check(obj)
        self.second_operator.forget(ObjectKey.of_object(obj))  # a write without a response may have succeeded
        written = await self._update_once(obj, update, generation, may_reduce=may_reduce)
        self.second_operator.left(written)
        return written

    async def _update_once(
        self, obj: RawObject, update: Update, generation: int | None, *, may_reduce: bool
    ) -> RawObject:
        """Update and replace; return the object as it is afterwards. Raise NotFoundError if it was deleted.

        ``generation`` is the one that the new status describes, None for the current one. That of a built-in kind isn't
        written: there, ``observedGeneration`` describes the work of Kubernetes.
        """
        now, old = datetime.fromtimestamp(self.now(), UTC), status_of(obj)
        is_outcome = generation is not None
        generation = generation_of(obj) if generation is None else generation
        generation = 0 if self.primaries.gvk.is_built_in else generation
        new = update(old, ConditionContext(now, generation, moves_changed=self.moves_changed))
        if not should_write(old, new, now):
            return obj
        resource = await self.primaries.client.resource(self.primaries.gvk)
        if "status" not in resource.subresources:
            logger.warning("Kind has no status subresource; set manageStatus: false or add the subresource to the CRD")
            return obj
        try:
            written = await self.primaries.replace({**obj, "status": new}, "status")
        except ApiError as error:
            if not may_reduce or not (isinstance(error, TooLargeError) or error.status in BAD_VALUES):
                raise
            causes = error.details.get("causes")
            fields = [str(each.get("field")) for each in causes or () if isinstance(each, dict)]
            written = await self.primaries.replace({**obj, "status": smaller(old, new, fields)}, "status")
            self.report(obj, f"The API server rejected the status, only a part of it was written: {error.message}")
        else:
            if (may_reduce or is_outcome) and (types := _dropped(new, status_of(written))):
                self.report(obj, f"The schema of the CRD drops conditions, or their reasons: {', '.join(types)}")
        return written


def _dropped(sent: Status, stored: Status) -> list[str]:
    """Return the types of the operator's conditions that were not stored with their status and reason."""
    kept = [(each.get("type"), each.get("status"), each.get("reason")) for each in conditions_of(stored)]
    own = filter(is_ours, conditions_of(sent))
    return [each["type"] for each in own if (each["type"], each["status"], each["reason"]) not in kept]


def _contains(stored: object, sent: object) -> bool:
    """Return whether a stored value has everything that was sent; the API server may have added defaults."""
    if isinstance(sent, Mapping):
        return isinstance(stored, Mapping) and all(_contains(stored.get(name), each) for name, each in sent.items())
    if isinstance(sent, list) and isinstance(stored, list):
        return len(stored) == len(sent) and all(map(_contains, stored, sent))
    return stored == sent


def _rejects_values(error: ApiError) -> bool:
    """Return whether another status of the same object may be accepted where this one was rejected."""
    is_client_error = FIRST_CLIENT_ERROR <= error.status < FIRST_SERVER_ERROR
    return isinstance(error, TooLargeError) or (is_client_error and error.status not in NOT_FOR_THE_VALUES)


def _is_finite(value: object) -> bool:
    """Return whether a value has no numbers that JSON can't represent, at any depth."""
    return all(math.isfinite(each) for each in all_values(value) if isinstance(each, float))


def _without_mapped(outcome: Outcome, fields: set[str], why: str) -> Outcome:
    """Return an outcome without some of its mapped fields, with a remark that reports this."""
    logger.warning("Mapped status was rejected", error=why, fields=sorted(fields))
    reported = outcome.reported
    mapped = {name: value for name, value in reported.mapped.items() if name not in fields}
    remarks = (*reported.remarks, f"the mapped status was rejected: {why}")
    return replace(outcome, reported=replace(reported, mapped=mapped, remarks=remarks))
