"""Discovery, asked for once by the operator and handed to each warm run in memory.

An image of what the API server serves is in a sealed memory file, which nobody can change, and which all runs share
until something else is served. A run that writes a CustomResourceDefinition or an APIService is told that its image is
out of date, before it gets the answer to its write; its processes then ask the API server themselves.
"""

import asyncio
import fcntl
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rolecall.kube.aggregated_discovery import AggregatedDiscovery
from rolecall.kube.errors import KubeError
from rolecall.runner.runs.discovery_image import encode, mark_changed
from rolecall.system.logs import get_logger

logger = get_logger("discovery")
AT_MOST_EVERY_SECONDS: Final = 1.0
"""How long an answer of the API server serves the runs that start after it."""

DEFINING_GROUPS: Final = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})
"""A write to one of these groups may change what is served."""

_SEALS: Final = fcntl.F_ADD_SEALS
_ALL_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class MemoryFile:
    """A file in memory, whose descriptor is closed with the object."""

    def __init__(self, name: str, content: bytes, *, is_sealed: bool) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        weakref.finalize(self, os.close, self.descriptor)
        view = memoryview(content)
        while view:
            view = view[os.write(self.descriptor, view) :]
        if is_sealed:
            fcntl.fcntl(self.descriptor, _SEALS, _ALL_SEALS)


@dataclass(frozen=True, slots=True)
class DiscoveryGrant:
    """The discovery of one run: the image, and the byte that says whether the run has changed what is served."""

    image: MemoryFile
    changed: MemoryFile

    @property
    def descriptors(self) -> tuple[int, int]:
        """What the process of the run gets; see ``discovery_image.RunDiscovery.receive``."""
        return self.image.descriptor, self.changed.descriptor

    def note_write(self, group: str) -> None:
        """Take note that the run has written an object of a group."""
        if group in DEFINING_GROUPS:
            mark_changed(self.changed.descriptor)


@dataclass(slots=True)
class SharedDiscovery:
    """Gives each run what the API server serves as it starts, as far as that is not older than a second."""

    source: AggregatedDiscovery
    now: Callable[[], float] = time.monotonic
    _image: MemoryFile | None = None
    _looked_at: float = -AT_MOST_EVERY_SECONDS
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def for_run(self) -> DiscoveryGrant | None:
        """Return the discovery of a run that starts now; None as long as the API server has not told what it serves."""
        async with self._lock:
            if self.now() - self._looked_at >= AT_MOST_EVERY_SECONDS:
                await self._look()
            image = self._image
        return None if image is None else DiscoveryGrant(image, MemoryFile("changed", b"\0", is_sealed=False))

    async def _look(self) -> None:
        started = self.now()
        try:
            served = await self.source.changed()
            if served is not None:
                self._image = MemoryFile("discovery", encode(served.groups, served.version), is_sealed=True)
        except (KubeError, OSError, LookupError, TypeError, AttributeError) as error:
            # Runs look for themselves what they do not find in what is known.
            logger.debug("Could not look again at what the API server serves", error=str(error))
            started = self.now()  # those who have waited for this look do not wait for another one
        self._looked_at = started
