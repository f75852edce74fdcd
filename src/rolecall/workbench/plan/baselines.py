"""Keeps what objects were before a planned run changed them.

A gate before the shadow: a write passes when its object has been imported, and has been read as it is.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from rolecall.kube.answers import read_object
from rolecall.kube.client import Client
from rolecall.kube.connection import Request
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError, NotFoundError
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy import GatedRequest
from rolecall.runner.proxy.bodies import decode_object
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.workbench.plan.sandbox_gate import ShadowGate

_SELECTORS: Final[tuple[str, ...]] = ("labelSelector", "fieldSelector")
Place = tuple[str, str, ObjectKey]
"""Group and plural of an object, and its key."""


@dataclass(slots=True)
class Baselines:
    """The objects that a run has written, each as it was before the first write; None if it did not exist."""

    before: dict[Place, RawObject | None] = field(default_factory=dict)
    kinds: dict[tuple[str, str], GVK] = field(default_factory=dict)
    without_status: set[tuple[str, str]] = field(default_factory=set)
    """The groups and plurals of kinds whose status is written with the object: they have no subresource for it."""

    def add(self, info: RequestInfo, key: ObjectKey, obj: RawObject | None) -> None:
        """Remember an object, unless it is known."""
        self.before.setdefault((info.group, info.resource, key), obj)
        if obj is not None:
            self.kinds.setdefault((info.group, info.resource), GVK.of_object(obj))


@dataclass(slots=True)
class PlanGate:
    """The gate of the proxy of planned runs. ``register`` the baselines of a run before its first request."""

    shadow: ShadowGate
    client: Client
    _of_primaries: dict[tuple[GVK, ObjectKey], Baselines] = field(default_factory=dict)

    def register(self, gvk: GVK, key: ObjectKey) -> Baselines:
        """Return what the runs for a primary find before their writes, from now on."""
        baselines = Baselines()
        self._of_primaries[gvk, key] = baselines
        return baselines

    async def before(self, request: GatedRequest) -> web.Response | None:
        """Import what a request asks about; remember what a write is about to change."""
        answer = await self.shadow.before(request)
        if answer is None and request.info.is_write and not request.info.is_dry_run:
            baselines = self._of_primaries.get((request.spec.request_gvk, request.spec.key))
            if baselines is not None:
                await self._remember(baselines, request)
        return answer

    async def _remember(self, baselines: Baselines, request: GatedRequest) -> None:
        info = request.info
        if info.verb == "deletecollection":
            await self._remember_all(baselines, request)
            return
        name = info.name or str(metadata_of(decode_object(request.body, request.content_type) or {}).get("name") or "")
        key = info.key_of(name)
        resource = await self.client.resource_for_path(info.group, info.version, info.resource)
        if resource is not None and "status" not in resource.subresources:
            baselines.without_status.add((info.group, info.resource))
        if name and resource and not resource.is_virtual and (info.group, info.resource, key) not in baselines.before:
            baselines.add(info, key, await self._get(resource, key))

    async def _remember_all(self, baselines: Baselines, request: GatedRequest) -> None:
        query = dict(parse_qsl(request.query))
        selectors: dict[str, str] = {name: query[name] for name in _SELECTORS if name in query}
        try:
            found = read_object(await self.client.receive(Request("GET", request.path, selectors)), request.path)
        except KubeError:
            return  # the request itself will fail in the same way
        kind = GVK.of(str(found.get("apiVersion") or ""), str(found.get("kind") or "").removesuffix("List"))
        for item in found.get("items") or ():
            obj = {"apiVersion": kind.api_version, "kind": kind.kind, **item}
            baselines.add(request.info, ObjectKey.of_object(obj), obj)

    async def _get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        try:
            return read_object(await self.client.receive(Request("GET", resource.path_of(key))), resource.plural)
        except NotFoundError:
            return None
