"""The sandbox of a cluster: a separate control plane into which objects are imported as requests need them.

A sandbox belongs to one process, which removes it at its end with everything that was imported. The next process
removes the sandbox of a process that was killed.

``SandboxInterceptor`` handles each request before the API server of the sandbox: it imports what the request is about,
and rejects what a sandbox can't do. It records rejected requests in ``problems``, because a role may ignore its
response. The list of all API groups is that of the source and of the sandbox, which lacks groups not imported yet.
"""

import base64
import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import psutil
from aiohttp import web

from rolecall.kube.bodies import decode_object
from rolecall.kube.client import Client
from rolecall.kube.connection import Request
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.proxy.forward import error_response
from rolecall.runner.proxy.request_info import READ_VERBS
from rolecall.runner.proxy.sessions import ProxiedRequest
from rolecall.system.blocking_work import run_in_thread
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.components import ETCD_SOCKET
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.controlplane.state import default_state_directory
from rolecall.workbench.plan.sandbox_import import Controllers, Importer
from rolecall.workbench.plan.sandbox_sources import Source, SourceError
from rolecall.workbench.plan.sandbox_store import DEFINITIONS, Definitions, EtcdStore

PREFIX: Final = "sandbox-"
_OF_API_SERVER: Final = (
    "apiregistration.k8s.io/",
    "flowschemas/",
    "leases/kube-system/",
    "masterleases/",
    "priorityclasses/system-",
    "prioritylevelconfigurations/",
)
"""The objects that are never reset, because the API server maintains them."""
_NODE_LEASES: Final = "leases/kube-node-lease/"
"""Until the Lease of a killed kwok has expired, the next one doesn't manage its node: it takes 40 seconds."""
_NOT_IN_SANDBOX: Final = frozenset({"exec", "attach", "portforward", "proxy", "log"})


@dataclass(slots=True)
class Sandbox:
    """A running sandbox. ``client`` is its administrator."""

    plane: ControlPlane
    client: Client
    controllers: Controllers
    store: EtcdStore
    own_revision: int
    """The revision of etcd that has only the objects that it started with."""

    imported_definitions: set[str] = field(default_factory=set)
    """The names of imported definitions; creating one takes longer than anything else in a replay."""

    def importer(self, source: Source, *, prefetches: bool = False) -> Importer:
        """Return an importer that fills the sandbox from a source."""
        definitions = Definitions(source, self.client, self.imported_definitions)
        return Importer(definitions, self.store, self.controllers, prefetches)

    async def forget(self) -> None:
        """Remove all objects that were imported or created since, so that another source can fill the sandbox.

        Imported definitions stay: the next source replaces them where they differ. Raises SourceError.
        """
        await self._reset(self.own_revision, self.store)

    async def capture(self, importer: Importer) -> "SandboxState":
        """Return the state to which ``restore`` resets the sandbox, while the controllers rest."""
        await self.controllers.rest()
        return self.snapshot(importer)

    def snapshot(self, importer: Importer) -> "SandboxState":
        """Return the state at this moment, with controllers that run again after ``restore`` if they run now."""
        copied = importer.copy(importer.definitions, self.store, self.controllers)
        return SandboxState(self.store.revision(), copied, self.controllers.are_needed)

    async def restore(self, state: "SandboxState") -> Importer:
        """Reset all objects to a state, possibly of another sandbox; return the importer to use after that.

        The objects have their uids of then. Definitions that were imported since stay, the new importer installs them
        as they are in the source. Raises SourceError.
        """
        await self._reset(state.revision, state.importer.store)
        if state.needs_controllers:
            await self.controllers.need()
        definitions = Definitions(state.importer.source, self.client, self.imported_definitions)
        return state.importer.copy(definitions, self.store, self.controllers)

    async def _reset(self, revision: int, store: EtcdStore) -> None:
        """Store the objects of a revision of a store, and remove all others except for imported definitions.

        The controllers rest from then on.
        """
        await self.controllers.rest()
        content = await store.content(revision, except_below=(*_OF_API_SERVER, _NODE_LEASES))
        now = await self.store.content(except_below=_OF_API_SERVER)
        imported = {f"/registry/{DEFINITIONS}/{name}" for name in self.imported_definitions}
        new = now.keys() - content.keys() - imported
        # The API server creates some of its default roles after it is ready.
        added = {key for key in new if b"rbac-defaults" not in base64.b64decode(now[key])}
        changed = {key: value for key, value in content.items() if now.get(key) != value}
        await self.store.change(changed, sorted(added))


@dataclass(frozen=True, slots=True)
class SandboxState:
    """All objects of a sandbox, as a revision of etcd, what its importer had imported, and whether controllers ran."""

    revision: int
    importer: Importer
    needs_controllers: bool


@asynccontextmanager
async def running_sandbox(
    report: Callable[[str], None], *, has_lazy_controllers: bool = False
) -> AsyncIterator[Sandbox]:
    """Start a sandbox, and remove it at the end. Raises ControlPlaneError."""
    await run_in_thread(_remove_abandoned)
    plane = ControlPlane(f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}", report=report, has_controllers=False)
    try:
        await run_in_thread(plane.start)
        async with sandbox_in(plane, has_lazy_controllers=has_lazy_controllers) as sandbox:
            yield sandbox
    finally:
        await run_in_thread(plane.stop)


@asynccontextmanager
async def sandbox_in(plane: ControlPlane, *, has_lazy_controllers: bool = False) -> AsyncIterator[Sandbox]:
    """Yield the sandbox in a control plane that runs without controllers."""
    store = EtcdStore(plane.layout.root / ETCD_SOCKET)
    try:
        async with await Client.connect(str(plane.kubeconfig)) as client:
            controllers = Controllers(plane, are_lazy=has_lazy_controllers)
            yield Sandbox(plane, client, controllers, store, store.revision())
    finally:
        await store.close()


def _remove_abandoned() -> None:
    for path in default_state_directory().glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            with suppress(ControlPlaneError):
                ControlPlane(path.name).stop()


@dataclass(frozen=True, slots=True)
class Problem:
    """A request whose response in the sandbox may differ from the source's: its run and task, and the reason.

    ``is_unreadable`` if the source could not be read.
    """

    ident: str
    task: str
    text: str
    is_unreadable: bool = False


@dataclass(slots=True)
class SandboxInterceptor:
    """Handles the requests of runs before a sandbox does; ``before_write`` is called before the writes for an object.

    Its keys are the kind and key of the primary whose run writes.
    """

    importer: Importer
    problems: list[Problem] = field(default_factory=list)
    before_write: dict[tuple[GVK, ObjectKey], Callable[[ProxiedRequest], Awaitable[None]]] = field(default_factory=dict)

    async def before(self, request: ProxiedRequest) -> web.Response | None:
        """Let a request pass once its objects are imported."""
        info = request.info
        if info.subresource in _NOT_IN_SANDBOX or info.verb == "proxy":
            return self._reject(request, f"{info.subresource or 'proxy'} of {info.resource} does not run in a plan")
        try:
            if not info.is_resource:
                return await self._discovery(request)
            if info.verb in READ_VERBS:
                await self.importer.controllers.before_read(f"{request.path}?{request.query}")
            await self.importer.before(info, request.query, _created_name(request))
        except SourceError as error:
            return self._reject(request, str(error), is_unreadable=True)
        before_write = self.before_write.get((request.run.owner.gvk, request.run.owner.key))
        if before_write is not None and info.is_write and not info.is_dry_run:
            await before_write(request)
        return None

    def _reject(self, request: ProxiedRequest, text: str, *, is_unreadable: bool = False) -> web.Response:
        self.problems.append(Problem(request.run.id, request.origin.task, text, is_unreadable))
        return error_response(HTTPStatus.FORBIDDEN, "Forbidden", text)

    async def _discovery(self, request: ProxiedRequest) -> web.Response | None:
        match request.path.strip("/").split("/"):
            case ["apis"]:
                source = await self.importer.source.groups()
                own = json.loads(await self.importer.client.receive(Request("GET", "/apis")))
                groups: dict[str, Any] = {
                    each["name"]: each for each in (*(source.get("groups") or ()), *own["groups"])
                }
                return web.json_response({**own, "groups": list(groups.values())})
            case ["apis", group, *_] | ["openapi", "v3", "apis", group, *_]:
                await self.importer.install(group)
        return None


def _created_name(request: ProxiedRequest) -> str:
    """Return the name in the body of an object to create."""
    if request.info.verb != "create" or request.info.subresource:
        return ""
    obj = decode_object(request.body, request.content_type)
    return str(metadata_of(obj or {}).get("name") or "")
