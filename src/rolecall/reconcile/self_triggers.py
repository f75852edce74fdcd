"""Whether a change tells an object's runs anything that they do not know already.

A run hears of its own writes like everybody else, and of changes that it has read before they were announced. Neither
may start another run, or an operator would wake itself for ever. Three rules, in this order: a version that a run of
the same primary wrote is no news, nor is the end of an object that a run removed, unless it changed the primary's own
spec and the run did not say itself when to come back; a version of the primary that the last run started from, or an
older one, is no news; everything else is.
"""

from dataclasses import dataclass, field

from rolecall.controller.work_queue import Cause
from rolecall.kube.metadata import resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.reconcile.own_writes import OwnWrites


@dataclass(frozen=True, slots=True)
class PrimaryCause(Cause):
    """A change of the primary itself; ``changed_spec`` when its generation rose."""

    changed_spec: bool = False


@dataclass(slots=True)
class SelfTriggers:
    """What the runs of one kind know already."""

    gvk: GVK
    own_writes: OwnWrites
    _started_from: dict[ObjectKey, tuple[str, str]] = field(default_factory=dict)
    _requested_requeue: set[ObjectKey] = field(default_factory=set)

    def started_from(self, key: ObjectKey, obj: RawObject) -> None:
        """Remember the version of the primary that a run starts from."""
        self._started_from[key] = (uid_of(obj), resource_version_of(obj))
        self._requested_requeue.discard(key)

    def requested_requeue(self, key: ObjectKey) -> None:
        """Remember that the run said itself when to come back."""
        self._requested_requeue.add(key)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of a primary that is gone."""
        self._started_from.pop(key, None)
        self._requested_requeue.discard(key)
        self.own_writes.forget((self.gvk, key))

    def is_news(self, key: ObjectKey, cause: Cause) -> bool:
        """Tell whether the change behind a cause can make a difference to a run."""
        if not cause.resource_version:
            return True
        is_primary = isinstance(cause, PrimaryCause)
        if cause.is_removal and not is_primary and self.own_writes.has_removed((self.gvk, key), cause.uid):
            return False
        if self.own_writes.contains((self.gvk, key), cause.uid, cause.resource_version):
            changed_spec = isinstance(cause, PrimaryCause) and cause.changed_spec
            return changed_spec and key not in self._requested_requeue
        return not (isinstance(cause, PrimaryCause) and self._was_read(key, cause))

    def _was_read(self, key: ObjectKey, cause: Cause) -> bool:
        uid, version = self._started_from.get(key, ("", ""))
        # Versions of one object are ordered since Kubernetes 1.35; any other text is compared for equality alone.
        if uid != cause.uid:
            return False
        if version.isdigit() and cause.resource_version.isdigit():
            return int(cause.resource_version) <= int(version)
        return version == cause.resource_version
