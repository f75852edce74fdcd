"""The list-and-watch loop: everything that is and everything that changes, of one kind in one namespace or in all.

It lists in pages, then watches from the list's resourceVersion, goes on from the last one seen when a stream ends,
and lists again when the server has forgotten it (410 Gone). It never ends by itself: a server that is away, a kind
that is not installed and a missing permission are waited for. What it brings goes to a sink; ``informer`` is one.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from rolecall.controller.clock import Clock, sleep
from rolecall.controller.source.watch_retry import WatchFailure, WatchRetry
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import GoneError, KubeError
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.logs import get_logger

logger = get_logger("informer")

WATCH_SECONDS = 300.0
_HEALTHY_SECONDS = 5.0  # a watch that lasted so long has worked, even if no event came
_EVENTS_PER_TURN = 100  # after so many events without a pause others get their turn on the loop


class ListerWatcher(Protocol):
    """What this layer asks of the API server; ``rolecall.kube.client.Client`` has it."""

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return how a kind is served. Raises UnknownKindError."""

    def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield the objects page by page, each with the list's resourceVersion. Raises GoneError."""

    def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield (type, object) for each change and bookmark until the time is over. Raises GoneError."""


class Sink(Protocol):
    """Who takes what a stream brings; nothing here may raise."""

    def listed(self, obj: RawObject) -> None:
        """Take one object of a list."""

    def list_ended(self, namespace: str | None, seen: set[ObjectKey]) -> None:
        """Take the keys of all objects of a list: whatever else is known in that namespace is gone."""

    def changed(self, event_type: str, obj: RawObject) -> None:
        """Take an event of a watch: ADDED, MODIFIED or DELETED."""

    def stuck(self, namespace: str | None) -> None:
        """Hear that the kind cannot be watched until somebody does something about it."""


@dataclass(slots=True)
class Reflector:
    """One list-and-watch loop; ``namespace`` None means all namespaces, or a cluster-scoped kind."""

    source: ListerWatcher
    gvk: GVK
    namespace: str | None
    sink: Sink
    clock: Clock
    resource_version: str = ""

    async def run(self) -> None:
        """List and watch until cancelled."""
        retry = WatchRetry(self.gvk, self.namespace)
        while True:
            started = self.clock.monotonic()
            try:
                seconds = await self._list_and_watch(retry)
            except GoneError as error:
                logger.info("Watch is too old, listing again", gvk=str(self.gvk), reason=str(error))
                self.resource_version = ""
                seconds = retry.expired()
            except KubeError as error:
                if self.clock.monotonic() - started >= _HEALTHY_SECONDS:
                    retry.succeeded()
                seconds = self._failed(retry, error)
            await sleep(self.clock, seconds)

    def _failed(self, retry: WatchRetry, error: KubeError) -> float:
        seconds = retry.failed(error)
        if retry.failure is WatchFailure.MISSING:
            self.resource_version = ""  # what is installed anew has other objects
        if retry.failure is not None and retry.failure.is_lasting:
            self.sink.stuck(self.namespace)
        return seconds

    async def _list_and_watch(self, retry: WatchRetry) -> float:
        """Go once through list, if needed, and watch; return the seconds to wait before the next time."""
        if not self.resource_version:
            self.resource_version = await self._list()
            retry.recovered()
        started = self.clock.monotonic()
        events = await self._watch(retry)
        if events or self.clock.monotonic() - started >= 1:
            retry.succeeded()
            return 0.0
        return retry.ended_early()

    async def _list(self) -> str:
        seen: set[ObjectKey] = set()
        version = ""
        async for items, version in self.source.list_pages(self.gvk, self.namespace):  # noqa: B007 - the last one counts
            for item in items:
                # Items of a list lack what the list itself says once.
                item.setdefault("apiVersion", self.gvk.api_version)
                item.setdefault("kind", self.gvk.kind)
                seen.add(ObjectKey.of_object(item))
                self.sink.listed(item)
            await asyncio.sleep(0)
        self.sink.list_ended(self.namespace, seen)
        return version

    async def _watch(self, retry: WatchRetry) -> int:
        """Pass on the events of one stream and return how many there were."""
        events = 0
        seconds = WATCH_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - streams shall not all end together
        async for event_type, obj in self.source.watch(self.gvk, self.namespace, self.resource_version, seconds):
            if not events:
                retry.succeeded()
            events += 1
            if event_type != "BOOKMARK":
                self.sink.changed(event_type, obj)
            self.resource_version = resource_version_of(obj) or self.resource_version
            if events % _EVENTS_PER_TURN == 0:
                await asyncio.sleep(0)
        return events
