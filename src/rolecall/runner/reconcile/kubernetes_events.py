"""Kubernetes Events about primaries: failures, recoveries, and runs that changed something.

Events are for people (``kubectl describe``), so they never block anything: they are written in the background and
dropped if there are too many, and a missing permission causes one log line for each namespace, whose Events stop for a
while: a permission in one namespace says nothing about another. Equal Events become one Event with a count.
Each object has an allowance that refills slowly, so that a loop can't flood its namespace. No Event is written about an
object of the kind Event.

The Events of a failure and of a change name the causes of the run, so that users see which controllers trigger each
other in a loop. A run that changed nothing causes no Event, so an idle cluster has none. The log has every run.
"""

import asyncio
import contextlib
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Never

from rolecall.kube.client import Client
from rolecall.kube.errors import ForbiddenError, KubeError, NotFoundError
from rolecall.kube.metadata import resource_version_of, status_of, uid_of
from rolecall.kube.quantities import time_text
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import is_event
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.status import FAILURE, left_out_remark, own_condition
from rolecall.runner.runs.events import cut
from rolecall.system.blocking_work import running_in_background
from rolecall.system.clock import SYSTEM_CLOCK
from rolecall.system.logs import get_logger

logger = get_logger("events")

EVENT = GVK("", "v1", "Event")
NORMAL, WARNING = "Normal", "Warning"
COMPONENT = "rolecall"
MESSAGE_LIMIT_BYTES = 1024
NAME_LIMIT = 253
BURST, REFILL_SECONDS = 15.0, 30.0
"""The number of Events that an object may cause immediately, and the time until it may cause one more."""
_MUTE_SECONDS = 600.0
_MAX_WAITING = 256
_MAX_REMEMBERED = 2048
_LAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class EventSpec:
    """The contents of an Event; equal Events are counted, not repeated."""

    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _Written:
    """An Event on the API server."""

    name: str
    count: int
    first: str


@dataclass(slots=True)
class EventRecorder:
    """Writes Events; ``now`` is the wall clock and ``monotonic`` the clock of the allowance, both in seconds."""

    client: Client
    now: Callable[[], float] = SYSTEM_CLOCK.now
    monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic
    _waiting: asyncio.Queue[tuple[RawObject, EventSpec]] = field(default_factory=lambda: asyncio.Queue(_MAX_WAITING))
    _written: OrderedDict[tuple[str, EventSpec], _Written] = field(default_factory=OrderedDict)
    _allowances: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _muted_until: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """By the namespace of the Events."""

    def record(self, obj: RawObject, spec: EventSpec) -> None:
        """Queue an Event about an object, unless there are too many. Never blocks."""
        reference = _reference(obj)
        muted_until = self._muted_until.get(_namespace(reference), float("-inf"))
        if is_event(GVK.of_object(obj)) or self.monotonic() < muted_until:
            return
        if not self._take_from_allowance(uid_of(obj)):
            logger.debug("Event dropped: too many for this object", reason=spec.reason)
            return
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait((reference, spec))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["EventRecorder"]:
        """Write in the background; Events that are still queued at the end get one second."""
        async with running_in_background("Events", self._write_all):
            try:
                yield self
            finally:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_SECONDS):
                        await self._waiting.join()

    async def _write_all(self) -> Never:
        while True:
            reference, spec = await self._waiting.get()
            try:
                await self._write(reference, spec)
            except KubeError as error:
                self._report_error(error, _namespace(reference))
            finally:
                self._waiting.task_done()

    async def _write(self, reference: RawObject, spec: EventSpec) -> None:
        known = self._written.pop((reference["uid"], spec), None)
        written = await self._count_up(reference, known) if known else None
        if written is None:
            written = await self._create(reference, spec)
        self._written[reference["uid"], spec] = written
        while len(self._written) > _MAX_REMEMBERED:
            self._written.popitem(last=False)

    async def _count_up(self, reference: RawObject, known: _Written) -> _Written | None:
        """Increment the count of an Event; return None if it has expired, as Events do after an hour."""
        key = ObjectKey(_namespace(reference), known.name)
        try:
            await self.client.patch(EVENT, key, {"count": known.count + 1, "lastTimestamp": time_text(self.now())})
        except NotFoundError:
            return None
        return _Written(known.name, known.count + 1, known.first)

    async def _create(self, reference: RawObject, spec: EventSpec) -> _Written:
        stamp = time_text(self.now())
        suffix = f".{random.getrandbits(64):016x}"
        name = reference["name"][: NAME_LIMIT - len(suffix)].rstrip(".-") + suffix
        await self.client.create(
            {
                "apiVersion": EVENT.api_version,
                "kind": EVENT.kind,
                "metadata": {"name": name, "namespace": _namespace(reference)},
                "involvedObject": reference,
                "type": spec.type,
                "reason": spec.reason,
                "message": cut(spec.message, MESSAGE_LIMIT_BYTES),
                "count": 1,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "source": {"component": COMPONENT},
                "reportingComponent": COMPONENT,
            }
        )
        return _Written(name, 1, stamp)

    def _take_from_allowance(self, uid: str) -> bool:
        now = self.monotonic()
        left, since = self._allowances.pop(uid, (BURST, now))
        left = min(BURST, left + (now - since) / REFILL_SECONDS)
        is_allowed = left >= 1
        self._allowances[uid] = (left - 1 if is_allowed else left, now)
        while len(self._allowances) > _MAX_REMEMBERED:
            self._allowances.popitem(last=False)
        return is_allowed

    def _report_error(self, error: KubeError, namespace: str) -> None:
        if not isinstance(error, ForbiddenError) or "being terminated" in error.message:
            logger.debug("Failed to write an Event", error=str(error))
            return
        self._muted_until.pop(namespace, None)
        self._muted_until[namespace] = self.monotonic() + _MUTE_SECONDS
        while len(self._muted_until) > _MAX_REMEMBERED:
            self._muted_until.popitem(last=False)
        hint = "grant create and patch on events"
        logger.warning("Not permitted to write Events", event_namespace=namespace, error=str(error), hint=hint)


def _reference(obj: RawObject) -> RawObject:
    """Return the reference by which an Event names its object."""
    gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
    reference: dict[str, Any] = {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "name": key.name,
        "uid": uid_of(obj),
        "resourceVersion": resource_version_of(obj),
    }
    return reference | ({"namespace": key.namespace} if key.namespace else {})


def _namespace(reference: RawObject) -> str:
    """Return the namespace of an Event: its object's, or ``default`` for a cluster-scoped object."""
    return str(reference.get("namespace") or "default")


@dataclass(slots=True)
class EventReporter:
    """Reports the reconciles of one kind as Events to ``record``."""

    record: Callable[[RawObject, EventSpec], None]
    _failing: dict[ObjectKey, str] = field(default_factory=dict)
    """The objects whose last run failed, with their uid."""
    _left_out: dict[ObjectKey, tuple[str, ...]] = field(default_factory=dict)
    """The uid of objects whose last run left fields out, and the fields that an Event has named."""

    def failed(self, context: ReconcileContext, message: str) -> None:
        """Report a failure."""
        self._failing[context.key] = uid_of(context.obj)
        self.record(context.obj, EventSpec(WARNING, "ReconcileFailed", message + _started_by(context)))

    def succeeded(self, context: ReconcileContext) -> None:
        """Report a success after a failure, and a success that changed something."""
        failure = own_condition(status_of(context.obj), FAILURE) or {}
        had_failed = self._failing.pop(context.key, None) == uid_of(context.obj)
        if had_failed or failure.get("status") == "True":
            self.record(context.obj, EventSpec(NORMAL, "ReconcileRecovered", "Reconciled after a failure"))
        if changed := context.outcome.counts.changed:
            tasks = f"{changed} task{'s' if changed > 1 else ''} changed something"
            self.record(context.obj, EventSpec(NORMAL, "Reconciled", tasks + _started_by(context)))
        self._report_left_out(context)

    def _report_left_out(self, context: ReconcileContext) -> None:
        """Report the fields of the spec that the role didn't get, unless the Event of an earlier run names the same."""
        paths, known = context.outcome.left_out, self._left_out.pop(context.key, ())
        if not paths:
            return
        self._left_out[context.key] = current = (uid_of(context.obj), *paths)
        if current != known:
            remedy = "; update the role, or remove what is unknown to it"
            self.record(context.obj, EventSpec(WARNING, "FieldsLeftOut", _capitalized(left_out_remark(paths)) + remedy))

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deleted object."""
        self._failing.pop(key, None)
        self._left_out.pop(key, None)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _started_by(context: ReconcileContext) -> str:
    """Return the changes that started the run; empty for timers and retries, so that their Events are equal."""
    names = [cause.text for cause in context.causes if cause.resource_version]
    return f"; started by {', '.join(names)}" if names else ""
