"""The kinds that the simulated API server serves, and the discovery documents that describe them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rolecall.kube.discovery import AGGREGATED
from rolecall.kube.references import GVK, RawObject, plural_of
from tests.simulation.storage import Resource

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_OF_SUBRESOURCES: Final = ("get", "patch", "update")
VERSION: Final = {"major": "1", "minor": "37", "gitVersion": "v1.37.1", "platform": "linux/amd64"}

Problem = tuple[str, str]
"""The path of an invalid field, and why it is invalid."""

_plural_of = cache(plural_of)


def _accept_all(_: RawObject) -> list[Problem]:
    return []


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind with its rules; without further arguments, it is one of a CRD.

    ``has_status`` serves the subresource ``status``. Fields other than apiVersion, kind, metadata, and ``fields`` are
    pruned. ``schema`` returns the problems of an object of a CRD. The versions of a kind have one ``stored_as``.
    """

    gvk: GVK
    plural: str = ""
    is_namespaced: bool = True
    has_status: bool = True
    fields: tuple[str, ...] = ("spec", "status")
    is_custom: bool = True
    stored_as: GVK | None = None
    schema: Callable[[RawObject], list[Problem]] = _accept_all

    @property
    def resource(self) -> Resource:
        """The group and plural that objects are stored under."""
        gvk = self.stored_as or self.gvk
        return gvk.group, self.name

    @property
    def name(self) -> str:
        """The plural, as in paths."""
        return self.plural or _plural_of(self.gvk.kind)

    @property
    def verbs(self) -> list[str]:
        """The verbs of its resource."""
        return [verb for verb in VERBS if verb != "deletecollection" or self.gvk != NAMESPACE]

    @property
    def has_generation(self) -> bool:
        """Whether changes of the content count up ``metadata.generation``."""
        return self.is_custom or self.gvk.kind == "Pod" or self.gvk.group in _WITH_GENERATION

    @property
    def updates_without_version(self) -> bool:
        """Whether a PUT needs no resourceVersion."""
        return not self.is_custom and self.gvk.kind != "Lease"

    @property
    def creates_on_update(self) -> bool:
        """Whether a PUT creates a missing object."""
        return self.gvk in (EVENT, NEW_EVENT, LEASE) or self.gvk in _CREATED_BY_PUT

    @property
    def has_dependents(self) -> bool:
        """Whether the garbage collector treats its objects as owners."""
        return self.gvk not in (EVENT, NEW_EVENT)

    @property
    def returns_deleted(self) -> bool:
        """Whether the response to a deletion is the object, not a Status."""
        return self.gvk == POD


CONFIG_MAP: Final = GVK("", "v1", "ConfigMap")
SECRET: Final = GVK("", "v1", "Secret")
NAMESPACE: Final = GVK("", "v1", "Namespace")
POD: Final = GVK("", "v1", "Pod")
EVENT: Final = GVK("", "v1", "Event")
NEW_EVENT: Final = GVK("events.k8s.io", "v1", "Event")
LEASE: Final = GVK("coordination.k8s.io", "v1", "Lease")
_WITH_GENERATION: Final = frozenset({"apps", "batch", "networking.k8s.io", "policy"})
_RBAC: Final = "rbac.authorization.k8s.io"
_CREATED_BY_PUT: Final = frozenset(
    {GVK("", "v1", "Service"), GVK("", "v1", "Endpoints"), GVK(_RBAC, "v1", "Role"), GVK(_RBAC, "v1", "RoleBinding")}
)


def _built_in(gvk: GVK, *fields: str, **options: Any) -> ServedKind:
    return ServedKind(gvk, has_status="status" in fields, fields=fields, is_custom=False, **options)


_EVENT_FIELDS: Final = (
    *("action", "count", "eventTime", "firstTimestamp", "involvedObject", "lastTimestamp", "message", "reason"),
    *("related", "reportingComponent", "reportingInstance", "series", "source", "type"),
)
BUILT_IN: Final = (
    _built_in(CONFIG_MAP, "data", "binaryData", "immutable"),
    _built_in(SECRET, "data", "type", "immutable", "stringData"),
    _built_in(NAMESPACE, "spec", "status", is_namespaced=False),
    _built_in(POD, "spec", "status"),
    _built_in(EVENT, *_EVENT_FIELDS),
    _built_in(NEW_EVENT, *_EVENT_FIELDS, stored_as=EVENT),
    _built_in(LEASE, "spec"),
)
THING: Final = ServedKind(GVK("example.com", "v1", "Thing"))
GADGET: Final = ServedKind(GVK("example.com", "v1", "Gadget"), is_namespaced=False)
DEFAULT_KINDS: Final = (*BUILT_IN, THING, GADGET)


def group_versions(kinds: Iterable[ServedKind]) -> dict[str, list[str]]:
    """Return the versions of each group, in the order in which they are served."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        versions = found.setdefault(kind.gvk.group, [])
        if kind.gvk.version not in versions:
            versions.append(kind.gvk.version)
    return found


def discovery(kinds: Sequence[ServedKind], path: str, accept: str) -> RawObject | None:  # noqa: PLR0911 - one for each path
    """Return the discovery document of a path, None if the path has none."""
    groups = group_versions(kinds)
    match path.strip("/").split("/"):
        case ["version"]:
            return dict(VERSION)
        case ["api" | "apis" as root] if AGGREGATED in accept:
            wanted = [group for group in groups if bool(group) == (root == "apis")]
            items = [_aggregated_group(kinds, group, groups[group]) for group in wanted]
            return {"kind": AGGREGATED, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
        case ["api"]:
            return {"kind": "APIVersions", "versions": groups.get("", [])}
        case ["apis"]:
            items = [_group(group, versions) for group, versions in groups.items() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": items}
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["api", version] if version in groups.get("", ()):
            return _resource_list(kinds, "", version)
        case ["apis", group, version] if group and version in groups.get(group, ()):
            return _resource_list(kinds, group, version)
    return None


def _group(group: str, versions: Sequence[str]) -> RawObject:
    items = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": items, "preferredVersion": items[0]}


def _resource_list(kinds: Iterable[ServedKind], group: str, version: str) -> RawObject:
    resources: list[RawObject] = []
    for kind in kinds:
        if (kind.gvk.group, kind.gvk.version) != (group, version):
            continue
        common = {"namespaced": kind.is_namespaced, "kind": kind.gvk.kind}
        singular = kind.gvk.kind.lower()
        resources.append({"name": kind.name, "singularName": singular, **common, "verbs": kind.verbs})
        if kind.has_status:
            verbs = list(_OF_SUBRESOURCES)
            resources.append({"name": f"{kind.name}/status", "singularName": "", **common, "verbs": verbs})
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _aggregated_group(kinds: Iterable[ServedKind], group: str, versions: Sequence[str]) -> RawObject:
    items = [
        {
            "version": version,
            "resources": [
                _aggregated(kind) for kind in kinds if (kind.gvk.group, kind.gvk.version) == (group, version)
            ],
            "freshness": "Current",
        }
        for version in versions
    ]
    return {"metadata": {"name": group} if group else {}, "versions": items}


def _aggregated(kind: ServedKind) -> RawObject:
    gvk = {"group": kind.gvk.group, "version": kind.gvk.version, "kind": kind.gvk.kind}
    status = {"subresource": "status", "responseKind": gvk, "verbs": list(_OF_SUBRESOURCES)}
    return {
        "resource": kind.name,
        "responseKind": gvk,
        "scope": "Namespaced" if kind.is_namespaced else "Cluster",
        "singularResource": kind.gvk.kind.lower(),
        "verbs": kind.verbs,
        **({"subresources": [status]} if kind.has_status else {}),
    }
