"""Whole objects of the kinds that somebody reads, kept up to date by a watch for each.

Reading is never waiting: until a kind's first list is complete, and again while it is listed anew, there is no view of
it, and the reader asks the API server instead. A view says how far the watch has come, so that a reader who has seen
something newer can tell. Each kind stays from its first reading until the end.
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
        """Return an object, None when it is not there."""
        return self._objects.get(key.namespace, {}).get(key.name)

    def __iter__(self) -> Iterator[StoredObject]:
        """Iterate over the objects by namespace and name, the API server's own order."""
        namespaces = [self.namespace] if self.namespace else sorted(self._objects)
        for namespace in namespaces:
            for _, stored in sorted(self._objects.get(namespace, {}).items()):
                yield stored


@dataclass(slots=True)
class KindCache:
    """The objects of one kind; the streams fill it and nobody else."""

    gvk: GVK
    streams: dict[str, Reflector] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    objects: _Objects = field(default_factory=dict)

    def start(self, source: ListerWatcher, namespaces: tuple[str, ...] | None, clock: Clock) -> None:
        """Begin to list and watch, in these namespaces or in all."""
        for namespace in namespaces or (None,):
            stream = self.streams[namespace or ""] = Reflector(source, self.gvk, namespace, self, clock)
            self.tasks.append(asyncio.create_task(stream.run(), name=f"cache of {self.gvk} in {namespace or 'all'}"))

    def view(self, namespace: str) -> View | None:
        """Return what is known of a namespace, or of all for the empty one; None when it is not known as a whole."""
        stream = self.streams.get(namespace) or self.streams.get("")
        if stream is None or not stream.resource_version or any(task.done() for task in self.tasks):
            return None
        return View(stream.resource_version, namespace, self.objects)

    def listed(self, obj: RawObject) -> None:
        """Take one object of a list."""
        stored = StoredObject.of(obj)
        self.objects.setdefault(stored.key.namespace, {})[stored.key.name] = stored

    def list_ended(self, namespace: str | None, seen: set[ObjectKey]) -> None:
        """Drop what a list no longer had."""
        for place in [namespace] if namespace else list(self.objects):
            known = self.objects.get(place, {})
            for name in [name for name in known if ObjectKey(place, name) not in seen]:
                del known[name]

    def changed(self, event_type: str, obj: RawObject) -> None:
        """Take an event of a watch."""
        if event_type == "DELETED":
            key = ObjectKey.of_object(obj)
            self.objects.get(key.namespace, {}).pop(key.name, None)
        else:
            self.listed(obj)

    def stuck(self, namespace: str | None) -> None:
        """Hear that the kind cannot be watched: there is no view, and reads go to the API server."""
        logger.debug("Kind is not cached for now", gvk=str(self.gvk), watched_namespace=namespace or "all")


class ObjectCache:
    """The caches of all kinds, made when they are read first; an asynchronous context manager that ends them.

    ``namespaces`` are those that the operator watches, None for all: nothing else is cached.
    """

    def __init__(
        self, source: ListerWatcher, namespaces: tuple[str, ...] | None = None, clock: Clock | None = None
    ) -> None:
        self._source = source
        self._namespaces = namespaces
        self._clock = clock or LoopClock()
        self._kinds: dict[GVK, KindCache] = {}

    async def __aenter__(self) -> Self:
        """Return the cache, which holds nothing yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all watches."""
        tasks = [task for kind in self._kinds.values() for task in kind.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def view(self, resource: ApiResource, namespace: str) -> View | None:
        """Return what is known of a kind in a namespace (empty: in all, or none); the first time it begins to know.

        None when nothing is known yet, or when the operator does not watch that namespace.
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
    """Tell of a watch that ended by an error of ours; its kind is read from the API server from then on."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("Cache stopped, reads are forwarded", task=task.get_name(), error=repr(error))
