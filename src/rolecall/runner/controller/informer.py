"""The informer: keeps a store of all objects of one kind, and calls handlers with every change.

A ``Reflector`` is the list-and-watch loop below it. It lists in pages, then watches from the resourceVersion of the
list. When a watch ends, it resumes from the last version; when that version has expired (410 Gone), or when the cluster
has a lower one because it was restored, it lists again. A list whose version, or an object in it, is older than what
is known shows a restore, too. It runs until it is cancelled: while the API server is unreachable, the kind isn't
installed, or a permission is missing, it retries, as ``WatchRetry`` decides.

All consumers of a kind share one informer. A handler gets each change once and in order; changes that happened while
the API server was unreachable follow after the next list, and so does the deletion of an object that only a client of
the operator has seen. Neither a failing handler nor a missing permission stops the informer.

Each type of failure has its own backoff: short for an unreachable API server, a few seconds for a kind that isn't
installed, longer for a missing permission. While the API server is unreachable, all kinds wait; any other failure
blocks only its own kind, after a number of consecutive failures. A failure is logged as a warning when it starts and
every ten minutes while it lasts, and its end is logged once. Other retries are logged at debug level.

State is never shown without its age: an informer reports when its store was last known to be current
(``confirmed_at``) and, while it can't watch, why (``trouble``).
"""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Never, Protocol

from rolecall.kube.client import Client, Selection, is_partial
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import (
    ApiError,
    ForbiddenError,
    GoneError,
    KubeError,
    NotFoundError,
    NotServedError,
    ResponseTimeoutError,
    UnknownKindError,
    UnreachableError,
)
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.metadata import is_later, resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.store import Change, Entry, Store
from rolecall.runner.controller.work_queue import Backoff
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("informer")

_WATCH_SECONDS = 300.0
SILENCE_SECONDS = 150.0
"""How long a watch may be silent: an API server that sends bookmarks sends one each minute, at most 75 s apart."""
_HEALTHY_SECONDS = 5.0  # a watch that lasted this long has worked, even without events
_YIELD_SECONDS = 0.01  # let other tasks run after this time: an object may take microseconds or milliseconds
_REMIND_SECONDS = 600.0
_BLOCKING_EXPIRIES = 5
_EXPIRY_BACKOFF = Backoff(0.05, 10.0)
_EXPIRES = "Lists expire before their end; listing again"
_UNAUTHORIZED, _METHOD_NOT_ALLOWED = 401, 405


_RESTORE_SECONDS = 1.0
"""A restore of the cluster takes longer: without a watch for this time, there may have been one."""


class ScopeChangedError(Exception):
    """A namespaced kind is cluster-scoped now, or the reverse."""


class Sink(Protocol):
    """The consumer of a reflector's objects and events; its methods must not raise."""

    def on_listed(self, obj: RawObject) -> None:
        """Handle an object from a list."""

    def on_list_complete(self, namespace: str | None, listed_keys: set[ObjectKey], resource_version: str) -> None:
        """Handle the end of a list with these objects and this version; no other objects exist in the namespace."""

    def on_watch_event(self, event_type: str, obj: RawObject) -> None:
        """Handle a watch event: ADDED, MODIFIED or DELETED."""

    def on_progress(self, resource_version: str) -> None:
        """Handle that every change up to a version was delivered."""

    def on_restored(self) -> None:
        """Handle that the cluster was restored to an earlier version: versions seen so far are no longer valid."""

    def on_blocked(self, namespace: str | None, reason: str) -> None:
        """Handle that the kind can't be listed and watched for now, so nothing should wait for it."""


@dataclass(slots=True)
class Reflector:
    """One list-and-watch loop; with ``namespace`` None for all namespaces, or for a cluster-scoped kind.

    If ``namespaced`` is given, it is the scope of the kind, and ``run`` raises ScopeChangedError before it lists a kind
    that was installed again with another scope. With ``is_quiet`` the sink reports failures.
    """

    client: Client
    gvk: GVK
    namespace: str | None
    sink: Sink
    clock: Clock
    selection: Selection | None = None
    namespaced: bool | None = None
    is_quiet: bool = False
    _resource_version: str = ""
    _left_version: str = ""
    """The version of the last watch that a list replaced, because it had expired, or the kind wasn't installed."""
    _listed_version: str = ""
    _sends_bookmarks: bool = False
    """Whether the last watch received a bookmark; not every API server sends them for every kind."""
    _is_lost: bool = False
    """Whether the last watch ended before its time, as it does if the API server restarts, or long before the next."""
    confirmed_at: float | None = None
    """When the sink was last known to have the current state, on the monotonic clock; None before the first list."""
    _watching_since: float = math.inf
    _last_yield: float = 0.0
    _retry: "WatchRetry" = field(init=False)

    def __post_init__(self) -> None:
        """Start to count failures."""
        self._retry = WatchRetry(self.gvk, self.namespace, self.is_quiet)

    @property
    def trouble(self) -> str:
        """Why the sink's state may be out of date, empty if it is watched; a watch that lasts works without events."""
        failure = self._retry.failure
        if failure is None:
            return self._retry.blocked_reason
        return "" if self.clock.monotonic() - self._watching_since >= _HEALTHY_SECONDS else failure.message

    def has_skipped(self, namespace: str, version: str) -> bool:
        """Return whether a list has replaced the expired watch that would have delivered this version."""
        is_between = is_later(version, self._left_version) and is_later(self._listed_version, version)
        return self.namespace in (None, namespace) and is_between

    def may_skip(self, namespace: str, version: str) -> bool:
        """Return whether neither a list nor the watch has come to this version."""
        is_ahead = not self._resource_version or is_later(version, self._resource_version)
        return self.namespace in (None, namespace) and is_ahead

    async def run(self) -> Never:
        """List and watch until cancelled."""
        retry = self._retry
        while True:
            started, seconds = self.clock.monotonic(), 0.0
            try:
                await self.client.resource(self.gvk)  # a watch needs it, and it may take longer than a restore
                self._is_lost |= self.clock.monotonic() - started >= _RESTORE_SECONDS
                if self._is_lost and self._resource_version and await self._is_restored():
                    self._resource_version = self._left_version = ""
                    self.sink.on_restored()
                self._is_lost = False
                if not self._resource_version:
                    self._resource_version = await self._list()
                    retry.record_success()
                self._watching_since = self.clock.monotonic()
                if await self._watch() or self.clock.monotonic() - self._watching_since >= 1:
                    retry.record_progress()
                else:
                    seconds = retry.delay_after_early_end()
            except KubeError as error:
                self._is_lost, self._watching_since = True, math.inf
                if isinstance(error, GoneError):
                    logger.info("Watch expired; listing again", gvk=str(self.gvk), reason=str(error))
                    seconds = retry.delay_after_expiry()
                    self._leave_watch()
                else:
                    if self.clock.monotonic() - started >= _HEALTHY_SECONDS:
                        retry.record_progress()
                    seconds = retry.delay_after_failure(error)
                    if retry.failure is WatchFailure.NOT_INSTALLED:
                        self._leave_watch()  # a kind installed again has other objects
                if retry.blocked_reason:
                    self.sink.on_blocked(self.namespace, retry.blocked_reason)
            await sleep(self.clock, seconds)

    def _leave_watch(self) -> None:
        self._left_version, self._resource_version = self._resource_version or self._left_version, ""

    async def _is_restored(self) -> bool:
        """Return whether the version of the collection is lower than that of the watch.

        A watch from a version of the future waits without an error until the versions reach it.
        """
        async for _, version in self.client.list_pages(self.gvk, self.namespace, self.selection):
            own = self._resource_version
            return version.isdecimal() and own.isdecimal() and int(version) < int(own)
        return False

    async def _list(self) -> str:
        if self.namespaced is not None and (await self.client.resource(self.gvk)).namespaced != self.namespaced:
            raise ScopeChangedError(self.gvk)
        listed_keys: set[ObjectKey] = set()
        version = ""
        async for items, version in self.client.list_pages(self.gvk, self.namespace, self.selection):
            if is_later(self._left_version, version):
                self._left_version = ""
                self.sink.on_restored()
            for item in items:
                # The API server omits these in the items of a list.
                item.setdefault("apiVersion", self.gvk.api_version)
                item.setdefault("kind", self.gvk.kind)
                listed_keys.add(ObjectKey.of_object(item))
                self._deliver(None, item)
                await self._yield_if_due()
            await asyncio.sleep(0)
        self.sink.on_list_complete(self.namespace, listed_keys, version)
        self.confirmed_at = self.clock.monotonic()
        self._listed_version = version
        return version

    async def _watch(self) -> bool:
        """Deliver the events of one watch, and return whether there were any.

        A server that hangs keeps the connection alive; that its bookmarks are missing is the only sign.
        """
        has_events, started = False, self.clock.monotonic()
        seconds = _WATCH_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - spreads the ends of watches
        limit = SILENCE_SECONDS if self._sends_bookmarks else None
        try:
            async with asyncio.timeout(limit) as silence:
                start = self._resource_version
                async for event_type, obj in self.client.watch(
                    self.gvk, self.namespace, start, seconds, self.selection
                ):
                    if not has_events:
                        self._retry.record_progress()
                    has_events = True
                    if event_type == "BOOKMARK":
                        self._sends_bookmarks = True
                    else:
                        self._deliver(event_type, obj)
                    self._resource_version = resource_version_of(obj) or self._resource_version
                    self.sink.on_progress(self._resource_version)
                    self.confirmed_at = self.clock.monotonic()
                    if self._sends_bookmarks:
                        silence.reschedule(asyncio.get_running_loop().time() + SILENCE_SECONDS)
                    await self._yield_if_due()
        except TimeoutError:
            self._sends_bookmarks = False
            raise ResponseTimeoutError(f"no bookmark for {SILENCE_SECONDS:.0f} s") from None
        self._is_lost = self.clock.monotonic() - started < seconds - 1
        if not self._is_lost:
            self.confirmed_at = self.clock.monotonic()
        return has_events

    async def _yield_if_due(self) -> None:
        if self.clock.monotonic() - self._last_yield >= _YIELD_SECONDS:
            await asyncio.sleep(0)
            self._last_yield = self.clock.monotonic()

    def _deliver(self, event_type: str | None, obj: RawObject) -> None:
        """Pass an object of a list (``event_type`` None) or of a watch to the sink; skip it if it's unreadable."""
        try:
            if is_partial(obj):
                return  # the client has logged it; the sink keeps the last state
            if event_type is None:
                self.sink.on_listed(obj)
            else:
                self.sink.on_watch_event(event_type, obj)
        except RecursionError:
            key = ObjectKey.of_object(obj)
            logger.exception("Skipping an object that is nested too deeply", gvk=str(self.gvk), object=str(key))


class Informer:
    """Lists and watches one kind, in the given namespaces or, with None, in all namespaces."""

    def __init__(self, client: Client, gvk: GVK, namespaces: tuple[str, ...] | None, clock: Clock) -> None:
        self.gvk = gvk
        self.store = Store()
        self._client = client
        self._namespaces = namespaces
        self._clock = clock
        self._handlers: tuple[Callable[[Change], None], ...] = ()
        self._fields: dict[FieldPath, int] = {}
        self._expected: dict[ObjectKey, Entry] = {}
        """Objects that a client has seen since the first list, before the watch: if it expires, it may skip them."""
        self._has_reported_restore = False
        """Whether a restore was reported, and not all objects have been listed since."""
        self._unlisted: set[str | None] = set(namespaces or (None,))
        self._blocked: dict[str | None, str] = {}
        self._discovery = WatchRetry(gvk, None)
        self._reflectors: list[Reflector] = []
        self.on_restore: Callable[[], None] = lambda: None
        """Called when the cluster was restored to an earlier version, before the objects are listed again."""
        self.synced = asyncio.Event()
        """Set when the first list is complete and the handlers have received its objects."""
        self.settled = asyncio.Event()
        """Set when the informer is synced, or can't sync for now, see ``blocked_reason``."""

    @property
    def blocked_reason(self) -> str:
        """Why the first list can't be completed for now; empty if it is complete or may be soon."""
        return next((reason for namespace, reason in self._blocked.items() if namespace in self._unlisted), "")

    @property
    def trouble(self) -> str:
        """Why the store may be incomplete or out of date; empty while everything is watched."""
        if self._discovery.failure is not None:
            return self._discovery.failure.message
        return next((each.trouble for each in self._reflectors if each.trouble), "")

    @property
    def confirmed_at(self) -> float | None:
        """When the store was last known to be current, on the monotonic clock; None before the first list."""
        times = [each.confirmed_at for each in self._reflectors if each.confirmed_at is not None]
        return min(times) if times and len(times) == len(self._reflectors) else None

    def subscribe(self, handler: Callable[[Change], None], fields: tuple[FieldPath, ...] = ()) -> None:
        """Call a handler with every further change; ``fields`` are those that ``Change.has_changed`` must compare.

        Subscribe before the informer runs to receive the existing objects too. A handler must not block. Exceptions it
        raises are logged and don't stop the informer.
        """
        for path in fields:
            self._fields.setdefault(path, len(self._fields))
        self._handlers += (handler,)

    def expect(self, obj: RawObject) -> None:
        """Note an object that a client has seen, so that its change or deletion is noticed although no event tells.

        The first list is compared with it, and so is a list that replaces an expired watch.
        """
        key, version = ObjectKey.of_object(obj), resource_version_of(obj)
        known = self.store.get(key)
        if self._awaits_list_of(key.namespace):
            if known is None or not known.is_after(version):
                self.store.put(Entry.of(obj, self._fields))
        elif known is None or known.uid != uid_of(obj) or known.is_after(version):
            for each in self._reflectors:
                if each.has_skipped(key.namespace, version):
                    self._report_skipped(Entry.of(obj, self._fields), obj)
                elif each.may_skip(key.namespace, version):
                    self._expected[key] = Entry.of(obj, self._fields)

    def _awaits_list_of(self, namespace: str) -> bool:
        """Return whether the first list of the objects in a namespace isn't complete."""
        return not self._unlisted.isdisjoint((None, namespace))

    async def run(self) -> Never:
        """List and watch until cancelled."""
        while True:
            resource = await self._find_resource()
            self._blocked.clear()
            namespaces = self._namespaces if resource.namespaced and self._namespaces is not None else (None,)
            self._unlisted = set(namespaces)
            try:
                self._reflectors = [
                    Reflector(self._client, self.gvk, each, self, self._clock, namespaced=resource.namespaced)
                    for each in namespaces
                ]
                async with asyncio.TaskGroup() as group:
                    for reflector in self._reflectors:
                        group.create_task(reflector.run())
            except* ScopeChangedError:
                logger.info("Scope of this kind has changed; listing again", gvk=str(self.gvk))
                self._expected.clear()
                self._remove(list(self.store))  # the kind was deleted together with its objects

    async def _find_resource(self) -> ApiResource:
        retry = self._discovery
        while True:
            try:
                resource = await self._client.resource(self.gvk)
            except KubeError as error:
                seconds = retry.delay_after_failure(error)
                if retry.blocked_reason:
                    self._blocked = dict.fromkeys(self._unlisted, retry.blocked_reason)
                    self._update_sync_state()
                await sleep(self._clock, seconds)
            else:
                retry.record_success()
                return resource

    def on_listed(self, obj: RawObject) -> None:
        """Store an object from a list, unless it is expected in a later version: the watch delivers that."""
        entry = Entry.of(obj, self._fields)
        known = self.store.get(entry.key)
        is_first = self._awaits_list_of(entry.namespace)
        if not is_first and known and known.uid == entry.uid and known.is_after(entry.resource_version):
            self.on_restored()
        expected = known if is_first else self._expected.get(entry.key)
        if expected is None or expected.uid != entry.uid or not expected.is_after(entry.resource_version):
            self._upsert(entry, obj, from_watch=False)

    def on_list_complete(self, namespace: str | None, listed_keys: set[ObjectKey], resource_version: str) -> None:
        """Remove objects that are not in the list; the informer is synced when every namespace has been listed."""
        known = self.store if namespace is None else self.store.in_namespace(namespace)
        gone = [entry for entry in known if entry.key not in listed_keys]
        if namespace in self._unlisted:  # an expected object may be newer than the list; the watch delivers it
            gone = [entry for entry in gone if not entry.is_after(resource_version)]
        self._remove(gone)
        for entry in list(self._expected.values()):
            if namespace in (None, entry.namespace) and not entry.is_after(resource_version):
                del self._expected[entry.key]
                if entry.key not in listed_keys:
                    self._remove([entry])
        self._unlisted.discard(namespace)
        self._has_reported_restore = False
        self._update_sync_state()

    def on_watch_event(self, event_type: str, obj: RawObject) -> None:
        """Store a watch event."""
        entry = Entry.of(obj, self._fields)
        if (expected := self._expected.get(entry.key)) is not None and not expected.is_after(entry.resource_version):
            del self._expected[entry.key]
        if event_type == "DELETED":
            self._notify(self.store.remove(entry.key) or entry, None, obj, from_watch=True)
        else:
            self._upsert(entry, obj, from_watch=True)

    def on_progress(self, resource_version: str) -> None:
        """Do nothing: the reflector resumes by itself."""

    def on_restored(self) -> None:
        """Notify the controller, which remembers versions, once before or within a list."""
        if self._has_reported_restore:
            return
        self._has_reported_restore = True
        logger.warning("The cluster was restored to an earlier version; listing again", gvk=str(self.gvk))
        self._expected.clear()
        self.on_restore()

    def on_blocked(self, namespace: str | None, reason: str) -> None:
        """Record that a namespace can't be listed and watched for now."""
        self._blocked[namespace] = reason
        self._update_sync_state()

    def _update_sync_state(self) -> None:
        if not self._unlisted and not self.synced.is_set():
            logger.debug("Informer synced", gvk=str(self.gvk), objects=len(self.store))
            self.synced.set()
        if self._unlisted <= self._blocked.keys():
            self.settled.set()

    def _upsert(self, entry: Entry, obj: RawObject, *, from_watch: bool) -> None:
        before = self.store.put(entry) or (None if from_watch else self._expected.get(entry.key))
        if before is not None and before.uid != entry.uid:
            self._notify(before, None, before.tombstone(self.gvk), from_watch=False)
            before = None
        if before is None or before.resource_version != entry.resource_version:
            self._notify(before, entry, obj, from_watch=from_watch)

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.store.remove(entry.key)
            self._notify(entry, None, entry.tombstone(self.gvk), from_watch=False)

    def _report_skipped(self, seen: Entry, obj: RawObject) -> None:
        """Report what has happened to an object between a version that a client has seen, and a list."""
        known = self.store.get(seen.key)
        if known is None or known.uid != seen.uid:
            self._notify(seen, None, seen.tombstone(self.gvk), from_watch=False)
        else:
            self._notify(seen, known, obj, from_watch=False)

    def _notify(self, old: Entry | None, new: Entry | None, obj: RawObject, *, from_watch: bool) -> None:
        in_initial_list = not from_watch and not self.synced.is_set()
        change = Change(
            self.gvk, old, new, obj, from_watch=from_watch, in_initial_list=in_initial_list, fields=self._fields
        )
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                logger.exception("Event handler failed", gvk=str(self.gvk), object=str(change.key))


class WatchFailure(Enum):
    """A type of failure: its log message, its first and its maximum delay, and how many in a row block the kind."""

    UNREACHABLE = ("API server is unreachable; retrying", 0.2, 2.0, math.inf)
    NOT_INSTALLED = ("Kind is not installed; waiting for it", 1.0, 3.0, 1)
    # An API server that has just started denies all requests until it has loaded RBAC: hence the short first delay.
    FORBIDDEN = ("Not permitted to watch this kind; its changes will not trigger reconciles", 0.5, 30.0, 1)
    # A list that times out has already taken 30 s; other requests may fail briefly while an API server starts.
    TIMED_OUT = ("API server does not answer in time; retrying", 0.2, 10.0, 2)
    REQUEST_FAILED = ("Failed to list or watch; retrying", 0.2, 10.0, 5)

    def __init__(self, message: str, first_seconds: float, max_seconds: float, blocking_failures: float) -> None:
        """Name the parts of the value."""
        self.message = message
        self.backoff = Backoff(first_seconds, max_seconds)
        self.blocking_failures = blocking_failures

    @classmethod
    def of(cls, error: KubeError) -> "WatchFailure":
        """Return the failure type of an error."""
        if isinstance(error, ResponseTimeoutError):
            return cls.TIMED_OUT
        if isinstance(error, UnreachableError):
            return cls.UNREACHABLE
        if isinstance(error, UnknownKindError | NotFoundError | NotServedError):
            return cls.NOT_INSTALLED
        is_denied = isinstance(error, ApiError) and error.status in (_UNAUTHORIZED, _METHOD_NOT_ALLOWED)
        return cls.FORBIDDEN if is_denied or isinstance(error, ForbiddenError) else cls.REQUEST_FAILED


@dataclass(slots=True)
class WatchRetry:
    """The consecutive failures of one list-and-watch loop; with ``is_quiet`` its caller logs them instead."""

    gvk: GVK
    namespace: str | None
    is_quiet: bool = False
    failure: WatchFailure | None = None
    _failures: int = 0
    """The failures of this type in a row."""
    _answered_failures: int = 0
    """The failures of any type in a row in which the API server responded."""
    _expiries: int = 0
    _seconds_since_warning: float = 0.0

    @property
    def blocked_reason(self) -> str:
        """Why the operator should start without this kind; empty if it may recover soon or if all kinds must wait."""
        if self.failure is not None and self._answered_failures >= self.failure.blocking_failures:
            return self.failure.message
        return _EXPIRES if self._expiries >= _BLOCKING_EXPIRIES else ""

    def delay_after_failure(self, error: KubeError) -> float:
        """Record a failure and return the delay in seconds; up to half of it is jitter."""
        failure = WatchFailure.of(error)
        if failure is not self.failure:
            self._failures, self._seconds_since_warning = 0, 0.0
        is_due = self._seconds_since_warning == 0 or self._seconds_since_warning >= _REMIND_SECONDS
        if is_due:
            self._seconds_since_warning = 0.0
        log = logger.warning if is_due and not self.is_quiet else logger.debug
        log(failure.message, gvk=str(self.gvk), watched_namespace=self.namespace or "all", reason=str(error))
        self.failure = failure
        self._answered_failures = 0 if failure is WatchFailure.UNREACHABLE else self._answered_failures + 1
        seconds = self._next_delay(failure)
        self._seconds_since_warning += seconds
        return seconds

    def delay_after_early_end(self) -> float:
        """Record that a watch ended immediately without an error, and return the delay in seconds."""
        return self._next_delay(WatchFailure.UNREACHABLE)

    def delay_after_expiry(self) -> float:
        """Record that a resourceVersion has expired, and return the delay in seconds, which is short at first."""
        self._expiries += 1
        return _delay(_EXPIRY_BACKOFF, self._expiries)

    def record_progress(self) -> None:
        """Record that a watch delivered an event, or lasted long enough."""
        self._expiries = 0
        self.record_success()

    def record_success(self) -> None:
        """Record that a request succeeded."""
        if self.failure is not None and not self.is_quiet:
            logger.info("Watching this kind again", gvk=str(self.gvk), watched_namespace=self.namespace or "all")
        self._failures, self.failure, self._answered_failures = 0, None, 0

    def _next_delay(self, failure: WatchFailure) -> float:
        self._failures += 1
        return _delay(failure.backoff, self._failures - 1)


def _delay(backoff: Backoff, failures: int) -> float:
    """Return the delay after so many earlier failures; up to half of it is jitter."""
    return backoff.delay_seconds(failures) * random.uniform(0.5, 1.0)  # noqa: S311 - not for security
