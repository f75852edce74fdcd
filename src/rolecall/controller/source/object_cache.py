"""A cache of complete objects, kept up to date by a watch for each kind that is read.

Reads never block: until a kind has been listed, and while it is listed again, there is no view of it, and the reader
sends the request to the API server. A view has the resourceVersion that the watch has reached, so that a reader that
has seen a newer version can tell. A kind is cached from its first read until the operator stops.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from rolecall.controller.clock import Clock, LoopClock
from rolecall.controller.source.reflector import ListerWatcher, Reflector
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.stored_object import StoredObject
from rolecall.logs import get_logger

logger = get_logger("cache")

_Objects = dict[str, dict[str, StoredObject]]


@dataclass(frozen=True, slots=True)
class View:
    """The objects of one kind in one namespace (empty: in all namespaces), at ``resource_version``.

    Use it before the next ``await``: the cache changes the underlying objects.
    """

    resource_version: str
    namespace: str
    _objects: Mapping[str, Mapping[str, StoredObject]]

    def get(self, key: ObjectKey) -> StoredObject | None:
        """Return an object, None if it does not exist."""
        return self._objects.get(key.namespace, {}).get(key.name)

    def __iter__(self) -> Iterator[StoredObject]:
        """Iterate over the objects by namespace and name, in the API server's order."""
        namespaces = [self.namespace] if self.namespace else sorted(self._objects)
        for namespace in namespaces:
            for _, stored in sorted(self._objects.get(namespace, {}).items()):
                yield stored


@dataclass(slots=True)
class KindCache:
    """The objects of one kind; only its reflectors write to it."""

    gvk: GVK
    reflectors: dict[str, Reflector] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    objects: _Objects = field(default_factory=dict)
    unreadable: set[ObjectKey] = field(default_factory=set)

    def start(self, source: ListerWatcher, namespaces: tuple[str, ...] | None, clock: Clock) -> None:
        """Start to list and watch, in these namespaces or in all namespaces."""
        for namespace in namespaces or (None,):
            reflector = self.reflectors[namespace or ""] = Reflector(source, self.gvk, namespace, self, clock)
            self.tasks.append(asyncio.create_task(reflector.run(), name=f"cache of {self.gvk} in {namespace or 'all'}"))

    def view(self, namespace: str) -> View | None:
        """Return a view of a namespace (empty: of all namespaces), None if it has not been listed completely.

        There is none either while an object of the kind cannot be read.
        """
        if self.unreadable:
            return None
        reflector = self.reflectors.get(namespace) or self.reflectors.get("")
        if reflector is None or not reflector.resource_version or any(task.done() for task in self.tasks):
            return None
        return View(reflector.resource_version, namespace, self.objects)

    def on_listed(self, obj: RawObject) -> None:
        """Store an object from a list."""
        stored = StoredObject.of(obj)
        self.unreadable.discard(stored.key)
        self.objects.setdefault(stored.key.namespace, {})[stored.key.name] = stored

    def on_list_complete(self, namespace: str | None, listed_keys: set[ObjectKey]) -> None:
        """Remove objects that are not in the list."""
        for each in [namespace] if namespace else list(self.objects):
            cached = self.objects.get(each, {})
            for name in [name for name in cached if ObjectKey(each, name) not in listed_keys]:
                del cached[name]
        gone = {key for key in self.unreadable if namespace in (None, key.namespace)} - listed_keys
        self.unreadable -= gone

    def on_watch_event(self, event_type: str, obj: RawObject) -> None:
        """Store a watch event."""
        if event_type == "DELETED":
            key = ObjectKey.of_object(obj)
            self.unreadable.discard(key)
            self.objects.get(key.namespace, {}).pop(key.name, None)
        else:
            self.on_listed(obj)

    def on_unreadable(self, key: ObjectKey) -> None:
        """Record that the cache does not have this object."""
        self.unreadable.add(key)

    def on_blocked(self, namespace: str | None, reason: str) -> None:
        """Log that the kind cannot be cached: there is no view, and reads go to the API server."""
        logger.debug(
            "Cannot cache this kind; reads go to the API server",
            gvk=str(self.gvk),
            watched_namespace=namespace or "all",
            reason=reason,
        )


class ObjectCache:
    """The caches of all kinds, each created on its first read; an async context manager that stops them.

    ``namespaces`` are those that the operator watches, None for all; other namespaces are not cached.
    """

    def __init__(
        self, source: ListerWatcher, namespaces: tuple[str, ...] | None = None, clock: Clock | None = None
    ) -> None:
        self._source = source
        self._namespaces = namespaces
        self._clock = clock or LoopClock()
        self._kinds: dict[GVK, KindCache] = {}

    async def __aenter__(self) -> Self:
        """Return the empty cache."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all watches."""
        tasks = [task for kind in self._kinds.values() for task in kind.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def view(self, resource: ApiResource, namespace: str) -> View | None:
        """Return a view of a kind in a namespace (empty: in all, or cluster-scoped); the first call starts to cache it.

        Return None if the kind has not been listed yet, or if the operator does not watch the namespace.
        """
        if self._namespaces is not None and namespace not in self._namespaces:
            return None
        kind = self._kinds.get(resource.gvk)
        if kind is None:
            kind = self._kinds[resource.gvk] = KindCache(resource.gvk)
            kind.start(self._source, self._namespaces, self._clock)
            for task in kind.tasks:
                task.add_done_callback(_note_crash)
            logger.info("Caching resource", gvk=str(resource.gvk))
        return kind.view(namespace)


def _note_crash(task: asyncio.Task[None]) -> None:
    """Log that a watch crashed; from then on its kind is read from the API server."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("Cache stopped; reads go to the API server", task=task.get_name(), error=repr(error))
