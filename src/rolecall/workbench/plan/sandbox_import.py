"""Imports the objects of requests into a sandbox, once each, together with the objects that belong to them.

Anything that was imported, or found to be missing, is never read again from the source: after that, the sandbox is
authoritative. An object comes with its owners, because the garbage collector would remove it without them, and with
the objects that controllers have made for it, because a workload would replace missing pods.

The controllers of a sandbox run only when they are needed, and never while workloads are imported: a controller that
sees a ReplicaSet before its pods creates them again. Most plans change nothing that involves controllers, and never
start them.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
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
"""What a controller of Kubernetes creates for a kind, by group, version and plural."""

MADE_BY_CONTROLLERS: Final = tuple(dict.fromkeys(chain.from_iterable(_MADE_BY.values())))
"""The group, version and plural of everything that controllers create."""

MAX_PREFETCHED_OBJECTS: Final = 500
_CONTROLLED_GROUPS: Final = frozenset({"apps", "batch", "autoscaling", "policy"})
_CONTROLLED_IN_CORE: Final = frozenset(
    {"pods", "services", "replicationcontrollers", "namespaces", "persistentvolumeclaims"}
)
_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
_LISTS: Final = frozenset({"list", "watch", "deletecollection"})
_NOT_STORED: Final = frozenset({"apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io"})
_Scope = tuple[str, str, str]
"""Group, plural and namespace."""


def involves_controllers(info: RequestInfo) -> bool:
    """Return whether controllers react to a request; to each removal they do, because of the dependents."""
    if not info.is_write or info.is_dry_run:
        return False
    is_controlled = info.group in _CONTROLLED_GROUPS or (not info.group and info.resource in _CONTROLLED_IN_CORE)
    return is_controlled or info.is_removal


@dataclass(slots=True)
class Controllers:
    """Starts and stops the controllers of one control plane.

    Lazy ones don't start when they are needed but when a run reads the same path a second time after that: a run that
    waits polls, and any other run sees nothing of their work. They take longer to start than most replays.
    """

    plane: ControlPlane
    are_lazy: bool = False
    _are_needed: bool = False
    _are_running: bool = False
    _pauses: int = 0
    _reads: set[str] | None = None
    """The paths read since lazy controllers are needed; None if they aren't, or have started."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def are_needed(self) -> bool:
        """Whether the controllers run, or will when nothing pauses them."""
        return self._are_needed

    async def need(self) -> None:
        """Start the controllers, unless they are lazy."""
        if self.are_lazy and not self._are_needed:
            self._reads = set() if self._reads is None else self._reads
            return
        self._are_needed = True
        await self._adjust()

    async def before_read(self, path: str) -> None:
        """Start lazy controllers if they are needed and a run reads a path for the second time."""
        if self._reads is None:
            return
        if path in self._reads:
            self._reads, self._are_needed = None, True
            await self._adjust()
        else:
            self._reads.add(path)

    async def catch_up(self) -> None:
        """Do immediately what these controllers don't do by themselves: nothing, because they run."""

    async def pause(self) -> None:
        """Return when the controllers no longer run, until ``resume``."""
        self._pauses += 1
        await self._adjust()

    async def resume(self) -> None:
        """Let the controllers run again, if they are needed."""
        self._pauses -= 1
        await self._adjust()

    async def rest(self) -> None:
        """Stop the controllers until they are needed again."""
        self._reads, self._are_needed = None, False
        await self._adjust()

    async def _adjust(self) -> None:
        async with self._lock:
            should_run = self._are_needed and not self._pauses
            if should_run == self._are_running:
                return
            await run_in_thread(lambda: self._switch(on=should_run))
            self._are_running = should_run

    def _switch(self, *, on: bool) -> None:
        for component in CONTROLLERS:
            if on:
                self.plane.start_component(component)
            else:
                self.plane.stop_component(component, grace_seconds=0)


def _scope(resource: ApiResource, namespace: str) -> _Scope:
    return (resource.gvk.group, resource.plural, namespace)


def _made_for(found: StoredObject) -> tuple[tuple[str, str, str], ...]:
    """Return the resources that a controller creates for an object."""
    gvk = found.resource.gvk
    return _MADE_BY.get((gvk.group, gvk.kind), ())


def _selector_of(obj: RawObject) -> str:
    """Return the labels of the objects that belong to a workload; empty if expressions or nothing select them."""
    selector: dict[str, Any] = (obj.get("spec") or {}).get("selector") or {}
    is_structured = "matchLabels" in selector or "matchExpressions" in selector
    labels = selector.get("matchLabels", {}) if is_structured else selector
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()) if isinstance(value, str))


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
    assumptions: list[str] = field(default_factory=list)
    """What could not be determined, as sentences."""
    _uids: set[str] = field(default_factory=set)
    _objects: dict[tuple[_Scope, str], bool] = field(default_factory=dict)
    """The objects that were requested by name, and whether they exist."""
    _lists: set[tuple[_Scope, str, str]] = field(default_factory=set)
    """The lists with their selectors for labels and fields; without selectors they are complete."""
    _namespaces: set[str] = field(default_factory=set)
    _nodes: set[str] = field(default_factory=set)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def source(self) -> Source:
        """The source of the sandbox."""
        return self.definitions.source

    @property
    def client(self) -> Client:
        """The administrator of the sandbox."""
        return self.definitions.client

    def copy(self, definitions: Definitions, store: EtcdStore, controllers: Controllers) -> "Importer":
        """Return an importer that has imported the same objects, and continues independently."""
        return replace(
            self,
            definitions=definitions,
            store=store,
            controllers=controllers,
            assumptions=list(self.assumptions),
            _uids=set(self._uids),
            _objects=dict(self._objects),
            _lists=set(self._lists),
            _namespaces=set(self._namespaces),
            _nodes=set(self._nodes),
        )

    def keys_of(self, resource: ApiResource) -> set[ObjectKey]:
        """Return the keys of the objects of a resource that were imported."""
        kind = (resource.gvk.group, resource.plural)
        known = self._objects.items()
        return {ObjectKey(scope[2], name) for (scope, name), exists in known if exists and scope[:2] == kind}

    async def before(self, info: RequestInfo, query: str, name: str) -> None:
        """Import the objects of a request; ``name`` is that of an object to create. Raises SourceError."""
        async with self._lock:
            if info.is_resource:
                await self._import_for(info, dict(parse_qsl(query)), info.name or name)
            if involves_controllers(info):
                await self.controllers.need()

    async def install(self, group: str) -> None:
        """Define the kinds of a group in the sandbox. Raises SourceError."""
        async with self._lock:
            await self.definitions.install(group)

    async def resource_of(self, gvk: GVK) -> ApiResource | None:
        """Return the resource of a kind, None if the source does not serve it. Raises SourceError."""
        async with self._lock:
            await self.definitions.install(gvk.group)
            return await self.definitions.resource_of(gvk)

    async def import_object(self, gvk: GVK, key: ObjectKey) -> bool:
        """Import one object; return whether it exists. Raises SourceError."""
        resource = await self.resource_of(gvk)
        if resource is None:
            return False
        async with self._lock:
            await self._import_namespace(key.namespace)
            await self._import_object(resource, key)
            return self._objects.get((_scope(resource, key.namespace), key.name), False)

    async def import_all(self, gvk: GVK, namespace: str = "") -> list[RawObject]:
        """Import all objects of a kind, and return them. Raises SourceError."""
        resource = await self.resource_of(gvk)
        if resource is None:
            return []
        async with self._lock:
            objects = await self.source.list(resource, namespace)
            await self._store_list(resource, objects, namespace)
            return objects

    async def _import_for(self, info: RequestInfo, query: dict[str, str], name: str) -> None:
        if info.group_resource == _DEFINITIONS:  # a name ends with the group; without one, all are listed
            for group in [name.partition(".")[2]] if name else await self._groups():
                await self.definitions.install(group)
            return
        if info.group in _NOT_STORED:
            return
        resource = await self.definitions.resource(info.group, info.version, info.resource)
        if resource is None:
            await self._reject_aggregated(info)
            return
        if resource.is_virtual:
            return
        if info.namespace:
            await self._import_namespace(info.namespace)
        if name:
            await self._import_object(resource, ObjectKey(info.namespace, name))
        elif info.verb in _LISTS:
            labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
            if not self._has_list(resource, info.namespace, labels, fields):
                objects = await self.source.list(resource, info.namespace, labels=labels, fields=fields)
                await self._store_list(resource, objects, info.namespace, labels, fields)

    async def _reject_aggregated(self, info: RequestInfo) -> None:
        if info.group in await self._groups() and not await self.source.definitions(info.group):
            what = f"{info.resource}.{info.group} is served by an aggregated API server"
            raise SourceError(f"{what}, which a sandbox does not have")

    async def _groups(self) -> list[str]:
        return [each["name"] for each in (await self.source.groups()).get("groups") or ()]

    async def _import_object(self, resource: ApiResource, key: ObjectKey) -> None:
        if self._is_known(resource, key) or self._has_list(resource, key.namespace):
            return
        if not (self.prefetches and resource.namespaced and await self._prefetch(resource, key.namespace)):
            await self._get(resource, key)

    def _is_known(self, resource: ApiResource, key: ObjectKey) -> bool:
        return (_scope(resource, key.namespace), key.name) in self._objects

    async def _get(self, resource: ApiResource, key: ObjectKey) -> None:
        found = await self.source.get(resource, key)
        if found is not None:
            await self._store([StoredObject(resource, found)])
        self._objects.setdefault((_scope(resource, key.namespace), key.name), False)

    async def _prefetch(self, resource: ApiResource, namespace: str) -> bool:
        """Import all objects of a kind and namespace; return whether they can be listed and aren't too many."""
        try:
            objects = await self.source.list(resource, namespace)
        except SourceError:
            return False
        if len(objects) > MAX_PREFETCHED_OBJECTS:
            return False
        await self._store_list(resource, objects, namespace)
        return True

    def _has_list(self, resource: ApiResource, namespace: str, labels: str = "", fields: str = "") -> bool:
        """Return whether a list was imported, by itself or within a larger one."""
        scopes = {_scope(resource, namespace), _scope(resource, "")}
        larger = {(scope, *selectors) for scope in scopes for selectors in ((labels, fields), ("", ""))}
        return not larger.isdisjoint(self._lists)

    async def _store_list(
        self, resource: ApiResource, objects: list[RawObject], namespace: str, labels: str = "", fields: str = ""
    ) -> None:
        await self._store([StoredObject(resource, each) for each in objects])
        self._lists.add((_scope(resource, namespace), labels, fields))

    async def _import_namespace(self, name: str) -> None:
        """Import a namespace and the default service account of its pods; without permission, create empty ones."""
        if not name or name in self._namespaces:
            return
        self._namespaces.add(name)
        for plural, key in (("namespaces", ObjectKey("", name)), ("serviceaccounts", ObjectKey(name, "default"))):
            resource = await self.definitions.resource("", "v1", plural)
            if resource is None:
                continue
            try:
                await self._get(resource, key)
            except SourceError as error:
                gvk = resource.gvk
                metadata = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
                await self._create({"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata})
                self._objects[_scope(resource, key.namespace), key.name] = True
                self.assumptions.append(f"{gvk.kind} {key} is assumed to be empty: {error}")

    async def _store(self, found: list[StoredObject]) -> None:
        """Store objects with their relatives, unless they were stored before, or were found to be missing."""
        new = [each for each in found if not self._is_known(each.resource, each.key)]
        whole = [each for each in await self._with_relatives(new) if not self._is_known(each.resource, each.key)]
        if not whole:
            return
        for namespace in sorted({each.key.namespace for each in whole}):
            await self._import_namespace(namespace)
        has_workloads = any(map(_made_for, whole))
        if has_workloads:
            await self.controllers.pause()
        try:
            await self._create_nodes_for(whole)
            is_custom = self.definitions.is_custom
            await self.store.put(replace(each, is_custom=is_custom(each.resource)) for each in whole)
            for each in whole:
                self._uids.add(uid_of(each.obj))
                self._objects[_scope(each.resource, each.key.namespace), each.key.name] = True
        finally:
            if has_workloads:
                await self.controllers.resume()

    async def _with_relatives(self, found: list[StoredObject]) -> list[StoredObject]:
        """Return objects with their owners and the objects that controllers made for them, unless they are known."""
        whole: dict[str, StoredObject] = {}
        waiting = deque(found)
        while waiting:
            each = waiting.popleft()
            uid = uid_of(each.obj) or f"{each.resource.plural}/{each.key}"
            if uid in whole or uid in self._uids:
                continue
            each, owners = await self._with_owners(each)
            whole[uid] = each
            waiting += owners
            for group, version, plural in _made_for(each):
                if resource := await self.definitions.resource(group, version, plural):
                    objects = await self.source.list(resource, each.key.namespace, labels=_selector_of(each.obj))
                    owners_of = ((obj, {owner.uid for owner in owner_references_of(obj)}) for obj in objects)
                    waiting += [StoredObject(resource, obj) for obj, uids in owners_of if uid_of(each.obj) in uids]
        return list(whole.values())

    async def _with_owners(self, found: StoredObject) -> tuple[StoredObject, list[StoredObject]]:
        """Return an object without the owners that cannot be read, and the owners that can."""
        owners, kept = [], []
        references = owner_references_of(found.obj)
        for reference, raw in zip(references, metadata_of(found.obj).get("ownerReferences") or (), strict=False):
            try:
                owner = await self._owner(found, reference)
            except SourceError as error:
                text = f"{found.resource.gvk.kind} {found.key} has no owner {reference.name}: {error}"
                self.assumptions.append(text)
                continue
            kept.append(raw)
            owners += [owner] if owner else []
        if len(kept) == len(references):
            return found, owners
        metadata = {**metadata_of(found.obj), "ownerReferences": kept}
        return StoredObject(found.resource, {**found.obj, "metadata": metadata}), owners

    async def _owner(self, found: StoredObject, reference: OwnerReference) -> StoredObject | None:
        """Return the owner, None if a reference points to an object that no longer exists."""
        await self.definitions.install(reference.gvk.group)
        resource = await self.definitions.resource_of(reference.gvk)
        if resource is None:
            return None
        namespace = found.key.namespace if resource.namespaced else ""
        owner = await self.source.get(resource, ObjectKey(namespace, reference.name))
        return StoredObject(resource, owner) if owner is not None and uid_of(owner) == reference.uid else None

    async def _create_nodes_for(self, whole: list[StoredObject]) -> None:
        """Create simulated nodes in place of those of pods: without its node a pod cannot end."""
        pods = (each.obj for each in whole if each.resource.gvk.kind == "Pod")
        names = {str(name) for pod in pods if (name := (pod.get("spec") or {}).get("nodeName"))}
        for name in sorted(names - self._nodes):
            self._nodes.add(name)
            await self._create(node(name))

    async def _create(self, obj: RawObject) -> None:
        """Create an object that the source does not show, unless the sandbox has it."""
        try:
            await self.client.create(obj)
        except ConflictError:
            return
        except KubeError as error:
            name = f"{obj['kind']} {ObjectKey.of_object(obj)}"
            raise SourceError(f"{name} cannot be created in the sandbox: {error}") from error
