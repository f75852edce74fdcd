"""The writes of the runs for one object, and each written object before the first and after the last of them.

``capture`` each write before the API server sees it, and ``add`` each run when it has ended. Changes that the sandbox's
controllers make are not included: an object is as the API server returned it for the last write of a run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qsl

from rolecall.kube.bodies import decode_object
from rolecall.kube.client import Client
from rolecall.kube.connection import Request, read_object
from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.sessions import ProxiedRequest
from rolecall.runner.record.run_record import KeptExchange, RunRecord
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.plan.model import ABSENT, ObjectChange, PlannedWrite

_SUCCESSES: Final = range(200, 300)
_SELECTORS: Final = frozenset({"labelSelector", "fieldSelector"})
_SCALE: Final = "scale"
_STATUS: Final = "status"
_Resource = tuple[str, str]
"""Group and plural."""
_ObjectId = tuple[str, str, ObjectKey]
"""Group, plural and key of an object."""


@dataclass(slots=True)
class WrittenObjects:
    """Collects the writes of the runs for one object; ``client`` reads the objects before they are written."""

    client: Client
    writes: list[PlannedWrite] = field(default_factory=list)
    _before: dict[_ObjectId, RawObject | None] = field(default_factory=dict)
    _changes: dict[_ObjectId, ObjectChange] = field(default_factory=dict)
    _kinds: dict[_Resource, GVK] = field(default_factory=dict)
    _without_status: set[_Resource] = field(default_factory=set)
    """Kinds without a status subresource: their status is written with the object."""

    async def capture(self, request: ProxiedRequest) -> None:
        """Keep the objects that a write is about to change as they are, unless they are known."""
        info = request.info
        if info.verb == "deletecollection":
            await self._capture_collection(request)
            return
        name = info.name or str(metadata_of(decode_object(request.body, request.content_type) or {}).get("name") or "")
        key = info.key_of(name)
        resource = await self.client.resource_for_path(info.group, info.version, info.resource)
        if resource is None:
            return
        if "status" not in resource.subresources:
            self._without_status.add((info.group, info.resource))
        if name and not resource.is_virtual and (info.group, info.resource, key) not in self._before:
            try:
                obj = read_object(await self.client.receive(Request("GET", resource.path_of(key))), resource.plural)
            except ABSENT:
                obj = None
            self._keep(info, key, obj)

    async def _capture_collection(self, request: ProxiedRequest) -> None:
        selectors: dict[str, str] = {name: value for name, value in parse_qsl(request.query) if name in _SELECTORS}
        try:
            found = read_object(await self.client.receive(Request("GET", request.path, selectors)), request.path)
        except KubeError:
            return  # the request itself will fail in the same way
        kind = GVK.of(str(found.get("apiVersion") or ""), str(found.get("kind") or "").removesuffix("List"))
        for item in found.get("items") or ():
            obj = {"apiVersion": kind.api_version, "kind": kind.kind, **item}
            self._keep(request.info, ObjectKey.of_object(obj), obj)

    def _keep(self, info: RequestInfo, key: ObjectKey, obj: RawObject | None) -> None:
        self._before.setdefault((info.group, info.resource, key), obj)
        if obj is not None:
            self._kinds.setdefault((info.group, info.resource), GVK.of_object(obj))

    def add(self, record: RunRecord) -> int:
        """Record the writes of a run that has ended; return how many objects they changed."""
        changed = 0
        for kept in record.exchanges:
            exchange, info = kept.exchange, kept.exchange.info
            if not info.is_write or info.is_dry_run:
                continue
            task = TaskName.of(record, exchange.origin) or TaskName("", is_hidden=exchange.origin.is_hidden)
            body = kept.body.content if kept.body else b""
            status = exchange.status or 0
            self.writes.append(
                PlannedWrite(task, exchange.method, exchange.target, exchange.content_type, body, status)
            )
            if status in _SUCCESSES:
                changed += sum(self._update(ident, obj, info, task) for ident, obj in self._results(kept))
        return changed

    def _results(self, kept: KeptExchange) -> Iterator[tuple[_ObjectId, RawObject | None]]:
        """Yield each object that a successful write was for, as the write left it."""
        info = kept.exchange.info
        if info.verb == "deletecollection":
            for ident in self._before:
                if ident[:2] == (info.group, info.resource) and info.namespace in ("", ident[2].namespace):
                    yield ident, None
            return
        obj = decode_object(kept.response.content, kept.exchange.response_type) if kept.response else None
        key = info.key if info.name else ObjectKey.of_object(obj or {})
        if key.name:
            yield (info.group, info.resource, key), None if info.is_removal else obj

    def _update(self, ident: _ObjectId, obj: RawObject | None, info: RequestInfo, task: TaskName) -> bool:
        """Record how a write left an object; return whether it changed the object."""
        known = self._changes.get(ident)
        previous = known.after if known else self._before.get(ident)
        if info.subresource == _SCALE and obj is not None:
            obj = _scaled(previous, obj)
        elif info.subresource not in ("", _STATUS):
            return False
        is_same = previous is not None and obj is not None and resource_version_of(previous) == resource_version_of(obj)
        if is_same or (previous is None and obj is None):
            return False
        if known is None:
            gvk = GVK.of_object(obj) if obj else self._kinds.get(ident[:2], GVK(ident[0], info.version, ident[1]))
            known = ObjectChange(gvk, ident[2], previous, obj, writes_status=ident[:2] in self._without_status)
        tasks = tuple(dict.fromkeys((*known.tasks, task)))
        writes_status = known.writes_status or info.subresource == _STATUS
        self._changes[ident] = replace(known, after=obj, tasks=tasks, writes_status=writes_status)
        return True

    def changes(self) -> tuple[ObjectChange, ...]:
        """Return the changes of the objects, in the order in which they were written first."""
        return tuple(self._changes.values())


def _scaled(previous: RawObject | None, scale: RawObject) -> RawObject | None:
    if previous is None:
        return None
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    metadata = {**previous["metadata"], "resourceVersion": resource_version_of(scale)}
    return {**previous, "metadata": metadata, "spec": {**previous.get("spec", {}), "replicas": replicas}}
