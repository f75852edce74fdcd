"""Which changes don't trigger a primary: those that its own run made, or that its run has already seen.

A run changes objects, and the API server reports each change to every client, including the operator. Such an event
must not start the next run of the same primary, which would never end, yet must start runs of other primaries that
depend on the same object. Three rules apply, in this order:

1. A version that a run of the same primary wrote doesn't trigger it, nor does the deletion of an object by that run.
   The exception is a run that changed its primary's own spec without requesting a requeue.
2. A version of the primary that the last run started from, or an older one, doesn't trigger it.
3. Everything else triggers it.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from rolecall.kube.metadata import is_later, resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.work_queue import Cause
from rolecall.system.clock import SYSTEM_CLOCK

Request = tuple[GVK, ObjectKey]
KEEP_SECONDS = 600.0
"""The time for which writes are remembered. Older events come from lists, which have no versions in between."""

_REMOVED = "removed"
_NEVER_STARTED = ("", "", -math.inf)


@dataclass(frozen=True, slots=True)
class PrimaryCause(Cause):
    """A change of the primary itself; ``changed_spec`` when its generation rose.

    Without ``is_relevant`` it counts only while the primary can't be run as it is.
    """

    changed_spec: bool = False
    is_relevant: bool = True


@dataclass(frozen=True, slots=True)
class DependentCause(Cause):
    """A change of a dependent of the primary."""


@dataclass(slots=True)
class OwnWrites:
    """The versions that the runs of each primary wrote recently; ``now`` is a monotonic clock in seconds.

    Any other version was written by another client. A forgotten version costs at most one unnecessary run.
    ``is_complete`` is false if runs of other replicas write too, which aren't known here.
    """

    now: Callable[[], float] = SYSTEM_CLOCK.monotonic
    is_complete: bool = True
    _versions: dict[Request, OrderedDict[tuple[str, str], float]] = field(default_factory=dict)
    _last_writes: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """When runs of any primary last wrote each object, by its uid; the oldest first."""

    def record_write(self, request: Request, obj: RawObject) -> None:
        """Remember that a run of this primary, or the operator for it, wrote this version of an object."""
        self._remember(request, uid_of(obj), resource_version_of(obj))

    def record_removal(self, request: Request, uid: str) -> None:
        """Remember that a run of this primary removed an object completely; uids are never reused."""
        self._remember(request, uid, _REMOVED)

    def contains(self, request: Request, uid: str, resource_version: str) -> bool:
        """Return whether the primary's runs wrote exactly this version of the object."""
        return (uid, resource_version) in self._versions.get(request, ())

    def may_have_written(self, uid: str, since: float) -> bool:
        """Return whether a run of any primary may have written this object since a time of ``now``."""
        return not self.is_complete or not uid or self._last_writes.get(uid, -math.inf) >= since

    def writers(self, cause: Cause) -> list[Request]:
        """Return the primaries whose runs made a change: wrote this version of an object, or removed it."""
        made = {(cause.uid, cause.resource_version)} | ({(cause.uid, _REMOVED)} if cause.is_removal else set())
        return [request for request, versions in self._versions.items() if not made.isdisjoint(versions)]

    def forget_versions(self) -> None:
        """Drop all versions, because the cluster was restored and will give them to other changes."""
        self._versions.clear()

    def forget(self, request: Request) -> None:
        """Drop the state of a deleted primary."""
        self._versions.pop(request, None)

    def _remember(self, request: Request, uid: str, version: str) -> None:
        if not (uid and version):
            return
        now = self.now()
        versions = self._versions.setdefault(request, OrderedDict())
        versions[(uid, version)] = now
        self._last_writes[uid] = now
        self._last_writes.move_to_end(uid)
        for times in (versions, self._last_writes):
            while times and next(iter(times.values())) < now - KEEP_SECONDS:
                times.popitem(last=False)


@dataclass(slots=True)
class SelfTriggers:
    """Decides for the primaries of one kind which causes their own runs have produced."""

    gvk: GVK
    own_writes: OwnWrites
    _started: dict[ObjectKey, tuple[str, str, float]] = field(default_factory=dict)
    """The uid and version from which each primary's last run started, and when."""
    _requested_requeue: set[ObjectKey] = field(default_factory=set)

    def run_started(self, key: ObjectKey, obj: RawObject) -> None:
        """Remember the version of the primary that a run starts from."""
        self._started[key] = (uid_of(obj), resource_version_of(obj), self.own_writes.now())
        self._requested_requeue.discard(key)

    def requeue_requested(self, key: ObjectKey) -> None:
        """Remember that the run itself requested the next run."""
        self._requested_requeue.add(key)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deleted primary."""
        self._started.pop(key, None)
        self._requested_requeue.discard(key)
        self.own_writes.forget((self.gvk, key))

    def forget_versions(self) -> None:
        """Drop all versions, because the cluster was restored and will give them to other changes."""
        self._started.clear()
        self.own_writes.forget_versions()

    def may_be_in_loop(self, key: ObjectKey, cause: Cause) -> bool:
        """Return whether a run may have written the changed object since the last run of this primary started.

        Primaries that trigger each other in a loop do so by the writes of their runs. A dependent also changes by the
        hands of users, and its writer is known exactly: it must be a run of another primary.
        """
        if isinstance(cause, DependentCause):
            return any(writer != (self.gvk, key) for writer in self.own_writes.writers(cause))
        _, _, started_at = self._started.get(key, _NEVER_STARTED)
        return self.own_writes.may_have_written(cause.uid, started_at)

    def is_self_trigger(self, key: ObjectKey, cause: Cause) -> bool:
        """Return whether a run of this primary would only find changes that its last run made or saw."""
        if not cause.resource_version:
            return False
        is_primary = isinstance(cause, PrimaryCause)
        if cause.is_removal and not is_primary and self.own_writes.contains((self.gvk, key), cause.uid, _REMOVED):
            return True
        if self.own_writes.contains((self.gvk, key), cause.uid, cause.resource_version):
            return not (isinstance(cause, PrimaryCause) and cause.changed_spec) or key in self._requested_requeue
        return is_primary and self.was_read(key, cause.uid, cause.resource_version)  # Rule 2

    def was_read(self, key: ObjectKey, uid: str, resource_version: str) -> bool:
        """Return whether the last run of a primary started from this version of it, or a later one."""
        started_uid, version, _ = self._started.get(key, _NEVER_STARTED)
        return started_uid == uid and (version == resource_version or is_later(version, resource_version))
