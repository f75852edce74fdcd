"""What the runs of one primary have seen of the cluster, and whether a cached answer would be older than that.

For each resource there is a mark, the highest resourceVersion that an answer has shown; versions grow with every
change, so a cache that has come as far as the mark knows all of it. Where an answer does not say how new it is, other
means take its place: an object that was found missing, or deleted, must not come back out of a cache, and after a watch
or a list too long to look into nothing is taken from the cache until a list has said again where we are. One value for
each primary outlives its runs.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.proxy.request_info import RequestInfo
from rolecall.proxy.writes.bodies import decode, objects_in, unpacked

Resource = tuple[str, str]
MOST_MISSING: Final = 1000


def resource_of(info: RequestInfo) -> Resource:
    """Return group and plural: all versions of a resource share their resourceVersions."""
    return info.group, info.resource


def key_of(info: RequestInfo) -> ObjectKey:
    """Return where the object of a request lies; a Namespace, which a request reads as its own, lies in none."""
    return ObjectKey("" if resource_of(info) == ("", "namespaces") else info.namespace, info.name)


@dataclass(slots=True)
class ReadWatermark:
    """How far the runs of one primary have seen, resource by resource."""

    _marks: dict[Resource, int] = field(default_factory=dict)
    _missing: dict[Resource, set[ObjectKey]] = field(default_factory=dict)
    _lost: set[Resource] = field(default_factory=set)
    _watches: Counter[Resource] = field(default_factory=Counter)

    def covers(self, resource: Resource, position: str) -> bool:
        """Tell whether a cache that has come to this position knows all that has been seen of a resource."""
        if resource in self._lost or self._watches[resource] or not position.isdigit():
            return False
        return int(position) >= self._marks.get(resource, 0)

    def missing(self, resource: Resource) -> frozenset[ObjectKey]:
        """Return the objects that were seen to be gone since the last list."""
        return frozenset(self._missing.get(resource, ()))

    def version(self, resource: Resource, version: str) -> None:
        """Note a version that was seen; one that is no number cannot be compared, so the resource is lost."""
        if version.isdigit():
            self._marks[resource] = max(self._marks.get(resource, 0), int(version))
        else:
            self.lose(resource)

    def lose(self, resource: Resource) -> None:
        """Note that something was seen and cannot be told what, until a list says it."""
        self._lost.add(resource)

    def gone(self, resource: Resource, key: ObjectKey) -> None:
        """Note that an object is not there, or will soon not be."""
        known = self._missing.setdefault(resource, set())
        known.add(key)
        if len(known) > MOST_MISSING:
            known.clear()
            self.lose(resource)

    @contextmanager
    def watching(self, info: RequestInfo) -> Iterator[None]:
        """Note that a watch is open, whose events nobody looks at."""
        resource = resource_of(info)
        self._watches[resource] += 1
        try:
            yield
        finally:
            self._watches[resource] -= 1
            self.lose(resource)

    def answer(self, info: RequestInfo, status: int, content: Any) -> None:
        """Note an answer of the API server: ``content`` is its JSON, None for one that could not be read."""
        resource = resource_of(info)
        if status == 404 and info.name:  # noqa: PLR2004 - not found
            self.gone(resource, key_of(info))
        elif not 200 <= status < 300:  # noqa: PLR2004 - an error shows no object
            return
        elif not isinstance(content, dict) or info.is_dry_run:
            self.lose(resource)
        elif info.verb == "list":
            self._list(resource, content)
        else:
            self._objects(info, content)

    def _list(self, resource: Resource, content: RawObject) -> None:
        self._lost.discard(resource)
        self._missing.pop(resource, None)
        self.version(resource, resource_version_of(content))

    def _objects(self, info: RequestInfo, content: RawObject) -> None:
        resource, deletes = resource_of(info), info.verb in {"delete", "deletecollection"}
        if info.verb == "delete" and not info.subresource:
            self.gone(resource, key_of(info))
        elif info.is_write and content.get("kind") == "Status":
            self.lose(resource)  # something was evicted, bound, or deleted in bulk, and it is not said what
        for obj in objects_in(content):
            if version := resource_version_of(obj):
                self.version(resource, version)
            if deletes:
                self.gone(resource, ObjectKey.of_object(obj))
            elif not info.subresource:
                self._missing.get(resource, set()).discard(ObjectKey.of_object(obj))


@contextmanager
def passing(seen: ReadWatermark | None, info: RequestInfo, status: int) -> Iterator[Callable[[bytes | None], None]]:
    """Follow the answer to a read on its way to the run.

    What this yields is to be called with the body that has passed, None for one that is too long or no JSON. Without
    that call, because the run has hung up, something was seen and nobody knows what.
    """
    if seen is None or (info.is_long_running and info.verb != "watch"):
        yield lambda _body: None
    elif info.verb == "watch":
        with seen.watching(info):
            yield lambda _body: None
    else:
        bodies: list[bytes | None] = []
        try:
            yield bodies.append
        finally:
            body = bodies[0] if bodies else None
            content = None if body is None else decode(unpacked(body), "application/json")
            seen.answer(info, status, content)
