"""A shadow as a whole: a control plane of its own with what is imported into it.

A shadow belongs to one process. It is removed at its end with everything that was imported; what a process that was
killed has left is removed by the next one.
"""

import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import psutil

from rolecall.kube.client import Client
from rolecall.system.blocking_work import in_thread
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.components import ETCD_SOCKET
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.controlplane.state import default_state_directory
from rolecall.workbench.plan.importer import Importer
from rolecall.workbench.plan.sandbox_controllers import Controllers
from rolecall.workbench.plan.sandbox_definitions import Definitions
from rolecall.workbench.plan.sandbox_store import DEFINITIONS, EtcdStore
from rolecall.workbench.plan.source import Source

PREFIX = "shadow-"
_KEPT = (
    "apiregistration.k8s.io/",
    "clusterrolebindings/",
    "clusterroles/",
    "flowschemas/",
    "leases/",
    "priorityclasses/",
    "prioritylevelconfigurations/",
    "rolebindings/kube-",
    "roles/kube-",
)
"""What an API server makes for itself, some of it only after it is ready."""


@dataclass(slots=True)
class Shadow:
    """A running shadow. ``client`` is its administrator."""

    plane: ControlPlane
    client: Client
    controllers: Controllers
    store: EtcdStore
    revision: int
    """Where the shadow's own objects end."""

    imported_definitions: set[str] = field(default_factory=set)
    """The names of definitions that a source has; making one takes longer than anything else in a replay."""

    def importer(self, source: Source, *, prefetches: bool = False) -> Importer:
        """Return what fills the shadow from a source."""
        definitions = Definitions(source, self.client, self.imported_definitions)
        return Importer(definitions, self.store, self.controllers, prefetches)

    async def forget(self) -> None:
        """Remove all objects that were imported or made since, so that another source can fill the shadow.

        Definitions that were imported stay: the next source replaces them where they differ. Raises SourceError.
        """
        await self.controllers.rest()
        definitions = (f"{DEFINITIONS}/{name}" for name in self.imported_definitions)
        await self.store.remove_newer(self.revision, except_below=(*_KEPT, *definitions))


@asynccontextmanager
async def running_shadow(report: Callable[[str], None]) -> AsyncIterator[Shadow]:
    """Start a shadow, and remove it at the end. Raises ControlPlaneError."""
    await in_thread(_remove_left_behind)
    plane = ControlPlane(f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}", report=report, has_controllers=False)
    try:
        await in_thread(plane.start)
        async with shadow_in(plane) as shadow:
            yield shadow
    finally:
        await in_thread(plane.stop)


@asynccontextmanager
async def shadow_in(plane: ControlPlane) -> AsyncIterator[Shadow]:
    """Yield the shadow in a control plane that runs without controllers."""
    store = EtcdStore(plane.layout.root / ETCD_SOCKET)
    try:
        async with await Client.connect(str(plane.kubeconfig)) as client:
            yield Shadow(plane, client, Controllers(plane), store, await store.revision())
    finally:
        await store.close()


def _remove_left_behind() -> None:
    for path in default_state_directory().glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            with suppress(ControlPlaneError):
                ControlPlane(path.name).stop()
