"""The storage of the simulated API server: objects by resource, versions, changes, and the watches that read them.

Each write has the next version. Stored objects are never changed in place, so that a snapshot, an earlier list, and an
event share them; whoever receives an object from here copies it before it leaves the server.
"""

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rolecall.kube.references import RawObject

Resource = tuple[str, str]
"""The group and plural that all versions of a kind are stored under."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Change(NamedTuple):
    """One write: its version, its type, the object after it (the last one if it was deleted), and the one before."""

    version: int
    type: str
    object: RawObject
    previous: RawObject | None
    key: str


class Snapshot(NamedTuple):
    """Everything that is stored at one version."""

    version: int
    compacted: int
    objects: dict[Resource, dict[str, RawObject]]
    changes: dict[Resource, list[Change]]


def copied(value: Any) -> Any:
    """Return a deep copy of JSON."""
    if value.__class__ is dict:
        return {key: copied(item) for key, item in value.items()}
    if value.__class__ is list:
        return [copied(item) for item in value]
    return value


@dataclass(slots=True)
class Store:
    """The objects of all resources by key: ``namespace/name``, or the name of a cluster-scoped object.

    ``history`` has every change of all resources as (version, type, object after it); a restore doesn't shorten it.
    ``on_change`` are called after each change.
    """

    version: int = 1
    compacted: int = 0
    history: list[tuple[int, str, RawObject]] = field(default_factory=list)
    on_change: list[Callable[[], object]] = field(default_factory=list)
    objects: dict[Resource, dict[str, RawObject]] = field(default_factory=dict)
    _changes: dict[Resource, list[Change]] = field(default_factory=dict)

    def get(self, resource: Resource, key: str) -> RawObject | None:
        """Return the stored object itself, None if there is none."""
        return self.objects.get(resource, {}).get(key)

    def put(self, resource: Resource, key: str, obj: RawObject) -> RawObject:
        """Store an object, with the next version, and return the stored one."""
        stored = self.objects.setdefault(resource, {})
        previous = stored.get(key)
        stored[key] = obj = self._at_next_version(obj)
        self._record(resource, Change(self.version, MODIFIED if previous else ADDED, obj, previous, key))
        return obj

    def delete(self, resource: Resource, key: str) -> RawObject:
        """Delete an object that exists, and return it with the version of its deletion."""
        previous = self.objects[resource].pop(key)
        obj = self._at_next_version(previous)
        self._record(resource, Change(self.version, DELETED, obj, previous, key))
        return obj

    def changes(self, resource: Resource) -> list[Change]:
        """Return the list of all changes of a resource, which grows."""
        return self._changes.setdefault(resource, [])

    def objects_at(self, resource: Resource, version: int) -> dict[str, RawObject]:
        """Return the objects of a resource as of a version."""
        found = self.objects.get(resource, {})
        changes = self._changes.get(resource, [])
        later = bisect.bisect_right(changes, version, key=lambda change: change.version)
        if later == len(changes):
            return found
        found = dict(found)
        for change in reversed(changes[later:]):
            if change.previous is None:
                found.pop(change.key, None)
            else:
                found[change.key] = change.previous
        return found

    def snapshot(self) -> Snapshot:
        """Return everything that is stored now."""
        objects = {resource: dict(found) for resource, found in self.objects.items()}
        return Snapshot(
            self.version, self.compacted, objects, {name: list(each) for name, each in self._changes.items()}
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Return to an earlier state, its version included."""
        self.version, self.compacted = snapshot.version, snapshot.compacted
        self.objects = {resource: dict(found) for resource, found in snapshot.objects.items()}
        self._changes = {resource: list(found) for resource, found in snapshot.changes.items()}
        self._notify()

    def _at_next_version(self, obj: RawObject) -> RawObject:
        self.version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}

    def _record(self, resource: Resource, change: Change) -> None:
        self.changes(resource).append(change)
        self.history.append((change.version, change.type, change.object))
        self._notify()

    def _notify(self) -> None:
        for notify in list(self.on_change):
            notify()


class Watch:
    """A watch from a version on. ``take`` returns the events since the last call, in the order of the changes.

    It has expired if changes that it hasn't taken are compacted: then its only event is an ERROR with 410. A closed
    watch has no more events; the server closes one when its kind is removed, and at a restore.
    """

    def __init__(
        self,
        store: Store,
        resource: Resource,
        since: int,
        selects: Callable[[str, RawObject], bool],
        view: Callable[[RawObject], RawObject],
    ) -> None:
        self._store, self._changes, self._version = store, store.changes(resource), since
        self._position = bisect.bisect_right(self._changes, since, key=lambda change: change.version)
        self._selects, self._view = selects, view
        self._waiting: list[RawObject] = []
        self.is_closed = self.is_expired = False

    def begin_with(self, objects: list[RawObject]) -> None:
        """Add the objects that exist before the first change."""
        self._waiting += [{"type": ADDED, "object": self._view(obj)} for obj in objects]

    def expire(self, error: RawObject) -> None:
        """End with an ERROR event."""
        self._waiting, self.is_expired = [{"type": "ERROR", "object": error}], True

    def take(self) -> list[RawObject]:
        """Return the new events, each with its own copy of the object."""
        events, self._waiting = self._waiting, []
        if self.is_closed or self.is_expired:
            return events
        if self._position < len(self._changes) and self._changes[self._position].version <= self._store.compacted:
            self.expire(expired_error(self._version, self._store.compacted))
            return events + self.take()
        for change in self._changes[self._position :]:
            # After a restore, a client may know a later version than the server: it gets no event up to there.
            if change.version > self._version:
                self._version = change.version
                events += self._events(change)
        self._position = len(self._changes)
        return events

    def bookmark(self) -> None:
        """Add a BOOKMARK with the current version, after all changes so far."""
        self._waiting = self.take()
        if not self.is_closed and not self.is_expired:
            self._version = max(self._version, self._store.version)
            obj = self._view({"metadata": {"resourceVersion": str(self._version)}})
            self._waiting.append({"type": "BOOKMARK", "object": obj})

    def close(self) -> None:
        """End the watch without further events."""
        self._waiting, self.is_closed = [], True

    def end(self) -> None:
        """End the watch after the events so far."""
        self._waiting, self.is_closed = self.take(), True

    def _events(self, change: Change) -> list[RawObject]:
        """Return the event of a change, if a selected object changed."""
        before = change.previous is not None and self._selects(change.key, change.previous)
        after = change.type != DELETED and self._selects(change.key, change.object)
        if after:
            return [{"type": MODIFIED if before else ADDED, "object": self._view(change.object)}]
        if not before or change.previous is None:
            return []
        metadata = {**change.previous["metadata"], "resourceVersion": str(change.version)}
        return [{"type": DELETED, "object": self._view({**change.previous, "metadata": metadata})}]


def expired_error(version: int, compacted: int) -> RawObject:
    """Return the Status for a version that is no longer known."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"too old resource version: {version} ({compacted})",
        "reason": "Expired",
        "code": 410,
    }
