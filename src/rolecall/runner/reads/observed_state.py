"""The state of objects and lists as runs and watches have seen it, in as few bytes as possible.

A change counts if it is newer than the state that the run has seen and if its content differs from the newest known
content: the state before the change, the state that the run read, or the state that it wrote itself. If that content is
unknown, a newer version counts: one run too many is better than one too few.

A role may list ten thousand objects, and none of them is needed again. So a stored entry is a hash of the key, a
version and a digest of eight bytes. Labels are kept only for the keys of selectors, and owners only if they are
primaries.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Final

from rolecall.kube.references import GVK, ObjectKey

DIGEST_BYTES: Final = 8
ABSENT: Final = b""
"""The digest of an object that doesn't exist."""

UNKNOWN: Final = -1
"""An unknown version; every version is newer."""

NO_OWNERS: Final[frozenset[bytes]] = frozenset()
_ENTRY: Final = struct.Struct(f"<q{DIGEST_BYTES}s")
_NAMESPACE_BYTES: Final = 4

ScopeKey = tuple[str | None, str]
"""The scope of a list and watch: a namespace (None: all, and cluster-scoped objects) and a name (empty: all)."""

WHOLE_KIND: Final[ScopeKey] = (None, "")


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a read: one object, or with an empty name the objects of a namespace that a selector matches.

    The namespace is empty for all namespaces and for a cluster-scoped kind.
    """

    gvk: GVK
    namespace: str
    name: str = ""
    selector: str = ""

    @property
    def key(self) -> ObjectKey:
        """The key of an object that was read by its name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def list_prefix(self) -> bytes:
        """The start of the hashes of the keys in a list: nothing for a list of all namespaces."""
        return namespace_hash(self.namespace) if self.namespace else b""

    def scope_key(self, *, namespaced: bool) -> ScopeKey:
        """Return the narrowest scope that contains the target."""
        return (self.namespace or None) if namespaced else None, self.name


@dataclass(frozen=True, slots=True)
class State:
    """The digest of an object at a version: ``ABSENT`` if it didn't exist, None if its content is unknown.

    For a list the version is that of the list, and the digest is None.
    """

    version: int
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class ReadChange:
    """A change of an object.

    ``before`` is the state that is known from the watch, at the last version up to which no change was missed;
    ``after`` is the new state. ``uid`` and ``name`` are empty if they are unknown.
    """

    gvk: GVK
    key_hash: bytes
    before: State
    after: State
    uid: str = ""
    name: str = ""

    @property
    def is_removal(self) -> bool:
        """Return whether the object was deleted."""
        return self.after.digest == ABSENT

    @property
    def text(self) -> str:
        """A description for users, for example ``read Secret default/login changed``."""
        verb = "deleted" if self.is_removal else "created" if self.before.digest == ABSENT else "changed"
        return f"read {self.gvk.kind} {self.name} {verb}" if self.name else f"read list of {self.gvk.kind}: one {verb}"


def counts(change: ReadChange, seen: State, written: State | None = None) -> bool:
    """Return whether a run that has seen one state, and has written another itself, must run again."""
    after, known = change.after, change.before
    if after.version <= seen.version and after.version != UNKNOWN:
        return False
    for state in (seen, written):
        if state is None:
            continue
        is_same_version = state.version == known.version and state.digest is not None
        if state.version > known.version or is_same_version:
            known = state
    return known.digest is None or known.digest != after.digest


def version_of(text: str) -> int:
    """Return a resourceVersion as a number, as Kubernetes allows since 1.35; ``UNKNOWN`` for any other text."""
    return int(text) if text.isascii() and text.isdigit() else UNKNOWN


@lru_cache(maxsize=1024)
def namespace_hash(namespace: str) -> bytes:
    """Return the hash of a namespace, with which the hash of each key in it starts."""
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
    newest: int = UNKNOWN
    last_removal: int = UNKNOWN
    _entries: dict[bytes, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._entries)

    def get(self, hashed: bytes) -> State | None:
        """Return the state of an object, None if there is none."""
        entry = self._entries.get(hashed)
        return None if entry is None else State(*_ENTRY.unpack(entry))

    def put(self, hashed: bytes, state: State, owners: frozenset[bytes]) -> None:
        """Store the state of an object, and the tokens of its owners."""
        self._entries[hashed] = _ENTRY.pack(state.version, state.digest or b"")
        self.newest = max(self.newest, state.version)
        if owners:
            self.owners[hashed] = owners
        else:
            self.owners.pop(hashed, None)

    def remove(self, hashed: bytes, version: int) -> None:
        """Remove an object that was deleted at a version."""
        self._entries.pop(hashed, None)
        self.labels.pop(hashed, None)
        self.owners.pop(hashed, None)
        self.last_removal = max(self.last_removal, version)

    def owners_of(self, hashed: bytes) -> frozenset[bytes]:
        """Return the tokens of an object's owners."""
        return self.owners.get(hashed, NO_OWNERS)

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
