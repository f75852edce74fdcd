"""What has to be imported together with an object: its owners, and what the controllers of workloads have made.

Without its owner the garbage collector would remove an object; without their pods, workloads would make new ones.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of, owner_references_of, uid_of
from rolecall.kube.references import ObjectKey, OwnerReference, RawObject
from rolecall.workbench.plan.sandbox_definitions import Definitions
from rolecall.workbench.plan.source import Source, SourceError

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
