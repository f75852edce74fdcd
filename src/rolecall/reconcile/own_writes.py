"""Which versions of which objects a primary's own runs have written.

A run changes objects, and the API server tells everybody, the operator too. Such an event must not start the next run
of the same primary (it would never end), yet must start others that look at the same object. So a note is kept for each
request: the exact resourceVersions that its writes returned, and the uids of the objects that it has removed. An event
of any other version is somebody else's and always counts. Only what was written lately is kept; an older event would at
worst cause one run too many.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from rolecall.kube.metadata import resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject

Request = tuple[GVK, ObjectKey]
KEEP_SECONDS = 600.0
"""An event that is older than this comes from a list, not from a watch, and a list tells no versions in between."""

_REMOVED = "removed"


@dataclass(slots=True)
class OwnWrites:
    """The versions that each primary's runs have written lately; ``now`` is a monotonic clock in seconds."""

    now: Callable[[], float] = time.monotonic
    _versions: dict[Request, OrderedDict[tuple[str, str], float]] = field(default_factory=dict)

    def note(self, request: Request, obj: RawObject) -> None:
        """Remember that a run of this primary, or the operator for it, wrote this version of an object."""
        self._remember(request, uid_of(obj), resource_version_of(obj))

    def note_removal(self, request: Request, uid: str) -> None:
        """Remember that a run of this primary deleted an object, which is gone for good: nobody has that uid again."""
        self._remember(request, uid, _REMOVED)

    def _remember(self, request: Request, uid: str, version: str) -> None:
        if not (uid and version):
            return
        now = self.now()
        versions = self._versions.setdefault(request, OrderedDict())
        versions[(uid, version)] = now
        while versions and next(iter(versions.values())) < now - KEEP_SECONDS:
            versions.popitem(last=False)

    def contains(self, request: Request, uid: str, resource_version: str) -> bool:
        """Tell whether this very version of the object is one that the primary's runs wrote."""
        return (uid, resource_version) in self._versions.get(request, ())

    def has_removed(self, request: Request, uid: str) -> bool:
        """Tell whether it was the primary's runs that removed this object."""
        return self.contains(request, uid, _REMOVED)

    def forget(self, request: Request) -> None:
        """Drop what is known of a primary that is gone."""
        self._versions.pop(request, None)
