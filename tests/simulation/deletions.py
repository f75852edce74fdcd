"""Deletions: preconditions, finalizers, grace periods of pods, and terminating namespaces."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rolecall.kube.references import RawObject
from tests.simulation.kinds import NAMESPACE, POD, ServedKind
from tests.simulation.objects import is_same
from tests.simulation.requests import DeleteOptions, conflict, failed_precondition, not_found
from tests.simulation.storage import Store


@dataclass(frozen=True, slots=True)
class Deletions:
    """Deletes objects of a storage; ``now`` returns the seconds since the epoch."""

    store: Store
    now: Callable[[], float]

    def delete(self, kind: ServedKind, key: str, options: DeleteOptions) -> tuple[RawObject, bool]:
        """Delete an object, or mark it; return its last state, and whether it was deleted. Raise RequestError."""
        obj = self.store.get(kind.resource, key)
        name = key.rpartition("/")[2]
        if obj is None:
            raise not_found(kind, name)
        metadata = obj["metadata"]
        expected = {"uid": options.uid, "resourceVersion": options.version}
        for field, value in expected.items():
            if value is not None and value != metadata[field]:
                raise failed_precondition(kind, name, f"{field} {value}")
        marked = self._marked(kind, obj, options)
        if marked is None:
            return obj, False
        stays = self._stays(kind, marked)
        if (stays or kind.gvk == POD) and not is_same(marked, obj):
            obj = marked if options.is_dry_run else self.store.put(kind.resource, key, marked)
        if stays:
            return obj, False
        if options.version is not None and kind.gvk != POD and metadata.get("finalizers"):
            # A deletion that only drops the finalizers of another policy compares the version with that of nothing.
            raise conflict(kind, name, "the resourceVersion in the precondition does not match")
        return (obj if options.is_dry_run else self.store.delete(kind.resource, key)), True

    def _marked(self, kind: ServedKind, obj: RawObject, options: DeleteOptions) -> RawObject | None:
        """Return the object as a deletion changes it before it is deleted; None if a deletion can't change it."""
        metadata = dict(obj["metadata"])
        is_first = "deletionTimestamp" not in metadata
        finalizers = list(metadata.get("finalizers") or ())
        if kind.has_dependents:
            finalizers = options.finalizers(finalizers)
        if kind.gvk == NAMESPACE:
            return self._marked_namespace(obj, finalizers) if is_first or not obj["spec"].get("finalizers") else None
        if kind.gvk == POD:
            period = _grace_period(obj, options)
            if not is_first and (
                options.grace_period_seconds is None or period >= metadata["deletionGracePeriodSeconds"]
            ):
                return None
            metadata |= {"deletionTimestamp": self.time(period), "deletionGracePeriodSeconds": period}
        elif finalizers:
            metadata |= {"deletionGracePeriodSeconds": 0}
            metadata.setdefault("deletionTimestamp", self.time())
        else:
            return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "finalizers"}}
        if is_first and metadata.get("generation"):
            metadata["generation"] += 1
        metadata["finalizers"] = finalizers
        if not finalizers:
            del metadata["finalizers"]
        return {**obj, "metadata": metadata}

    def _marked_namespace(self, obj: RawObject, finalizers: list[str]) -> RawObject:
        metadata = {"deletionTimestamp": self.time(), **obj["metadata"]}
        if finalizers:
            metadata["finalizers"] = finalizers
        return {**obj, "metadata": metadata, "status": {**obj["status"], "phase": "Terminating"}}

    def _stays(self, kind: ServedKind, obj: RawObject) -> bool:
        """Return whether a marked object is not deleted yet."""
        metadata = obj["metadata"]
        if kind.gvk == NAMESPACE and obj["spec"].get("finalizers"):
            return True
        return bool(metadata.get("finalizers")) or metadata.get("deletionGracePeriodSeconds", 0) > 0

    def release(self, kind: ServedKind, key: str, changed: RawObject) -> None:
        """Store an object as a controller changed its metadata; delete it if nothing holds it any longer."""
        if "deletionTimestamp" in changed["metadata"] and not self._stays(kind, changed):
            self.store.delete(kind.resource, key)
        else:
            self.store.put(kind.resource, key, changed)

    def time(self, later_seconds: float = 0.0) -> str:
        """Return the current time, or a later one, as in objects."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now() + later_seconds))


def _grace_period(pod: RawObject, options: DeleteOptions) -> int:
    """Return the seconds that a pod gets to end; none if nothing runs it."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    wanted = options.grace_period_seconds
    seconds = int(pod["spec"]["terminationGracePeriodSeconds"]) if wanted is None else wanted
    return 1 if seconds < 0 else seconds
