"""A cluster after the CustomResourceDefinitions of a project were applied to it, as the source of a sandbox.

A new version of a project comes with its definitions, and they are applied before the new image. So a plan uses them:
the API server of the sandbox converts, prunes, and defaults the stored objects as that of the cluster will. Two
definitions differ if their objects may: texts for people and printer columns don't count.

The cluster serves its objects in its own versions until the definitions are applied. An object in a version that only
the project has is read in another one, and gets the version as by the conversion strategy ``None``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.connection import Request, read_object
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import InvalidError, KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.plan.model import DefinitionChanges
from rolecall.workbench.plan.sandbox_sources import DEFINITION, Source, SourceError
from rolecall.workbench.plan.sandbox_store import has_webhook, without_webhook

_DRY_RUN: Final = {"dryRun": "All"}
_COMPARED: Final = "compared."
"""The prefix of the group in which definitions are compared: the sandbox may have the kind in its own."""

_TEXTS: Final = frozenset({"description", "title", "example", "externalDocs"})
_OF_OBJECTS: Final = ("name", "served", "storage", "subresources", "selectableFields")
"""The fields of a version, in addition to its schema, that objects depend on."""

_GroupPlural = tuple[str, str]


@dataclass(slots=True)
class ProjectSource:
    """The cluster with the definitions of a project; ``sandbox`` is the administrator of a sandbox.

    With ``keeps_cluster`` it is the cluster as it is, and ``changes`` still has the differences.
    """

    cluster: Source
    own: Sequence[RawObject]
    sandbox: Client
    keeps_cluster: bool = False
    _different: dict[str, None] = field(default_factory=dict)
    _new: dict[str, None] = field(default_factory=dict)
    _definitions: dict[str, list[RawObject]] = field(default_factory=dict)

    @property
    def changes(self) -> DefinitionChanges:
        """The kinds of the groups read so far whose definitions differ from those of the cluster."""
        return DefinitionChanges(tuple(self._different), tuple(self._new), uses_cluster=self.keeps_cluster)

    async def groups(self) -> RawObject:
        """Return the API groups of the cluster and of the project."""
        found = await self.cluster.groups()
        groups = {each.get("name"): each for each in found.get("groups") or ()}
        for definition in () if self.keeps_cluster else self.own:
            group, served = definition["spec"]["group"], _served(definition)
            versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in served]
            if versions:
                groups.setdefault(group, {"name": group, "versions": versions, "preferredVersion": versions[0]})
        return {**found, "groups": list(groups.values())}

    async def definitions(self, group: str) -> list[RawObject]:
        """Return the definitions of a group. Raises SourceError if the API server would reject one of the project."""
        if group not in self._definitions:
            found = {each["metadata"]["name"]: each for each in await self.cluster.definitions(group)}
            for definition in self.own:
                name, kind = definition["metadata"]["name"], definition["spec"]["names"]["kind"]
                if definition["spec"]["group"] != group:
                    continue
                if name not in found:
                    self._new[kind] = None
                elif await self._differ(found[name], definition):
                    self._different[kind] = None
                else:
                    continue
                if not self.keeps_cluster:
                    _check_replacement(found.get(name, {}), definition)
                    found[name] = definition
            self._definitions[group] = list(found.values())
        return self._definitions[group]

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object, None if it does not exist."""
        return await self.cluster.get(await self._served_by_cluster(resource), key)

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return the objects that the selectors match."""
        served = await self._served_by_cluster(resource)
        return await self.cluster.list(served, namespace, labels=labels, fields=fields)

    async def _served_by_cluster(self, resource: ApiResource) -> ApiResource:
        return resource if self.keeps_cluster else await served_by(self.cluster, self.own, resource)

    async def _differ(self, old: RawObject, new: RawObject) -> bool:
        return bool(await self._meaning(old, "the cluster") != await self._meaning(new, "the project"))

    async def _meaning(self, definition: RawObject, owner: str) -> Any:
        """Return the parts that affect objects, as the API server stores them: with defaults, and pruned."""
        created = without_webhook(definition)
        name, path = created["metadata"]["name"], DEFINITION.path()
        created["metadata"]["name"] = f"{created['spec']['names']['plural']}.{_COMPARED}{created['spec']['group']}"
        created["spec"]["group"] = f"{_COMPARED}{created['spec']['group']}"
        try:
            body = await self.sandbox.receive(Request("POST", path, _DRY_RUN, created))
        except InvalidError as error:
            reason = error.message.replace(_COMPARED, "")
            raise SourceError(f"the API server rejects the definition {name} of {owner}: {reason}") from error
        except KubeError as error:
            raise SourceError(f"the definition {name} of {owner} cannot be compared: {error}") from error
        spec = read_object(body, f"POST {path}")["spec"]
        versions = [
            {key: each.get(key) for key in _OF_OBJECTS} | {"schema": _bare(each.get("schema") or {})}
            for each in spec["versions"]
        ]
        return spec["scope"], spec["names"]["kind"], has_webhook(definition), versions


def read_definitions(documents: Iterable[RawObject]) -> tuple[RawObject, ...]:
    """Return the definitions that are complete, the first of each name; others are patches of them."""
    found: dict[str, RawObject] = {}
    for each in documents:
        metadata, spec = each.get("metadata"), each.get("spec")
        names = spec.get("names") if isinstance(spec, dict) else None
        if not (isinstance(metadata, dict) and isinstance(spec, dict) and isinstance(names, dict)):
            continue
        versions = spec.get("versions")
        has_versions = isinstance(versions, list) and versions and all(isinstance(one, dict) for one in versions)
        texts = (metadata.get("name"), spec.get("group"), spec.get("scope"), names.get("kind"), names.get("plural"))
        if has_versions and all(isinstance(text, str) for text in texts):
            found.setdefault(str(metadata["name"]), each)
    return tuple(found.values())


def defined_resource(definitions: Iterable[RawObject], gvk: GVK) -> ApiResource | None:
    """Return the resource of a kind that a definition serves."""
    for definition in definitions:
        spec = definition["spec"]
        if (spec["group"], spec["names"]["kind"]) == (gvk.group, gvk.kind) and gvk.version in _served(definition):
            namespaced = spec["scope"] == "Namespaced"
            verbs = frozenset({"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})
            return ApiResource(gvk, spec["names"]["plural"], namespaced, verbs, frozenset())
    return None


async def served_by(cluster: Source, own: Iterable[RawObject], resource: ApiResource) -> ApiResource:
    """Return a resource in a version that the cluster serves, if a definition of the project has other versions.

    Raises SourceError.
    """
    group, plural = resource.gvk.group, resource.plural
    project = _definition_of(own, (group, plural))
    old = _definition_of(await cluster.definitions(group), (group, plural)) if project else None
    served = _served(old) if old else []
    if not (project and old and served) or resource.gvk.version in served:
        return resource
    stored = [each["name"] for each in old["spec"]["versions"] if each.get("storage")]
    version = next((each for each in stored if each in served), served[0])
    if has_webhook(project):
        wanted = f"{plural}.{group} in version {resource.gvk.version}"
        problem = f"the cluster has {version}, and the webhook that converts it cannot be reached from a sandbox"
        raise SourceError(f"{wanted} cannot be read: {problem}; use --cluster-crds")
    return replace(resource, gvk=replace(resource.gvk, version=version))


def _definition_of(definitions: Iterable[RawObject], wanted: _GroupPlural) -> RawObject | None:
    named = ((each["spec"]["group"], each["spec"]["names"]["plural"], each) for each in definitions)
    return next((each for group, plural, each in named if (group, plural) == wanted), None)


def _served(definition: RawObject) -> list[str]:
    return [str(each.get("name")) for each in definition["spec"]["versions"] if each.get("served")]


def _check_replacement(old: RawObject, new: RawObject) -> None:
    """Raise SourceError if the API server would reject a definition in the place of that of the cluster."""
    if not old:
        return
    name, scope, before = new["metadata"]["name"], new["spec"]["scope"], old["spec"]["scope"]
    problem = f"the API server would reject the project's definition {name}"
    if scope != before:
        raise SourceError(f"{problem}: the scope of a kind can't change, and that of the cluster is {before}")
    versions = {each.get("name") for each in new["spec"]["versions"]}
    stored = [each for each in (old.get("status") or {}).get("storedVersions") or () if each not in versions]
    if stored:
        remedy = "keep it with served: false until all objects are stored in another version"
        raise SourceError(f"{problem}: it lacks version {stored[0]}, in which the cluster stores objects; {remedy}")


def _bare(schema: RawObject) -> RawObject:
    """Return a schema without its texts for people."""
    found: RawObject = {}
    for key, value in schema.items():
        if key in _TEXTS:
            continue
        if key in ("default", "enum"):
            found[key] = value
        elif key == "properties":
            found[key] = {name: _bare(each) for name, each in value.items()}
        elif isinstance(value, dict):
            found[key] = _bare(value)
        elif isinstance(value, list):
            found[key] = [_bare(each) if isinstance(each, dict) else each for each in value]
        else:
            found[key] = value
    return found
