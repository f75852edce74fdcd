"""The groups, versions, and resources of an API server, as bytes that a run reads without decoding all of them.

An index of groups and versions is followed by the resources of each version. A process decodes the index and the few
versions that it needs: the cost of a reconcile doesn't grow with the number of CustomResourceDefinitions. This module
imports only the standard library, because the fork server loads it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

PROXY_VARIABLE: Final = "ROLECALL_PROXY_URL"
"""The API server that the discovery of a run is about, for rolecall's own code in the run."""

_LENGTH_BYTES: Final = 8
_CHANGED: Final = b"\1"

Position = Sequence[int]
"""Offset and length of the resources of a version."""


def encode(groups: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]] | None]], version: Mapping[str, Any]) -> bytes:
    """Return the bytes for the versions of each group, the preferred one first, and for the response of ``/version``.

    Resources are those of an APIResourceList; None means that a run has to query the API server for them.
    """
    index: dict[str, dict[str, Position | None]] = {}
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
    """The decoded index, and the bytes with the resources after it."""

    groups: Mapping[str, Mapping[str, Position | None]]
    version: Mapping[str, Any]
    _data: bytes
    _start: int

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the output of ``encode``. Raises ValueError."""
        start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
        index = json.loads(data[_LENGTH_BYTES:start])
        return cls(index["groups"], index["version"], data, start)

    def resources(self, group: str, version: str) -> list[dict[str, Any]] | None:
        """Return the resources of a version; None if the run has to query the API server for them."""
        position = self.groups.get(group, {}).get(version)
        if position is None:
            return None
        first = self._start + position[0]
        found: list[dict[str, Any]] = json.loads(self._data[first : first + position[1]])
        return found


@dataclass(frozen=True, slots=True)
class RunDiscovery:
    """The discovery of one run, valid until the run changes served resources.

    ``descriptor`` is that of a file of one byte, which the operator sets. All processes of the run share it.
    """

    image: DiscoveryImage
    descriptor: int

    @classmethod
    def receive(cls, image: int, descriptor: int) -> Self:
        """Read the image from a descriptor and close it; programs don't inherit the other. Raises ValueError."""
        with os.fdopen(image, "rb") as file:
            data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only form
        return cls(DiscoveryImage.decode(data), descriptor)

    @property
    def is_current(self) -> bool:
        """Whether the run has written nothing that changes served resources."""
        return os.pread(self.descriptor, len(_CHANGED), 0) != _CHANGED


def mark_changed(descriptor: int) -> None:
    """Notify the processes of a run that the served resources have changed."""
    os.pwrite(descriptor, _CHANGED, 0)
