"""Imports what a request asks about before it is answered, once: an object or a list, with all that belongs to it.

What was imported, or was found to be missing, is never looked up again: from then on the sandbox knows better.

What has to be imported together with an object: its owners, and what the controllers of workloads have made.

Without its owner the garbage collector would remove an object; without their pods, workloads would make new ones.

The controllers of a sandbox, which work only when somebody needs them.

A controller that sees a ReplicaSet before its pods makes them anew. So nothing works while workloads are imported, and
controllers read everything anew afterwards. Most plans change nothing that they look after, and never start them.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final
from urllib.parse import parse_qsl

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ConflictError, KubeError
from rolecall.kube.metadata import metadata_of, owner_references_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, OwnerReference, RawObject
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.system.blocking_work import run_in_thread
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.components import CONTROLLERS, node
from rolecall.workbench.plan.sandbox_sources import Source, SourceError
from rolecall.workbench.plan.sandbox_store import Definitions, EtcdStore, StoredObject

_APPS: Final = "apps"
_MADE_BY: Final[dict[tuple[str, str], tuple[tuple[str, str, str], ...]]] = {
    (_APPS, "Deployment"): ((_APPS, "v1", "replicasets"),),
    (_APPS, "ReplicaSet"): (("", "v1", "pods"),),
    (_APPS, "StatefulSet"): (("", "v1", "pods"), (_APPS, "v1", "controllerrevisions")),
    (_APPS, "DaemonSet"): (("", "v1", "pods"), (_APPS, "v1", "controllerrevisions")),
    ("", "ReplicationController"): (("", "v1", "pods"),),
    ("batch", "CronJob"): (("batch", "v1", "jobs"),),
    ("batch", "Job"): (("", "v1", "pods"),),
}
"""What a controller of Kubernetes makes for a kind, by group, version and plural."""

MADE_BY_CONTROLLERS: Final = tuple(dict.fromkeys(chain.from_iterable(_MADE_BY.values())))
"""The group, version and plural of everything that controllers make."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object of the source and its resource."""

    resource: ApiResource
    obj: RawObject

    @property
    def is_workload(self) -> bool:
        """Whether a controller makes other objects for it."""
        gvk = self.resource.gvk
        return (gvk.group, gvk.kind) in _MADE_BY


@dataclass(slots=True)
class Relatives:
    """Collects objects with all that belongs to them. ``assumptions`` says what could not be found out."""

    source: Source
    definitions: Definitions
    assumptions: list[str] = field(default_factory=list)

    async def of(self, found: list[Found], known: frozenset[str]) -> list[Found]:
        """Return objects with their relatives, apart from those whose uids are known. Raises SourceError."""
        whole: dict[str, Found] = {}
        waiting = deque(found)
        while waiting:
            each = waiting.popleft()
            uid = uid_of(each.obj) or f"{each.resource.plural}/{ObjectKey.of_object(each.obj)}"
            if uid in whole or uid in known:
                continue
            each, owners = await self._with_owners(each)
            whole[uid] = each
            waiting += owners
            waiting += await self._made_for(each)
        return list(whole.values())

    async def _with_owners(self, found: Found) -> tuple[Found, list[Found]]:
        """Return an object without the owners that cannot be read, and the owners that can."""
        owners, kept = [], []
        references = owner_references_of(found.obj)
        for reference, raw in zip(references, metadata_of(found.obj).get("ownerReferences") or (), strict=False):
            try:
                owner = await self._owner(found, reference)
            except SourceError as error:
                key = ObjectKey.of_object(found.obj)
                self.assumptions.append(f"{found.resource.gvk.kind} {key} has no owner {reference.name}: {error}")
                continue
            kept.append(raw)
            owners += [owner] if owner else []
        if len(kept) == len(references):
            return found, owners
        metadata = {**metadata_of(found.obj), "ownerReferences": kept}
        return Found(found.resource, {**found.obj, "metadata": metadata}), owners

    async def _owner(self, found: Found, reference: OwnerReference) -> Found | None:
        """Return the owner, None if it is gone, as far as the reference is concerned."""
        await self.definitions.install(reference.gvk.group)
        resource = await self.definitions.resource_of(reference.gvk)
        if resource is None:
            return None
        namespace = ObjectKey.of_object(found.obj).namespace if resource.namespaced else ""
        owner = await self.source.get(resource, ObjectKey(namespace, reference.name))
        return Found(resource, owner) if owner is not None and uid_of(owner) == reference.uid else None

    async def _made_for(self, found: Found) -> list[Found]:
        gvk = found.resource.gvk
        made: list[Found] = []
        for group, version, plural in _MADE_BY.get((gvk.group, gvk.kind), ()):
            resource = await self.definitions.resource(group, version, plural)
            if resource is None:
                continue
            namespace, labels = ObjectKey.of_object(found.obj).namespace, _selector_of(found.obj)
            objects = await self.source.list(resource, namespace, labels=labels)
            made += [Found(resource, each) for each in objects if uid_of(found.obj) in _owner_uids(each)]
        return made


def _owner_uids(obj: RawObject) -> Iterator[str]:
    return (reference.uid for reference in owner_references_of(obj))


def _selector_of(obj: RawObject) -> str:
    """Return the labels by which a workload finds what it has made; empty if expressions or nothing select it."""
    spec: dict[str, Any] = obj.get("spec") or {}
    selector = spec.get("selector") or {}
    labels = (
        selector.get("matchLabels", {}) if "matchLabels" in selector or "matchExpressions" in selector else selector
    )
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()) if isinstance(value, str))


_GROUPS: Final = frozenset({"apps", "batch", "autoscaling", "policy"})
_CORE: Final = frozenset({"pods", "services", "replicationcontrollers", "namespaces", "persistentvolumeclaims"})


def need_controllers(info: RequestInfo) -> bool:
    """Return whether a request changes what controllers look after; every removal does, because of its dependents."""
    if not info.is_write or info.is_dry_run:
        return False
    is_looked_after = info.group in _GROUPS or (not info.group and info.resource in _CORE)
    return is_looked_after or info.is_removal


@dataclass(slots=True)
class Controllers:
    """Starts and stops the controllers of one control plane."""

    plane: ControlPlane
    are_needed: bool = False
    _are_running: bool = False
    _pauses: int = 0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def need(self) -> None:
        """Let controllers work from now on."""
        self.are_needed = True
        async with self._lock:
            await self._follow()

    async def pause(self) -> None:
        """Return when no controller works any more, until ``resume``."""
        self._pauses += 1
        async with self._lock:
            await self._follow()

    async def resume(self) -> None:
        """Let controllers work again, if they are needed."""
        self._pauses -= 1
        async with self._lock:
            await self._follow()

    async def rest(self) -> None:
        """Stop the controllers until somebody needs them again."""
        self.are_needed = False
        async with self._lock:
            await self._follow()

    async def _follow(self) -> None:
        should_run = self.are_needed and not self._pauses
        if should_run != self._are_running:
            await run_in_thread(self._start if should_run else self._kill)
            self._are_running = should_run

    def _start(self) -> None:
        for component in CONTROLLERS:
            self.plane.start_component(component)

    def _kill(self) -> None:
        for component in CONTROLLERS:
            self.plane.stop_component(component, grace_seconds=0)


PREFETCHED_OBJECTS: Final = 500
_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
_LISTS: Final = frozenset({"list", "watch", "deletecollection"})
_NOT_STORED: Final = frozenset({"apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io"})
_Place = tuple[str, str, str]
"""Group, plural and namespace."""
_List = tuple[_Place, str, str]
"""A list with its selectors for labels and fields; without selectors it is complete."""


@dataclass(slots=True)
class Imported:
    """What a sandbox has of its source."""

    uids: set[str] = field(default_factory=set)
    objects: dict[tuple[_Place, str], bool] = field(default_factory=dict)
    """What was asked for by name, and whether it was there."""

    lists: set[_List] = field(default_factory=set)

    namespaces: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Importer:
    """Fills a sandbox from its source.

    With ``prefetches`` the first object of a kind and namespace brings the others with it, which saves time if many are
    planned.
    """

    definitions: Definitions
    store: EtcdStore
    controllers: Controllers
    prefetches: bool = False
    relatives: Relatives = field(init=False)
    imported: Imported = field(default_factory=Imported)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        """Make what the importer works with."""
        self.relatives = Relatives(self.source, self.definitions)

    @property
    def source(self) -> Source:
        """What the sandbox is filled from."""
        return self.definitions.source

    @property
    def client(self) -> Client:
        """The administrator of the sandbox."""
        return self.definitions.client

    @property
    def assumptions(self) -> list[str]:
        """What could not be found out, as sentences."""
        return self.relatives.assumptions

    def keys_of(self, resource: ApiResource) -> set[ObjectKey]:
        """Return the keys of the objects of a resource that were imported."""
        kind = (resource.gvk.group, resource.plural)
        places = self.imported.objects.items()
        return {ObjectKey(place[2], name) for (place, name), is_there in places if is_there and place[:2] == kind}

    async def before(self, info: RequestInfo, query: str, name: str) -> None:
        """Import what a request asks about; ``name`` is that of an object to create. Raises SourceError."""
        async with self._lock:
            if info.is_resource:
                await self._import_for(info, dict(parse_qsl(query)), name)
            if need_controllers(info):
                await self.controllers.need()

    async def install(self, group: str) -> None:
        """Make the kinds of a group known. Raises SourceError."""
        async with self._lock:
            await self.definitions.install(group)

    async def resource_of(self, gvk: GVK) -> ApiResource | None:
        """Return the resource of a kind, None if the source does not serve it. Raises SourceError."""
        async with self._lock:
            await self.definitions.install(gvk.group)
            return await self.definitions.resource_of(gvk)

    async def import_object(self, gvk: GVK, key: ObjectKey) -> bool:
        """Import one object; return whether it is there. Raises SourceError."""
        resource = await self.resource_of(gvk)
        if resource is None:
            return False
        async with self._lock:
            await self._import_namespace(key.namespace)
            await self._import_object(resource, key)
            return self.imported.objects.get((_place(resource, key.namespace), key.name), False)

    async def import_all(self, gvk: GVK, namespace: str = "") -> list[RawObject]:
        """Import all objects of a kind, and return them. Raises SourceError."""
        resource = await self.resource_of(gvk)
        if resource is None:
            return []
        async with self._lock:
            objects = await self.source.list(resource, namespace)
            await self._store_list(resource, objects, (_place(resource, namespace), "", ""))
            return objects

    async def _import_for(self, info: RequestInfo, query: dict[str, str], name: str) -> None:
        if info.group_resource == _DEFINITIONS:
            await self._import_definitions(info.name or name)
            return
        if info.group in _NOT_STORED:
            return
        resource = await self.definitions.resource(info.group, info.version, info.resource)
        if resource is None:
            await self._check_aggregated(info)
            return
        if resource.is_virtual:
            return
        if info.namespace:
            await self._import_namespace(info.namespace)
        if info.name or info.verb not in _LISTS:
            if info.name or name:
                await self._import_object(resource, ObjectKey(info.namespace, info.name or name))
        else:
            labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
            await self._import_list(resource, info.namespace, labels, fields)

    async def _import_definitions(self, name: str) -> None:
        """Import the definitions of the group of a name; all there are if it is empty."""
        for group in [name.partition(".")[2]] if name else await self._groups():
            await self.definitions.install(group)

    async def _groups(self) -> list[str]:
        """Return the names of the API groups that the source serves."""
        return [each["name"] for each in (await self.source.groups()).get("groups") or ()]

    async def _check_aggregated(self, info: RequestInfo) -> None:
        if info.group in await self._groups() and not await self.source.definitions(info.group):
            raise SourceError(
                f"{info.resource}.{info.group} is served by an aggregated API server, which a sandbox does not have"
            )

    async def _import_object(self, resource: ApiResource, key: ObjectKey) -> None:
        place = _place(resource, key.namespace)
        if (place, key.name) in self.imported.objects or self._has_list(resource, key.namespace):
            return
        if self.prefetches and resource.namespaced and await self._prefetch(resource, key.namespace):
            return
        await self._get(resource, key)

    async def _get(self, resource: ApiResource, key: ObjectKey) -> None:
        found = await self.source.get(resource, key)
        if found is not None:
            await self._store([Found(resource, found)])
        self.imported.objects.setdefault((_place(resource, key.namespace), key.name), False)

    async def _prefetch(self, resource: ApiResource, namespace: str) -> bool:
        """Import all objects of a kind and namespace, unless they are too many or must not be listed."""
        try:
            objects = await self.source.list(resource, namespace)
        except SourceError:
            return False
        if len(objects) > PREFETCHED_OBJECTS:
            return False
        await self._store_list(resource, objects, (_place(resource, namespace), "", ""))
        return True

    async def _import_list(self, resource: ApiResource, namespace: str, labels: str, fields: str) -> None:
        if self._has_list(resource, namespace, labels, fields):
            return
        objects = await self.source.list(resource, namespace, labels=labels, fields=fields)
        await self._store_list(resource, objects, (_place(resource, namespace), labels, fields))

    def _has_list(self, resource: ApiResource, namespace: str, labels: str = "", fields: str = "") -> bool:
        """Return whether a list was imported, alone or within a larger one."""
        places = {_place(resource, namespace), _place(resource, "")}
        larger = {(place, *selectors) for place in places for selectors in ((labels, fields), ("", ""))}
        return not larger.isdisjoint(self.imported.lists)

    async def _store_list(self, resource: ApiResource, objects: list[RawObject], listed: _List) -> None:
        await self._store([Found(resource, each) for each in objects])
        self.imported.lists.add(listed)

    async def _import_namespace(self, name: str) -> None:
        """Import a namespace and the service account that its pods have by default."""
        if not name or name in self.imported.namespaces:
            return
        self.imported.namespaces.add(name)
        for plural, key in (("namespaces", ObjectKey("", name)), ("serviceaccounts", ObjectKey(name, "default"))):
            resource = await self.definitions.resource("", "v1", plural)
            if resource is None:
                continue
            try:
                await self._get(resource, key)
            except SourceError as error:
                await self._make(_bare(resource, key))
                self.imported.objects[_place(resource, key.namespace), key.name] = True
                self.assumptions.append(f"{resource.gvk.kind} {key} is taken for an empty one: {error}")

    async def _store(self, found: list[Found]) -> None:
        """Store objects with their relatives, unless they were stored before, or were found to be missing."""
        fresh = [each for each in found if self._is_new(each)]
        whole = await self.relatives.of(fresh, frozenset(self.imported.uids)) if fresh else []
        whole = [each for each in whole if self._is_new(each)]
        if not whole:
            return
        for namespace in sorted({ObjectKey.of_object(each.obj).namespace for each in whole}):
            await self._import_namespace(namespace)
        has_workloads = any(each.is_workload for each in whole)
        if has_workloads:
            await self.controllers.pause()
        try:
            await self._make_nodes_for(whole)
            await self._put(whole)
        finally:
            if has_workloads:
                await self.controllers.resume()

    async def _put(self, whole: list[Found]) -> None:
        await self.store.put(map(self._stored, whole))
        for each in whole:
            key = ObjectKey.of_object(each.obj)
            self.imported.uids.add(uid_of(each.obj))
            self.imported.objects[_place(each.resource, key.namespace), key.name] = True

    async def _make_nodes_for(self, whole: list[Found]) -> None:
        """Make simulated nodes in the place of those that pods run on: without its node a pod cannot end."""
        pods = (each.obj for each in whole if each.resource.gvk.kind == "Pod")
        names = {str(name) for pod in pods if (name := (pod.get("spec") or {}).get("nodeName"))}
        for name in sorted(names - self.imported.nodes):
            self.imported.nodes.add(name)
            await self._make(node(name))

    async def _make(self, obj: RawObject) -> None:
        """Make an object that the source does not show, unless the sandbox has it."""
        try:
            await self.client.create(obj)
        except ConflictError:
            return
        except KubeError as error:
            raise SourceError(
                f"{obj['kind']} {ObjectKey.of_object(obj)} cannot be made in the sandbox: {error}"
            ) from error

    def _stored(self, found: Found) -> StoredObject:
        group, plural = found.resource.gvk.group, found.resource.plural
        return StoredObject(found.resource, found.obj, self.definitions.is_custom(group, plural))

    def _is_new(self, found: Found) -> bool:
        key = ObjectKey.of_object(found.obj)
        return (_place(found.resource, key.namespace), key.name) not in self.imported.objects


def _place(resource: ApiResource, namespace: str) -> _Place:
    return (resource.gvk.group, resource.plural, namespace)


def _bare(resource: ApiResource, key: ObjectKey) -> RawObject:
    metadata = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
    return {"apiVersion": resource.gvk.api_version, "kind": resource.gvk.kind, "metadata": metadata}
