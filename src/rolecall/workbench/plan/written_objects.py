"""What the requests of planned runs did to objects: their writes, and each object before and after them.

What the controllers of the sandbox did is not among them: an object is as the API server answered the last write of a
run.

Keeps what objects were before a planned run changed them.

A gate before the sandbox: a write passes when its object has been imported, and has been read as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from rolecall.kube.client import Client
from rolecall.kube.connection import Request, read_object
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError, NotFoundError
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy import ProxiedRequest
from rolecall.runner.proxy.bodies import decode_object
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.record.run_record import KeptExchange, RunRecord
from rolecall.workbench.plan.model import ObjectChange, PlannedWrite, TaskName
from rolecall.workbench.plan.sandbox import SandboxGate

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

    sandbox: SandboxGate
    client: Client
    _of_primaries: dict[tuple[GVK, ObjectKey], Baselines] = field(default_factory=dict)

    def register(self, gvk: GVK, key: ObjectKey) -> Baselines:
        """Return what the runs for a primary find before their writes, from now on."""
        baselines = Baselines()
        self._of_primaries[gvk, key] = baselines
        return baselines

    async def before(self, request: ProxiedRequest) -> web.Response | None:
        """Import what a request asks about; remember what a write is about to change."""
        answer = await self.sandbox.before(request)
        if answer is None and request.info.is_write and not request.info.is_dry_run:
            baselines = self._of_primaries.get((request.spec.owner.gvk, request.spec.owner.key))
            if baselines is not None:
                await self._remember(baselines, request)
        return answer

    async def _remember(self, baselines: Baselines, request: ProxiedRequest) -> None:
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

    async def _remember_all(self, baselines: Baselines, request: ProxiedRequest) -> None:
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


_SUCCESSES: Final = range(200, 300)
_SCALE: Final = "scale"
_STATUS: Final = "status"


@dataclass(slots=True)
class _Touched:
    """An object that runs have written, as the last write left it."""

    gvk: GVK
    after: RawObject | None
    tasks: dict[TaskName, None] = field(default_factory=dict)
    has_status: bool = False
    """Whether a run has written the status itself."""


@dataclass(slots=True)
class Changes:
    """Collects the writes of the runs for one object, run by run."""

    baselines: Baselines
    writes: list[PlannedWrite] = field(default_factory=list)
    _touched: dict[Place, _Touched] = field(default_factory=dict)

    def add(self, record: RunRecord) -> int:
        """Take note of the writes of a run; return how many objects they have changed."""
        changed = 0
        for kept in record.exchanges:
            info = kept.exchange.info
            if not info.is_write or info.is_dry_run:
                continue
            task = _task_of(kept, record)
            self.writes.append(_planned(kept, record, task))
            if kept.exchange.status in _SUCCESSES:
                changed += sum(self._touch(place, obj, info, task) for place, obj in self._results(kept, record))
        return changed

    def objects(self) -> tuple[ObjectChange, ...]:
        """Return the objects in the order in which they were written first."""
        return tuple(self._change(place, touched) for place, touched in self._touched.items())

    def latest(self) -> list[tuple[GVK, ObjectKey, RawObject]]:
        """Return the objects that were written and exist, as the last write left them."""
        return [(each.gvk, place[2], each.after) for place, each in self._touched.items() if each.after is not None]

    def _results(self, kept: KeptExchange, record: RunRecord) -> Iterator[tuple[Place, RawObject | None]]:
        """Yield what a write has left of each object that it was for."""
        info = kept.exchange.info
        if info.verb == "deletecollection":
            wanted = (info.group, info.resource)
            for place in self.baselines.before:
                if place[:2] == wanted and info.namespace in ("", place[2].namespace):
                    yield place, None
            return
        answer = decode_object(record.bodies.get(kept.response), kept.exchange.response_type) if kept.response else None
        key = info.key if info.name else ObjectKey.of_object(answer or {})
        if not key.name:
            return
        yield (info.group, info.resource, key), None if info.is_removal else answer

    def _touch(self, place: Place, obj: RawObject | None, info: RequestInfo, task: TaskName) -> bool:
        known = self._touched.get(place)
        previous = known.after if known else self.baselines.before.get(place)
        if info.subresource == _SCALE and obj is not None:
            obj = _scaled(previous, obj)
        elif info.subresource not in ("", _STATUS):
            return False
        is_same = previous is not None and obj is not None and resource_version_of(previous) == resource_version_of(obj)
        if is_same or (previous is None and obj is None):
            return False
        gvk = GVK.of_object(obj) if obj else self.baselines.kinds.get(place[:2], GVK(place[0], info.version, place[1]))
        touched = self._touched.setdefault(place, _Touched(gvk, obj))
        touched.after = obj
        touched.tasks[task] = None
        touched.has_status |= info.subresource == _STATUS
        return True

    def _change(self, place: Place, touched: _Touched) -> ObjectChange:
        before = self.baselines.before.get(place)
        writes_status = touched.has_status or place[:2] in self.baselines.without_status
        return ObjectChange(touched.gvk, place[2], before, touched.after, tuple(touched.tasks), writes_status)


def _task_of(kept: KeptExchange, record: RunRecord) -> TaskName:
    origin = kept.exchange.origin
    task = record.tasks.get((origin.task, origin.host))
    if task is None:
        return TaskName("", is_hidden=origin.is_hidden)
    return TaskName(task.name, task.path, origin.is_hidden or task.is_hidden)


def _planned(kept: KeptExchange, record: RunRecord, task: TaskName) -> PlannedWrite:
    exchange = kept.exchange
    body = record.bodies.get(kept.body) if kept.body else b""
    return PlannedWrite(task, exchange.method, exchange.target, exchange.content_type, body, exchange.status or 0)


def _scaled(previous: RawObject | None, scale: RawObject) -> RawObject | None:
    if previous is None:
        return None
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    metadata = {**previous["metadata"], "resourceVersion": resource_version_of(scale)}
    return {**previous, "metadata": metadata, "spec": {**previous.get("spec", {}), "replicas": replicas}}
