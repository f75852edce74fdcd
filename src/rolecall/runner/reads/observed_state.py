"""What a run has seen of an object or of a list, and which later changes of it count.

A change counts if it is newer than what was seen and if the content differs from the newest content that is known: what
was there before the change, what the run read, or what it wrote itself. Where that content is not known, a newer
version counts: one run too many is better than one too few. All functions are pure.

What is known of each object that runs may have read, in as few bytes as possible.

A role may list ten thousand objects, and none of them is needed again. So an entry is a hash of the key, a version and
a digest of eight bytes. Labels are kept only for the keys that a selector asks about, and owners only if they are
primaries.

The places that runs read and that are watched: a namespace or all of them, and a name or all of them.

How far a list and watch has come: the version up to which nothing is missing.
"""

import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Final

from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.reflector import ListerWatcher

DIGEST_BYTES: Final = 8
ABSENT: Final = b""
"""The digest of an object that does not exist."""

UNKNOWN: Final = -1
"""The version of what is not known; every version is newer."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a run reads: one object, or with an empty name the objects of a namespace that a label selector matches.

    The namespace is empty for all namespaces and for a cluster-scoped kind.
    """

    gvk: GVK
    namespace: str
    name: str = ""
    selector: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """The digest of an object at a version: ``ABSENT`` if it did not exist, None if its content is not known.

    For a list the version is that of the list, and the digest is None.
    """

    version: int
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class ReadChange:
    """A change of an object.

    ``before`` is the state that is known from the watch, at the last version up to which nothing was missed. ``after``
    is the new one. ``uid`` and ``name`` are empty if they are not known.
    """

    gvk: GVK
    key_hash: bytes
    before: State
    after: State
    uid: str = ""
    name: str = ""

    @property
    def is_removal(self) -> bool:
        """Return whether the object is gone."""
        return self.after.digest == ABSENT

    @property
    def text(self) -> str:
        """The change as people read it, for example ``read Secret default/login changed``."""
        verb = "deleted" if self.is_removal else "created" if self.before.digest == ABSENT else "changed"
        return f"read {self.gvk.kind} {self.name} {verb}" if self.name else f"read list of {self.gvk.kind}: one {verb}"


def counts(change: ReadChange, seen: State, written: State | None = None) -> bool:
    """Return whether a run that has seen this state, and has itself written another one later, must run again."""
    after = change.after
    if after.version <= seen.version and after.version != UNKNOWN:
        return False
    known = change.before
    for state in (seen, written):
        if state is not None and _replaces(state, known):
            known = state
    return known.digest is None or known.digest != after.digest


def _replaces(state: State, known: State) -> bool:
    """Return whether a state is newer than another one, or as new and its content is known."""
    return state.version > known.version or (state.version == known.version and state.digest is not None)


def version_of(text: str) -> int:
    """Return a resourceVersion as a number, as Kubernetes allows since 1.35; ``UNKNOWN`` for any other text."""
    return int(text) if text.isascii() and text.isdigit() else UNKNOWN


_ENTRY: Final = struct.Struct(f"<q{DIGEST_BYTES}s")
_NAMESPACE_BYTES: Final = 4
NO_OWNERS: Final[frozenset[bytes]] = frozenset()


@lru_cache(maxsize=1024)
def namespace_hash(namespace: str) -> bytes:
    """Return the hash of a namespace, with which the hash of each key in it begins."""
    return sha256(namespace.encode()).digest()[:_NAMESPACE_BYTES]


def key_hash(key: ObjectKey) -> bytes:
    """Return the hash of a key."""
    return namespace_hash(key.namespace) + short_hash(str(key))


def namespace_of(hashed: bytes) -> bytes:
    """Return the hash of the namespace of a key, from the hash of the key."""
    return hashed[:_NAMESPACE_BYTES]


def short_hash(text: str) -> bytes:
    """Return eight bytes that stand for a text."""
    return sha256(text.encode(errors="surrogatepass")).digest()[:8]


@lru_cache(maxsize=1024)
def shared_mapping(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the same mapping for equal items: most objects have the labels of many others."""
    return dict(items)


@dataclass(slots=True)
class CompactStore:
    """The objects of one list and watch, by the hashes of their keys.

    ``newest`` is the version of the newest object, ``last_removal`` that of the newest deletion.
    """

    labels: dict[bytes, Mapping[str, str]] = field(default_factory=dict)
    owners: dict[bytes, frozenset[bytes]] = field(default_factory=dict)
    newest: int = -1
    last_removal: int = -1
    _entries: dict[bytes, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._entries)

    def get(self, hashed: bytes) -> State | None:
        """Return the state of an object, None if there is none."""
        entry = self._entries.get(hashed)
        return None if entry is None else State(*_ENTRY.unpack(entry))

    def put(self, hashed: bytes, state: State) -> None:
        """Store the state of an object."""
        self._entries[hashed] = _ENTRY.pack(state.version, state.digest or b"")
        self.newest = max(self.newest, state.version)

    def remove(self, hashed: bytes, version: int) -> None:
        """Remove an object that was deleted at a version."""
        self._entries.pop(hashed, None)
        self.labels.pop(hashed, None)
        self.owners.pop(hashed, None)
        self.last_removal = max(self.last_removal, version)

    def hashes(self) -> list[bytes]:
        """Return the hashes of all objects."""
        return list(self._entries)

    def newer_than(self, version: int) -> Iterator[tuple[bytes, State]]:
        """Yield the objects of a newer version."""
        if self.newest <= version:
            return
        for hashed, entry in list(self._entries.items()):
            found, digest = _ENTRY.unpack(entry)
            if found > version:
                yield hashed, State(found, digest)


Place = tuple[str | None, str]
"""A namespace (None: all, and cluster-scoped objects) and a name (empty: all)."""

EVERYWHERE: Final[Place] = (None, "")


def place_of(target: Target, *, namespaced: bool) -> Place:
    """Return the narrowest place that shows all of a target."""
    return (target.namespace or None) if namespaced else None, target.name


def is_within(place: Place, other: Place) -> bool:
    """Return whether everything in one place is in another one too."""
    return other[0] in (None, place[0]) and other[1] in ("", place[1])


def key_of(target: Target) -> ObjectKey:
    """Return the key of the object that was read by its name."""
    return ObjectKey(target.namespace, target.name)


def lists_key(target: Target) -> bytes:
    """Return with what the hashes of the keys in a list begin: nothing for a list of all namespaces."""
    return namespace_hash(target.namespace) if target.namespace else b""


@dataclass(slots=True)
class PositionedSource:
    """Passes lists and watches on, and knows their position.

    ``position`` is the version up to which everything was passed on and taken, ``UNKNOWN`` before the first list.
    ``listing`` is the version of the last list, from its first page on.
    """

    source: ListerWatcher
    position: int = UNKNOWN
    listing: int = UNKNOWN

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the API resource of a kind."""
        return await self.source.resource(gvk)

    async def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield the objects page by page."""
        is_first = True
        async for items, version in self.source.list_pages(gvk, namespace):
            if is_first:
                self.listing, is_first = version_of(version), False
            yield items, version

    async def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield (type, object) for each event and bookmark."""
        async for event_type, obj in self.source.watch(gvk, namespace, resource_version, timeout_seconds):
            yield event_type, obj
            self.position = max(self.position, version_of(resource_version_of(obj)))

    def record_list(self) -> None:
        """Take note that the last list was taken to its end."""
        self.position = max(self.position, self.listing)
