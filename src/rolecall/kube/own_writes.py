"""Which versions of which objects a primary's own runs have written.

A run changes objects, and the API server tells everybody, the operator too. Such an event must not start the next run
of the same primary (it would never end), yet must start others that look at the same object. So a note is kept for
each request: the exact resourceVersions that its writes returned. An event of any other version is somebody else's
and always counts. Only what was written lately is kept; an older event would at worst cause one run too many.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from rolecall.kube.metadata import resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject

Request = tuple[GVK, ObjectKey]
VERSIONS_PER_REQUEST = 4096


@dataclass(slots=True)
class OwnWrites:
    """The versions that each primary's runs have written; bounded for each of them."""

    _versions: dict[Request, OrderedDict[tuple[str, str], None]] = field(default_factory=dict)

    def note(self, request: Request, obj: RawObject) -> None:
        """Remember that a run of this primary, or the operator for it, wrote this version of an object."""
        uid, version = uid_of(obj), resource_version_of(obj)
        if not (uid and version):
            return
        versions = self._versions.setdefault(request, OrderedDict())
        versions[(uid, version)] = None
        while len(versions) > VERSIONS_PER_REQUEST:
            versions.popitem(last=False)

    def contains(self, request: Request, uid: str, resource_version: str) -> bool:
        """Tell whether this very version of the object is one that the primary's runs wrote."""
        return (uid, resource_version) in self._versions.get(request, ())

    def forget(self, request: Request) -> None:
        """Drop what is known of a primary that is gone."""
        self._versions.pop(request, None)
