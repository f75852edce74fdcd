"""What is known of each object that runs may have read, in as few bytes as possible.

A role may list ten thousand objects, and none of them is needed again. So an entry is a hash of the key, a version and
a digest of eight bytes. Labels are kept only for the keys that a selector asks about, and owners only if they are
primaries.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Final

from rolecall.kube.references import ObjectKey
from rolecall.runner.reads.observed_state import DIGEST_BYTES, State

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
class PackedStore:
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
