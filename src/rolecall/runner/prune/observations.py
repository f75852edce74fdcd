"""What a run has named, what of it belongs to its object, and why the run may have left something out.

A run *names* an object if it requests it by name, whatever the response, if it creates it or tries to, or if it
receives it in a list; a dry run counts too. A collection deleted, watched, or listed in an unreadable format
counts as named completely. Names are without version, and objects also compare by uid, because OpenShift serves some
under two kinds. What a run receives only in lists isn't its object's own, because anybody may have made it.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NamedTuple

from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.seen_objects import SeenObject

MAX_DOUBTS: Final = 5
_LOST: Final = frozenset({0, 401, 403, 408, 429})
_WHOLE: Final = frozenset({"watch", "deletecollection"})


class ObjectId(NamedTuple):
    """An object of any version."""

    group: str
    resource: str
    namespace: str
    name: str

    @property
    def key(self) -> ObjectKey:
        """The key."""
        return ObjectKey(self.namespace, self.name)


class Own(NamedTuple):
    """An object of the primary as a run saw it last."""

    version: str
    uid: str
    has_uid_in_mark: bool


class Other(NamedTuple):
    """An object that was made for another primary, as a run saw it."""

    version: str
    uid: str
    primary_uid: str


@dataclass(slots=True)
class Observations:
    """The requests of one run; ``doubts`` are reasons why the run isn't complete, ``waiting`` why it may change."""

    own: dict[ObjectId, Own] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    waiting: dict[ObjectId, str] = field(default_factory=dict)
    dependents: set[ObjectId] = field(default_factory=set)
    """What it has named of the primary's objects, also of kinds that are never pruned."""

    changes: bool = False
    """Whether the run has changed an object other than the primary."""

    others: dict[ObjectId, Other] = field(default_factory=dict)
    """The objects made for other primaries that the run has requested by name."""

    unseen: dict[ObjectId, str] = field(default_factory=dict)
    """The objects that it has requested by name, with responses that didn't show their marks, and the version."""

    shared: set[tuple[ObjectId, str]] = field(default_factory=set)
    """Receives each of ``others`` immediately, with the uid of its primary, if that exists."""

    primaries: AbstractSet[str] | None = None
    """The uids of the operator's primaries, None if they aren't known; only these have objects that it may prune."""

    _shown: set[ObjectId] = field(default_factory=set)
    """The objects that it has requested by name, and whose marks it has seen."""

    _ids: set[ObjectId] = field(default_factory=set)
    _uids: set[str] = field(default_factory=set)
    _collections: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, info: RequestInfo, status: int, seen: tuple[SeenObject, ...] | None) -> None:
        """Add a request with the status of its response (0: none) and the objects in it, None if it is unreadable."""
        self._doubt_response(info, status, seen)
        if not info.is_resource:
            return
        requested = ObjectId(info.group, info.resource, info.key.namespace, info.name)
        if info.name:
            self._ids.add(requested)
        if info.verb in _WHOLE or (not info.name and seen is None):
            self._collections.add((info.group, info.resource, info.namespace))
        is_gone = info.tells_absence(status) or (info.is_removal and status < HTTPStatus.MULTIPLE_CHOICES)
        if info.name and status != HTTPStatus.NOT_FOUND and (info.is_dry_run or not is_gone):
            self._note_others(info, requested, seen if info.subresource in ("", "status") else None)
        if info.is_dry_run:  # names what it would change, and changes nothing
            self._ids.update(_id_of(info, each) for each in seen or ())
            return
        if info.subresource not in ("", "status"):  # a Scale has the name of its object, but not its owners
            return
        if is_gone:
            self._drop(requested)
        for each in seen or ():
            self._add_object(info, each)

    def _doubt_response(self, info: RequestInfo, status: int, seen: tuple[SeenObject, ...] | None) -> None:
        is_ended = status == 0 and info.is_resource and info.is_long_running  # by its client, such as kubectl wait
        if (status in _LOST and not is_ended) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.doubt(f"a request got {f'the status {status}' if status else 'no response'}: {describe(info)}")
        is_unknown = not info.name or info.verb == "create" or (info.verb == "get" and seen is None)
        if info.is_resource and status == HTTPStatus.NOT_FOUND and is_unknown:
            self.doubt(f"the API server doesn't serve {describe(info)}")

    def _note_others(self, info: RequestInfo, requested: ObjectId, seen: tuple[SeenObject, ...] | None) -> None:
        if seen is None and requested not in self._shown:
            self.unseen.setdefault(requested, info.version)
        for each in seen or ():
            self._shown.add(requested)
            self.unseen.pop(requested, None)
            if each.made_for:
                self.found_other(requested, Other(info.version, each.uid, each.made_for))

    def found_other(self, found: ObjectId, other: Other) -> None:
        """Note that the run has requested an object of another primary by name."""
        self.others[found] = other
        if self.primaries is None or other.primary_uid in self.primaries:
            self.shared.add((found, other.primary_uid))

    def _add_object(self, info: RequestInfo, seen: SeenObject) -> None:
        found = _id_of(info, seen)
        is_own = seen.is_own and (info.verb != "list" or found in self.own)
        self._ids.add(found)
        self._uids.add(seen.uid)
        self._drop(found)
        if seen.is_dependent and not info.is_removal:
            self.dependents.add(found)
        if is_own and not info.is_removal:
            self.own[found] = Own(info.version, seen.uid, seen.has_uid_in_mark)
        if seen.waits_for and not info.is_removal:
            self.waiting[found] = seen.waits_for

    def _drop(self, gone: ObjectId) -> None:
        self.own.pop(gone, None)
        self.dependents.discard(gone)
        self.waiting.pop(gone, None)

    def doubt(self, reason: str) -> None:
        """Add a reason why the run may have left out something; the first few are kept."""
        if reason not in self.doubts and len(self.doubts) < MAX_DOUBTS:
            self.doubts.append(reason)

    def names(self, found: ObjectId, uid: str) -> bool:
        """Return whether the run has named an object."""
        collections = ((found.group, found.resource, each) for each in ("", found.namespace))
        return found in self._ids or uid in self._uids or not self._collections.isdisjoint(collections)


def _id_of(info: RequestInfo, seen: SeenObject) -> ObjectId:
    return ObjectId(info.group, info.resource, seen.key.namespace, seen.key.name)


def describe(info: RequestInfo) -> str:
    """Return a request for people, for example ``get deployments.apps default/web``."""
    resource = ".".join(filter(None, (info.resource, info.group)))
    return " ".join(filter(None, (info.verb, resource, "/".join(filter(None, (info.namespace, info.name))))))
