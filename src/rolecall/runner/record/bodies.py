"""Bodies of requests and answers in memory: compressed, and each one once.

Roles read the same lists again and again. So a body is stored under its digest for as long as a record refers to it.
"""

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_LEVEL: Final = 1
_SMALL_BYTES: Final = 256
"""A body of this length is not worth compressing."""


@dataclass(slots=True)
class _Stored:
    content: bytes
    is_compressed: bool
    references: int = 0


@dataclass(slots=True)
class Bodies:
    """The bodies of all records in memory; ``stored_bytes`` is what they take."""

    stored_bytes: int = 0
    _by_digest: dict[bytes, _Stored] = field(default_factory=dict)

    def add(self, body: bytes) -> bytes:
        """Store a body, or refer to it once more, and return its digest."""
        digest = hashlib.sha256(body).digest()[:16]
        stored = self._by_digest.get(digest)
        if stored is None:
            is_compressed = len(body) > _SMALL_BYTES
            stored = _Stored(zlib.compress(body, _LEVEL) if is_compressed else body, is_compressed)
            self._by_digest[digest] = stored
            self.stored_bytes += len(stored.content)
        stored.references += 1
        return digest

    def snapshot(self, digests: Iterable[bytes]) -> "Bodies":
        """Return some of the bodies, which stay whatever is dropped here; nothing is copied."""
        kept = {digest: self._by_digest[digest] for digest in digests}
        return Bodies(sum(len(each.content) for each in kept.values()), kept)

    def get(self, digest: bytes) -> bytes:
        """Return a body. Raises KeyError if no record refers to it any more."""
        stored = self._by_digest[digest]
        return zlib.decompress(stored.content) if stored.is_compressed else stored.content

    def drop(self, digest: bytes) -> None:
        """Give up a reference; a body without references is removed."""
        stored = self._by_digest[digest]
        stored.references -= 1
        if not stored.references:
            del self._by_digest[digest]
            self.stored_bytes -= len(stored.content)
