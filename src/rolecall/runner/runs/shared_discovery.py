"""The resources that the API server serves, requested once and handed to each warm run in memory.

``SharedDiscovery`` holds them as an image in a sealed memory file, shared by all runs until the served resources
change. A run that writes a CustomResourceDefinition or an APIService is notified that its image is out of date before
it receives the response to its write; its processes then query the API server themselves.
"""

import asyncio
import fcntl
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rolecall.kube.discovery import AggregatedDiscovery
from rolecall.kube.errors import KubeError
from rolecall.runner.runs.discovery_image import encode, mark_changed
from rolecall.system.clock import SYSTEM_CLOCK
from rolecall.system.logs import get_logger

logger = get_logger("discovery")

_SHARE_SECONDS: Final = 1.0
"""How long a response of the API server serves the runs that start after it."""

_DEFINING_GROUPS: Final = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})
"""A write to one of these groups may change the served resources."""

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
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)


@dataclass(frozen=True, slots=True)
class RunDiscoveryHandle:
    """The discovery of one run: the image, and a byte that reports whether the run has changed served resources."""

    image: MemoryFile
    changed: MemoryFile

    @property
    def descriptors(self) -> tuple[int, int]:
        """The arguments of ``discovery_image.RunDiscovery.receive`` in the process of the run."""
        return self.image.descriptor, self.changed.descriptor

    def record_write(self, group: str) -> None:
        """Record that the run has written an object of a group."""
        if group in _DEFINING_GROUPS:
            mark_changed(self.changed.descriptor)


@dataclass(slots=True)
class SharedDiscovery:
    """Gives each run the resources that the API server served at most a second before the run started."""

    source: AggregatedDiscovery
    now: Callable[[], float] = SYSTEM_CLOCK.monotonic
    _image: MemoryFile | None = None
    _requested_at: float = -_SHARE_SECONDS
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def for_run(self) -> RunDiscoveryHandle | None:
        """Return the discovery of a run that starts now; None until the API server has responded once."""
        async with self._lock:
            if self.now() - self._requested_at >= _SHARE_SECONDS:
                requested_at = self.now()
                try:
                    served = await self.source.changed()
                    if served is not None:
                        self._image = MemoryFile("discovery", encode(served.groups, served.version), is_sealed=True)
                except (KubeError, OSError) as error:
                    # Runs request what they don't find in the image.
                    logger.debug("Failed to refresh discovery", error=str(error))
                    requested_at = self.now()  # runs that have waited for this attempt don't wait for another
                self._requested_at = requested_at
            image = self._image
        return None if image is None else RunDiscoveryHandle(image, MemoryFile("changed", b"\0", is_sealed=False))
