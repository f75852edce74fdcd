"""The list-and-watch loop for one kind, in one namespace or in all namespaces.

It lists in pages, then watches from the resourceVersion of the list. When a watch ends, it watches again from the last
version; when that version has expired (410 Gone), it lists again. It runs until it is cancelled: if the API server is
unreachable, the kind is not installed or a permission is missing, it retries. Objects and events go to a ``Sink``, such
as an informer.

Retry and logging policy for list and watch errors.

Each type of failure has its own back-off: short for an unreachable API server, a few seconds for a kind that is not
installed, longer for a missing permission. As long as the API server is unreachable, all kinds wait; any other failure
blocks its own kind only, from some number of consecutive failures on. A failure is logged as a warning when it starts
and every ten minutes while it lasts, and there is one line when it is over. Other retries are logged at debug level.
"""

import asyncio
import math
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rolecall.kube.client import is_partial
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import (
    ApiError,
    ForbiddenError,
    GoneError,
    KubeError,
    NoAnswerInTimeError,
    NotFoundError,
    UnknownKindError,
    UnreachableError,
)
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("informer")

_REMIND_SECONDS = 600.0
_BLOCKING_EXPIRIES = 5
_EXPIRES = "Lists expire before their end; listing again"
_UNAUTHORIZED, _METHOD_NOT_ALLOWED = 401, 405


class WatchFailure(Enum):
    """A type of failure: its message, the first and the longest delay in seconds, and the failures until it blocks."""

    UNREACHABLE = ("API server is unreachable; retrying", 0.2, 2.0, math.inf)
    NOT_INSTALLED = ("Kind is not installed; waiting for it", 1.0, 3.0, 1.0)
    # An API server that has just started denies all requests until it has loaded RBAC: hence the short first delay.
    FORBIDDEN = ("Not permitted to watch this kind; its changes will not trigger reconciles", 0.5, 30.0, 1.0)
    # A list that takes too long has been waited for 30 s; other requests fail for a moment while an API server starts.
    TIMED_OUT = ("API server does not answer in time; retrying", 0.2, 10.0, 2.0)
    REQUEST_FAILED = ("Failed to list or watch; retrying", 0.2, 10.0, 5.0)

    @property
    def message(self) -> str:
        """The message that is logged."""
        return self.value[0]

    def delay_seconds(self, failures: int) -> float:
        """Return the delay after a failure that follows this many consecutive failures."""
        _, first, longest, _ = self.value
        return min(first * 2.0 ** min(failures, 16), longest)

    @classmethod
    def of(cls, error: KubeError) -> "WatchFailure":
        """Return the failure type of an error."""
        if isinstance(error, NoAnswerInTimeError):
            return cls.TIMED_OUT
        if isinstance(error, UnreachableError):
            return cls.UNREACHABLE
        if isinstance(error, UnknownKindError | NotFoundError):
            return cls.NOT_INSTALLED
        if isinstance(error, ForbiddenError):
            return cls.FORBIDDEN
        if isinstance(error, ApiError) and error.status in {_UNAUTHORIZED, _METHOD_NOT_ALLOWED}:
            return cls.FORBIDDEN
        return cls.REQUEST_FAILED

    @property
    def blocking_failures(self) -> float:
        """After how many consecutive failures the start of the operator waits no longer for this kind."""
        return self.value[3]


@dataclass(slots=True)
class WatchRetry:
    """The consecutive failures of one list-and-watch loop."""

    gvk: GVK
    namespace: str | None
    failures: int = 0
    failure: WatchFailure | None = None
    expiries: int = 0
    waited_seconds: float = 0.0
    answered_failures: int = 0
    """The consecutive failures of any type since the API server was unreachable, or since a success."""
    is_quiet: bool = False
    """Whether somebody else reports what cannot be watched."""

    @property
    def blocked_reason(self) -> str:
        """Why the start does not wait for this kind, empty if it may recover soon, or if all kinds must wait."""
        if self.failure is not None and self.answered_failures >= self.failure.blocking_failures:
            return self.failure.message
        return _EXPIRES if self.expiries >= _BLOCKING_EXPIRIES else ""

    def delay_after_failure(self, error: KubeError) -> float:
        """Record a failure and return the delay in seconds; up to half of it is jitter."""
        failure = WatchFailure.of(error)
        if failure is not self.failure:
            self.failures, self.waited_seconds = 0, 0.0
        is_logged = self.waited_seconds == 0 or self.waited_seconds >= _REMIND_SECONDS
        if self.waited_seconds >= _REMIND_SECONDS:
            self.waited_seconds = 0.0
        log = logger.warning if is_logged and not self.is_quiet else logger.debug
        log(failure.message, gvk=str(self.gvk), watched_namespace=self.namespace or "all", reason=str(error))
        self.failure = failure
        self.answered_failures = 0 if failure is WatchFailure.UNREACHABLE else self.answered_failures + 1
        seconds = self._next_delay(failure)
        self.waited_seconds += seconds
        return seconds

    def delay_after_early_end(self) -> float:
        """Record that a watch ended immediately without an error, and return the delay in seconds."""
        return self._next_delay(WatchFailure.UNREACHABLE)

    def delay_after_expiry(self) -> float:
        """Record that a resourceVersion has expired, and return the delay in seconds, which is short at first."""
        self.expiries += 1
        return _with_jitter(min(0.05 * 2.0 ** min(self.expiries, 16), 10.0))

    def record_progress(self) -> None:
        """Record that a watch delivered an event, or lasted long enough."""
        self.expiries = 0
        self.record_success()

    def record_success(self) -> None:
        """Record that a request succeeded."""
        if self.failure is not None and not self.is_quiet:
            logger.info("Watching this kind again", gvk=str(self.gvk), watched_namespace=self.namespace or "all")
        self.failures, self.failure, self.answered_failures = 0, None, 0

    def _next_delay(self, failure: WatchFailure) -> float:
        delay = failure.delay_seconds(self.failures)
        self.failures += 1
        return _with_jitter(delay)


def _with_jitter(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - not used for security


WATCH_SECONDS = 300.0
_HEALTHY_SECONDS = 5.0  # a watch that lasted this long has worked, even without events
_TURN_SECONDS = 0.01  # yield to other tasks after this time: an object may be tiny, or take milliseconds


class ScopeChangedError(Exception):
    """A kind that was namespaced is cluster-scoped now, or the reverse."""


class ListerWatcher(Protocol):
    """The requests to the API server that reflectors need; ``rolecall.kube.client.Client`` implements them.

    An object that cannot be read comes with its metadata alone: see ``rolecall.kube.client``.
    """

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the API resource of a kind. Raises UnknownKindError."""

    def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield the objects page by page, each with the list's resourceVersion. Raises GoneError."""

    def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield (type, object) for each event and bookmark until the timeout. Raises GoneError."""


class Sink(Protocol):
    """The consumer of a reflector's objects and events; its methods must not raise."""

    def on_listed(self, obj: RawObject) -> None:
        """Handle an object from a list."""

    def on_list_complete(self, namespace: str | None, listed_keys: set[ObjectKey]) -> None:
        """Handle the end of a list, with the keys of its objects; all other objects of the namespace are gone."""

    def on_watch_event(self, event_type: str, obj: RawObject) -> None:
        """Handle a watch event: ADDED, MODIFIED or DELETED."""

    def on_unreadable(self, key: ObjectKey) -> None:
        """Handle that an object exists whose new state cannot be read."""

    def on_blocked(self, namespace: str | None, reason: str) -> None:
        """Handle that the kind cannot be listed and watched for now, and that nobody should wait for it."""


@dataclass(slots=True)
class Reflector:
    """One list-and-watch loop; with ``namespace`` None for all namespaces, or for a cluster-scoped kind.

    If ``namespaced`` is given, it is the scope of the kind, and ``run`` raises ScopeChangedError before it lists a kind
    that was installed again with another scope.
    """

    source: ListerWatcher
    gvk: GVK
    namespace: str | None
    sink: Sink
    clock: Clock
    resource_version: str = ""
    turn_started: float = 0.0
    namespaced: bool | None = None
    retry: WatchRetry | None = None
    """Its failures so far; without it they are counted, and logged, from here."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        retry = self.retry or WatchRetry(self.gvk, self.namespace)
        while True:
            started = self.clock.monotonic()
            try:
                seconds = await self._list_and_watch(retry)
            except GoneError as error:
                logger.info("Watch expired; listing again", gvk=str(self.gvk), reason=str(error))
                self.resource_version = ""
                seconds = retry.delay_after_expiry()
                self._note_block(retry)
            except KubeError as error:
                if self.clock.monotonic() - started >= _HEALTHY_SECONDS:
                    retry.record_progress()
                seconds = self._handle_failure(retry, error)
            await sleep(self.clock, seconds)

    def _handle_failure(self, retry: WatchRetry, error: KubeError) -> float:
        seconds = retry.delay_after_failure(error)
        if retry.failure is WatchFailure.NOT_INSTALLED:
            self.resource_version = ""  # list again: a kind that is installed again has other objects
        self._note_block(retry)
        return seconds

    def _note_block(self, retry: WatchRetry) -> None:
        if retry.blocked_reason:
            self.sink.on_blocked(self.namespace, retry.blocked_reason)

    async def _list_and_watch(self, retry: WatchRetry) -> float:
        """List if necessary, watch once, and return the delay in seconds before the next watch."""
        if not self.resource_version:
            self.resource_version = await self._list()
            retry.record_success()
        started = self.clock.monotonic()
        events = await self._watch(retry)
        if events or self.clock.monotonic() - started >= 1:
            retry.record_progress()
            return 0.0
        return retry.delay_after_early_end()

    async def _list(self) -> str:
        if self.namespaced is not None and (await self.source.resource(self.gvk)).namespaced != self.namespaced:
            raise ScopeChangedError(self.gvk)
        listed_keys: set[ObjectKey] = set()
        version = ""
        async for items, version in self.source.list_pages(self.gvk, self.namespace):  # noqa: B007 - the last version is returned
            for item in items:
                # The API server omits these in the items of a list.
                item.setdefault("apiVersion", self.gvk.api_version)
                item.setdefault("kind", self.gvk.kind)
                listed_keys.add(ObjectKey.of_object(item))
                self._pass_on(None, item)
                await self._yield_turn()
            await asyncio.sleep(0)
        self.sink.on_list_complete(self.namespace, listed_keys)
        return version

    async def _watch(self, retry: WatchRetry) -> int:
        """Pass the events of one watch to the sink, and return their number."""
        events = 0
        seconds = WATCH_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - watches should not all end at once
        async for event_type, obj in self.source.watch(self.gvk, self.namespace, self.resource_version, seconds):
            if not events:
                retry.record_progress()
            events += 1
            if event_type != "BOOKMARK":
                self._pass_on(event_type, obj)
            self.resource_version = resource_version_of(obj) or self.resource_version
            await self._yield_turn()
        return events

    async def _yield_turn(self) -> None:
        """Let other tasks run if this one has not let them for some time."""
        if self.clock.monotonic() - self.turn_started >= _TURN_SECONDS:
            await asyncio.sleep(0)
            self.turn_started = self.clock.monotonic()

    def _pass_on(self, event_type: str | None, obj: RawObject) -> None:
        """Pass an object of a list (``event_type`` None) or of a watch to the sink, or that it cannot be read."""
        if is_partial(obj):
            self.sink.on_unreadable(ObjectKey.of_object(obj))
            return
        try:
            if event_type is None:
                self.sink.on_listed(obj)
            else:
                self.sink.on_watch_event(event_type, obj)
        except RecursionError:
            key = ObjectKey.of_object(obj)
            logger.exception("Skipping an object that is nested too deeply", gvk=str(self.gvk), object=str(key))
            self.sink.on_unreadable(key)
