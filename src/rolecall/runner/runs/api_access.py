"""How a run reaches the API server: with its own secret for the proxy, valid as long as the run lasts.

The secret is in the environment of the run and in a kubeconfig of mode 0600 outside the artifacts; both go with the
run. When a run ends the secret is revoked first, so that nothing can be written after the run, even by a process of it
that is still alive.

``SharedDiscovery`` requests the served resources once and hands them to each warm run in memory: an image in a sealed
memory file, shared by all runs until the served resources change. A run that writes a CustomResourceDefinition or an
APIService is notified that its image is out of date before it receives the response to its write; its processes then
query the API server themselves.
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
from rolecall.runner.proxy.forward import NewTraceparent
from rolecall.runner.proxy.ownership import Owner, Ownership
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import Exchange, SessionSpec
from rolecall.runner.reads.read_sets import ReadSets
from rolecall.runner.runs.discovery_image import PROXY_VARIABLE, encode, mark_changed
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import write_private
from rolecall.system.logs import get_logger

logger = get_logger("discovery")

KUBECONFIG_PREFIX = "kubeconfig-"

_SHARE_SECONDS: Final = 1.0
"""How long a response of the API server serves the runs that start after it."""

_DEFINING_GROUPS: Final = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})
"""A write to one of these groups may change the served resources."""

SECRET_VARIABLE: Final = "ROLECALL_RUN_SECRET"  # noqa: S105 - a name
"""The secret of a run for rolecall's own code, such as the callback plugin; clients find it in the kubeconfig."""

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
    now: Callable[[], float] = time.monotonic
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
                    logger.debug("Could not refresh discovery", error=str(error))
                    requested_at = self.now()  # runs that have waited for this attempt don't wait for another
                self._requested_at = requested_at
            image = self._image
        return None if image is None else RunDiscoveryHandle(image, MemoryFile("changed", b"\0", is_sealed=False))


class WriteRecorder(Protocol):
    """Records what runs write; ``rolecall.runner.runs.own_writes.OwnWrites`` is one."""

    def record_write(self, request: tuple[GVK, ObjectKey], obj: RawObject) -> None:
        """Record an object as the API server returned it."""

    def record_removal(self, request: tuple[GVK, ObjectKey], uid: str) -> None:
        """Record that an object was deleted."""


class RequestListener(Protocol):
    """Receives the requests of one run; must return immediately."""

    def on_exchange(self, exchange: Exchange) -> None:
        """Record a request of the run and its response."""

    @property
    def new_traceparent(self) -> NewTraceparent | None:
        """Gives each request of the run its place in a trace; None if there is no trace."""


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The variables with which one run reaches the API server until ``revoke``; secret ones are kept apart.

    The values of ``secrets`` appear in no file, event, or message of the run. ``discovery`` gives a warm run the served
    resources; without it, the run queries the API server.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    revoke: Callable[[], Awaitable[None]] | None = None
    discovery: RunDiscoveryHandle | None = None


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Gives the runs of one kind access to the API server.

    ``environment`` has further variables of every run. ``reads`` receives what each run reads and writes.
    ``discovery`` is that of the same API server.
    """

    client: Client
    proxy: Proxy
    own_writes: WriteRecorder
    on_dependent: Callable[[ApiResource, Ownership], None]
    directory: Path
    inject_owner: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    reads: ReadSets | None = None
    discovery: SharedDiscovery | None = None

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about a deleted primary."""
        if self.reads is not None:
            self.reads.forget(key)

    @asynccontextmanager
    async def open(
        self, gvk: GVK, obj: RawObject, ident: str, listener: RequestListener | None = None
    ) -> AsyncIterator[RunEnvironment]:
        """Yield the environment of one run, which acts with the operator's permissions on behalf of the object.

        With a ``listener``, which receives each request of the run, tasks name themselves in their requests.
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
            owner=owner,
            inject_owner=self.inject_owner,
            on_write=on_write,
            on_removal=lambda uid: self.own_writes.record_removal((gvk, key), uid),
            on_dependent=self.on_dependent,
            ident=ident,
            on_exchange=None if listener is None else listener.on_exchange,
            new_traceparent=None if listener is None else listener.new_traceparent,
            reads=reads,
            before_write=None if discovery is None else discovery.record_write,
        )
        credentials = self.proxy.register(run)
        kubeconfig = self.directory / f"{KUBECONFIG_PREFIX}{ident}"
        variables = {**self.environment, **credentials.environment()}
        variables |= {"KUBECONFIG": str(kubeconfig), "K8S_AUTH_KUBECONFIG": str(kubeconfig)}
        variables[PROXY_VARIABLE] = credentials.url
        if listener:  # the callback plugin task_credentials names each task in its requests
            variables["ROLECALL_TASK_CREDENTIALS"] = "1"
        try:
            await run_in_thread(lambda: write_private(kubeconfig, credentials.kubeconfig()))
            yield RunEnvironment(
                variables, {SECRET_VARIABLE: credentials.secret}, lambda: self.proxy.revoke(run), discovery
            )
        finally:
            await self.proxy.revoke(run)
            await run_in_thread(lambda: kubeconfig.unlink(missing_ok=True))
