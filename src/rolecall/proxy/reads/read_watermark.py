"""The watermark that a cache must reach before it may answer the reads of a primary's runs.

For each resource the watermark holds the highest resourceVersion that a response has shown. A cache at or above that
version contains everything the runs have seen. Some responses carry no usable version. Then other rules apply: an
object that was deleted or not found must not reappear from a cache; and after a watch, or a response too long to
inspect, the cache is not used again until a list returns a version. There is one watermark per primary, shared by all
of its runs.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.proxy.request_info import RequestInfo
from rolecall.proxy.writes.bodies import objects_in

GroupResource = tuple[str, str]
MAX_ABSENT_KEYS: Final = 1000


@dataclass(slots=True)
class ReadWatermark:
    """The newest state that the runs of one primary have seen, by resource."""

    _versions: dict[GroupResource, int] = field(default_factory=dict)
    _absent: dict[GroupResource, set[ObjectKey]] = field(default_factory=dict)
    _unknown: set[GroupResource] = field(default_factory=set)
    _open_watches: Counter[GroupResource] = field(default_factory=Counter)

    def is_reached_by(self, resource: GroupResource, version: str) -> bool:
        """Return whether a cache at this resourceVersion contains everything the runs have seen of a resource."""
        if resource in self._unknown or self._open_watches[resource] or not version.isdigit():
            return False
        return int(version) >= self._versions.get(resource, 0)

    def absent_keys(self, resource: GroupResource) -> frozenset[ObjectKey]:
        """Return the keys of the objects that were deleted or not found since the last list."""
        return frozenset(self._absent.get(resource, ()))

    def record_version(self, resource: GroupResource, version: str) -> None:
        """Record a resourceVersion; one that is not a number cannot be compared and makes the resource unknown."""
        if version.isdigit():
            self._versions[resource] = max(self._versions.get(resource, 0), int(version))
        else:
            self.mark_unknown(resource)

    def mark_unknown(self, resource: GroupResource) -> None:
        """Record that a run has seen an unknown version, so that no cache may answer until the next list."""
        self._unknown.add(resource)

    def record_absent(self, resource: GroupResource, key: ObjectKey) -> None:
        """Record that an object does not exist or is being deleted."""
        absent = self._absent.setdefault(resource, set())
        absent.add(key)
        if len(absent) > MAX_ABSENT_KEYS:
            absent.clear()
            self.mark_unknown(resource)

    @contextmanager
    def track_watch(self, info: RequestInfo) -> Iterator[None]:
        """Record that a watch is open; its events are not inspected."""
        resource = info.group_resource
        self._open_watches[resource] += 1
        try:
            yield
        finally:
            self._open_watches[resource] -= 1
            self.mark_unknown(resource)

    def record_response(self, info: RequestInfo, status: int, content: Any) -> None:
        """Record what a response of the API server shows; ``content`` is its JSON, None if it could not be decoded."""
        resource = info.group_resource
        if status == 404 and info.name:  # noqa: PLR2004 - not found
            self.record_absent(resource, info.key)
        elif not 200 <= status < 300:  # noqa: PLR2004 - an error shows no object
            return
        elif not isinstance(content, dict) or info.is_dry_run:
            self.mark_unknown(resource)
        elif info.verb == "list":
            self._record_list(resource, content)
        else:
            self._record_objects(info, content)

    def _record_list(self, resource: GroupResource, content: RawObject) -> None:
        self._unknown.discard(resource)
        self._absent.pop(resource, None)
        self.record_version(resource, resource_version_of(content))

    def _record_objects(self, info: RequestInfo, content: RawObject) -> None:
        resource = info.group_resource
        if info.verb == "delete" and not info.subresource:
            self.record_absent(resource, info.key)
        elif info.is_write and content.get("kind") == "Status":
            self.mark_unknown(resource)  # an eviction, a binding or a bulk delete: the response shows no object
        for obj in objects_in(content):
            if version := resource_version_of(obj):
                self.record_version(resource, version)
            if info.is_removal:
                self.record_absent(resource, ObjectKey.of_object(obj))
            elif not info.subresource:
                self._absent.get(resource, set()).discard(ObjectKey.of_object(obj))


@contextmanager
def track_read(watermark: ReadWatermark | None, info: RequestInfo, status: int) -> Iterator[Callable[[Any], None]]:
    """Record the response to a read while it is forwarded to the run.

    Yield a function to call with the decoded body, or with None for a body that is too long or not JSON. Without that
    call, for example because the run closed the connection, the resource becomes unknown.
    """
    if watermark is None or (info.is_long_running and info.verb != "watch"):
        yield lambda _content: None
    elif info.verb == "watch":
        with watermark.track_watch(info):
            yield lambda _content: None
    else:
        contents: list[Any] = []
        try:
            yield contents.append
        finally:
            watermark.record_response(info, status, contents[0] if contents else None)
