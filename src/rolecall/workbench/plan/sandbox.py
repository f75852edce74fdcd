"""A sandbox as a whole: a control plane of its own with what is imported into it.

A sandbox belongs to one process. It is removed at its end with everything that was imported; what a process that was
killed has left is removed by the next one.

Stands before the API server of a sandbox: imports what a request asks about, and refuses what no sandbox can do.

Discovery of the sandbox would lack the groups of the source that nobody has asked for yet, so the list of all groups
is made of both. Whoever plans asks ``problems`` afterwards: a role may ignore the answer that it gets.
"""

import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import psutil
from aiohttp import web

from rolecall.kube.client import Client
from rolecall.kube.connection import Request
from rolecall.kube.metadata import metadata_of
from rolecall.runner.proxy.bodies import decode_object
from rolecall.runner.proxy.forward import error_response
from rolecall.runner.proxy.sessions import ProxiedRequest
from rolecall.system.blocking_work import run_in_thread
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.components import ETCD_SOCKET
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.controlplane.state import default_state_directory
from rolecall.workbench.plan.sandbox_import import Controllers, Importer
from rolecall.workbench.plan.sandbox_sources import Source, SourceError
from rolecall.workbench.plan.sandbox_store import DEFINITIONS, Definitions, EtcdStore

PREFIX = "sandbox-"
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
class Sandbox:
    """A running sandbox. ``client`` is its administrator."""

    plane: ControlPlane
    client: Client
    controllers: Controllers
    store: EtcdStore
    revision: int
    """Where the sandbox's own objects end."""

    imported_definitions: set[str] = field(default_factory=set)
    """The names of definitions that a source has; making one takes longer than anything else in a replay."""

    def importer(self, source: Source, *, prefetches: bool = False) -> Importer:
        """Return what fills the sandbox from a source."""
        definitions = Definitions(source, self.client, self.imported_definitions)
        return Importer(definitions, self.store, self.controllers, prefetches)

    async def forget(self) -> None:
        """Remove all objects that were imported or made since, so that another source can fill the sandbox.

        Definitions that were imported stay: the next source replaces them where they differ. Raises SourceError.
        """
        await self.controllers.rest()
        definitions = (f"{DEFINITIONS}/{name}" for name in self.imported_definitions)
        await self.store.remove_newer(self.revision, except_below=(*_KEPT, *definitions))


@asynccontextmanager
async def running_sandbox(report: Callable[[str], None]) -> AsyncIterator[Sandbox]:
    """Start a sandbox, and remove it at the end. Raises ControlPlaneError."""
    await run_in_thread(_remove_left_behind)
    plane = ControlPlane(f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}", report=report, has_controllers=False)
    try:
        await run_in_thread(plane.start)
        async with sandbox_in(plane) as sandbox:
            yield sandbox
    finally:
        await run_in_thread(plane.stop)


@asynccontextmanager
async def sandbox_in(plane: ControlPlane) -> AsyncIterator[Sandbox]:
    """Yield the sandbox in a control plane that runs without controllers."""
    store = EtcdStore(plane.layout.root / ETCD_SOCKET)
    try:
        async with await Client.connect(str(plane.kubeconfig)) as client:
            yield Sandbox(plane, client, Controllers(plane), store, await store.revision())
    finally:
        await store.close()


def _remove_left_behind() -> None:
    for path in default_state_directory().glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            with suppress(ControlPlaneError):
                ControlPlane(path.name).stop()


_GROUPS: Final = "/apis"
_REFUSED: Final = frozenset({"exec", "attach", "portforward", "proxy", "log"})


@dataclass(frozen=True, slots=True)
class Problem:
    """A request that could not be answered as the source would have: the task that asked, and why."""

    ident: str
    task: str
    text: str


@dataclass(slots=True)
class SandboxGate:
    """The gate of the proxy of one sandbox."""

    importer: Importer
    problems: list[Problem] = field(default_factory=list)

    async def before(self, request: ProxiedRequest) -> web.Response | None:
        """Let a request pass when what it asks about has been imported."""
        info = request.info
        if info.subresource in _REFUSED or info.verb == "proxy":
            return self._refuse(request, f"{info.subresource or 'proxy'} of {info.resource} does not run in a plan")
        try:
            if not info.is_resource:
                return await self._discovery(request)
            await self.importer.before(info, request.query, _name_in(request))
        except SourceError as error:
            return self._refuse(request, str(error))
        return None

    def _refuse(self, request: ProxiedRequest, text: str) -> web.Response:
        self.problems.append(Problem(request.spec.ident, request.origin.task, text))
        return error_response(HTTPStatus.FORBIDDEN, "Forbidden", text)

    async def _discovery(self, request: ProxiedRequest) -> web.Response | None:
        match request.path.strip("/").split("/"):
            case ["apis"]:
                return await self._all_groups()
            case ["apis", group, *_] | ["openapi", "v3", "apis", group, *_]:
                await self.importer.install(group)
        return None

    async def _all_groups(self) -> web.Response:
        source = await self.importer.source.groups()
        own = json.loads(await self.importer.client.receive(Request("GET", _GROUPS)))
        groups: dict[str, Any] = {each["name"]: each for each in (*(source.get("groups") or ()), *own["groups"])}
        return web.json_response({**own, "groups": list(groups.values())})


def _name_in(request: ProxiedRequest) -> str:
    """Return the name in the body of an object to create."""
    if request.info.verb != "create" or request.info.subresource:
        return ""
    obj = decode_object(request.body, request.content_type)
    return str(metadata_of(obj or {}).get("name") or "")
