"""How a run reaches the API server: with a secret of its own for the proxy, valid for as long as the run lasts.

The secret is in the environment of the run and in a kubeconfig of mode 0600 outside the artifacts; both go with the
run. When a run ends the secret is revoked first, so that nothing can be written after the run, even by a process of it
that is still alive.

Discovery, asked for once by the operator and handed to each warm run in memory.

An image of what the API server serves is in a sealed memory file, which nobody can change, and which all runs share
until something else is served. A run that writes a CustomResourceDefinition or an APIService is told that its image is
out of date, before it gets the answer to its write; its processes then ask the API server themselves.
"""

import asyncio
import fcntl
import os
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from rolecall.kube.client import Client
from rolecall.kube.discovery import AggregatedDiscovery, ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy import Exchange, NewTraceparent, Ownership, Proxy, SessionSpec
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.reads.read_sets import ReadSets
from rolecall.runner.runs.discovery_image import encode, mark_changed
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import write_private
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


class WriteRecorder(Protocol):
    """Takes note of what runs write; ``rolecall.runner.reconcile.own_writes.OwnWrites`` is one."""

    def record_write(self, request: tuple[GVK, ObjectKey], obj: RawObject) -> None:
        """Take note of an object as the API server returned it."""

    def record_removal(self, request: tuple[GVK, ObjectKey], uid: str) -> None:
        """Take note of an object that is gone."""


class RequestListener(Protocol):
    """Is told about the requests of one run; must return at once."""

    def on_exchange(self, exchange: Exchange) -> None:
        """Take note of a request of the run and its answer."""

    @property
    def new_traceparent(self) -> NewTraceparent | None:
        """What gives each request of the run its place in a trace, None if there is no trace."""


OnDependent = Callable[[ApiResource, Ownership], None]
KUBECONFIG_PREFIX = "kubeconfig-"
TASK_CREDENTIALS = {"ROLECALL_TASK_CREDENTIALS": "1"}
"""Asks the callback plugin ``task_credentials`` to name each task in its requests."""

SECRET_VARIABLES = frozenset({"K8S_AUTH_API_KEY"})


@dataclass(frozen=True, slots=True)
class RunCredentials:
    """The environment by which one run reaches the API server until ``revoke``; secret variables are kept apart.

    ``discovery`` tells the run what the API server serves; without it, the run asks.
    """

    environment: dict[str, str]
    secret_environment: dict[str, str]
    revoke: Callable[[], Awaitable[None]]
    discovery: DiscoveryGrant | None = None


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Gives the runs of one kind access to the API server.

    With ``reads``, they are told what each run reads and writes. ``discovery`` is that of the same API server.
    """

    client: Client
    proxy: Proxy
    own_writes: WriteRecorder
    on_dependent: OnDependent
    directory: Path
    inject_owner: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables of every run."""
    reads: ReadSets | None = None
    discovery: SharedDiscovery | None = None

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about a primary that is gone."""
        if self.reads is not None:
            self.reads.forget(key)

    @asynccontextmanager
    async def open(
        self, gvk: GVK, obj: RawObject, ident: str, listener: RequestListener | None = None
    ) -> AsyncIterator[RunCredentials]:
        """Yield the credentials of one run, which acts with the operator's rights on behalf of the object.

        With a ``listener``, which is told about each request of the run, tasks name themselves in their requests.
        """
        key = ObjectKey.of_object(obj)
        resource = await self.client.resource(gvk)
        owner = Owner(gvk, key, uid_of(obj), resource.namespaced)
        reads = None if self.reads is None else self.reads.start(owner)
        discovery = None if self.discovery is None else await self.discovery.for_run()

        def on_write(written: RawObject) -> None:
            self.own_writes.record_write((gvk, key), written)
            if reads is not None:
                reads.wrote(written)

        run = SessionSpec(
            request_gvk=gvk,
            key=key,
            uid=owner.uid,
            namespaced=resource.namespaced,
            inject_owner=self.inject_owner,
            on_write=on_write,
            on_removal=lambda uid: self.own_writes.record_removal((gvk, key), uid),
            on_dependent=self.on_dependent,
            ident=ident,
            on_exchange=None if listener is None else listener.on_exchange,
            new_traceparent=None if listener is None else listener.new_traceparent,
            reads=reads,
            before_write=None if discovery is None else discovery.note_write,
        )
        credentials = self.proxy.register(run)
        kubeconfig = self.directory / f"{KUBECONFIG_PREFIX}{ident}"
        variables = {
            **self.environment,
            **(TASK_CREDENTIALS if listener else {}),
            **credentials.environment(),
            "KUBECONFIG": str(kubeconfig),
            "K8S_AUTH_KUBECONFIG": str(kubeconfig),
        }
        try:
            await run_in_thread(lambda: write_private(kubeconfig, credentials.kubeconfig()))
            yield RunCredentials(
                {name: value for name, value in variables.items() if name not in SECRET_VARIABLES},
                {name: value for name, value in variables.items() if name in SECRET_VARIABLES},
                lambda: self.proxy.revoke(run),
                discovery,
            )
        finally:
            await self.proxy.revoke(run)
            await run_in_thread(lambda: kubeconfig.unlink(missing_ok=True))
