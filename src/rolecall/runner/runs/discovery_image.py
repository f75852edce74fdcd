"""What an API server serves, as bytes that the processes of a run read without decoding all of it.

An index of groups and versions is followed by the resources of each version. A process decodes the index and the few
versions that it needs: what a reconcile costs does not grow with the number of CustomResourceDefinitions. Nothing here
imports more than the standard library, because the fork server loads it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

_LENGTH_BYTES: Final = 8
_CHANGED: Final = b"\1"

Place = Sequence[int]
"""Where the resources of a version are: offset and length."""


def encode(groups: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]] | None]], version: Mapping[str, Any]) -> bytes:
    """Return the bytes for the versions of each group, the preferred one first, and for the answer of ``/version``.

    Resources are those of an APIResourceList; None says that the API server has to be asked for them.
    """
    index: dict[str, dict[str, Place | None]] = {}
    parts: list[bytes] = []
    offset = 0
    for group, versions in groups.items():
        index[group] = {}
        for name, resources in versions.items():
            if resources is None:
                index[group][name] = None
                continue
            parts.append(json.dumps(resources, separators=(",", ":")).encode())
            index[group][name] = (offset, len(parts[-1]))
            offset += len(parts[-1])
    first = json.dumps({"groups": index, "version": version}, separators=(",", ":")).encode()
    return b"".join([len(first).to_bytes(_LENGTH_BYTES, "big"), first, *parts])


@dataclass(frozen=True, slots=True)
class DiscoveryImage:
    """The decoded index, and the bytes with the resources behind it."""

    groups: Mapping[str, Mapping[str, Place | None]]
    version: Mapping[str, Any]
    _data: bytes
    _start: int

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what ``encode`` wrote. Raises ValueError."""
        start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
        index = json.loads(data[_LENGTH_BYTES:start])
        return cls(index["groups"], index["version"], data, start)

    def resources(self, group: str, version: str) -> list[dict[str, Any]] | None:
        """Return the resources of a version; None if the API server has to be asked for them."""
        place = self.groups.get(group, {}).get(version)
        if place is None:
            return None
        first = self._start + place[0]
        found: list[dict[str, Any]] = json.loads(self._data[first : first + place[1]])
        return found


@dataclass(frozen=True, slots=True)
class RunDiscovery:
    """What one run knows of its API server, until it is told that it has changed what is served.

    ``descriptor`` is that of a file of one byte, which the operator sets. All processes of the run share it.
    """

    image: DiscoveryImage
    descriptor: int

    @classmethod
    def receive(cls, image: int, descriptor: int) -> Self:
        """Read the image behind a descriptor, which is closed; programs do not inherit the other. Raises ValueError."""
        with os.fdopen(image, "rb") as file:
            data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only form
        return cls(DiscoveryImage.decode(data), descriptor)

    @property
    def is_current(self) -> bool:
        """Whether the run has written nothing that changes what is served."""
        return os.pread(self.descriptor, len(_CHANGED), 0) != _CHANGED


def mark_changed(descriptor: int) -> None:
    """Tell the processes of a run that what is served has changed."""
    os.pwrite(descriptor, _CHANGED, 0)
