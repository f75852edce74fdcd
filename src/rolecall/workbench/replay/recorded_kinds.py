"""The kinds in a record, from its discovery and its head, and CustomResourceDefinitions for them.

Definitions come from the project if it has them. For other kinds they are created from discovery, with a schema that
accepts every field, because a record doesn't have the schema.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from rolecall.kube.discovery import ApiResource, read_resource_list, resources_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.record.files import DISCOVERY
from rolecall.runner.record.reader import StoredRecord
from rolecall.workbench.project.validate import CrdFiles

DEFINITION_DIRECTORIES: Final = (Path("deploy/crds"), Path("config/crd/bases"))
_SCALE: Final = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
_ANY_FIELD: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_APPROVAL: Final = {"api-approved.kubernetes.io": "unapproved, this stands in for the definition of another cluster"}
"""The API server requires it in groups that end in ``k8s.io``."""


def project_definitions(project: Path) -> tuple[RawObject, ...]:
    """Return the CustomResourceDefinitions in the files of a project."""
    paths = [project / each for each in DEFINITION_DIRECTORIES if (project / each).is_dir()]
    return tuple(json.loads(json.dumps(each)) for _, each in CrdFiles.read(paths).found)


class RecordedKinds:
    """The kinds of one record; ``definitions`` are those of the project."""

    def __init__(self, record: StoredRecord, definitions: Iterable[RawObject] = ()) -> None:
        self._resources: dict[GVK, ApiResource] = {}
        self._definitions = tuple(definitions)
        self._groups: dict[str, list[str]] = {}
        for path, response in _discovered(record):
            self._add_discovery(path, response)
        for line in record.head.get("resources", ()):
            gvk, verbs = GVK(line["group"], line["version"], line["kind"]), frozenset(line["verbs"])
            subresources = frozenset(line["subresources"])
            self._add(ApiResource(gvk, line["resource"], line["namespaced"], verbs, subresources))
        self._recorded = {*self._resources, GVK.of_object(record.head["object"])}
        for definition in self._definitions:
            self._add_defined(definition["spec"])

    def find(self, group: str, plural: str) -> ApiResource | None:
        """Return a kind by its plural name, in any version; None if it is not in the record."""
        alike = (each for each in self._resources.values() if (each.gvk.group, each.plural) == (group, plural))
        return next(alike, None)

    def by_kind(self, gvk: GVK) -> ApiResource | None:
        """Return a kind, None if it is not in the record."""
        return self._resources.get(gvk)

    def groups(self) -> RawObject:
        """Return the APIGroupList of the cluster, with the groups in the record."""
        groups = []
        for name, versions in self._groups.items():
            found = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
            groups.append({"name": name, "versions": found, "preferredVersion": found[0]})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def definitions_of(self, group: str) -> list[RawObject]:
        """Return the CustomResourceDefinitions of a group, none for a group that every API server has."""
        if GVK(group, "", "").is_built_in:
            return []
        by_plural: dict[str, list[ApiResource]] = {}
        for resource in self._resources.values():
            if resource.gvk.group == group:
                by_plural.setdefault(resource.plural, []).append(resource)
        return [self._definition(each) for each in by_plural.values()]

    def _definition(self, resources: list[ApiResource]) -> RawObject:
        """Return the definition of a kind: that of the project, unless it lacks the versions in the record."""
        wanted = resources[0].gvk
        recorded = [each for each in resources if each.gvk in self._recorded]
        for definition in self._definitions:
            spec = definition["spec"]
            if (spec.get("group"), spec["names"].get("kind")) == (wanted.group, wanted.kind):
                served = {each["name"] for each in spec["versions"] if each.get("served") is not False}
                if not recorded or {each.gvk.version for each in recorded} & served:
                    return definition
        return _created(recorded)

    def _add_discovery(self, path: str, response: RawObject) -> None:
        kind = response.get("kind")
        if kind == "APIGroupList":
            for group in response.get("groups") or ():
                self._groups[group["name"]] = [each["version"] for each in group["versions"]]
        elif kind == "APIResourceList":
            parts = path.strip("/").split("/")
            group, version = "" if parts[0] == "api" else parts[-2], parts[-1]
            self._add(*read_resource_list(group, version, response))
        elif kind == "APIGroupDiscoveryList":
            for item in response.get("items") or ():
                for each in item.get("versions") or ():
                    name, resources = item["metadata"].get("name", ""), {"resources": resources_of(each)}
                    self._add(*read_resource_list(name, each["version"], resources))

    def _add_defined(self, spec: RawObject) -> None:
        """Add the kind of a definition: the role may request kinds now that the recorded run did not."""
        for version in (each for each in spec["versions"] if each.get("served") is not False):
            gvk = GVK(spec["group"], version["name"], spec["names"]["kind"])
            subresources = frozenset(version.get("subresources") or ())
            is_namespaced = spec.get("scope") == "Namespaced"
            self._add(ApiResource(gvk, spec["names"]["plural"], is_namespaced, frozenset(), subresources))

    def _add(self, *resources: ApiResource) -> None:
        for resource in resources:
            gvk = resource.gvk
            self._resources.setdefault(gvk, resource)
            if gvk.group:
                versions = self._groups.setdefault(gvk.group, [])
                versions += [] if gvk.version in versions else [gvk.version]


def _discovered(record: StoredRecord) -> Iterator[tuple[str, RawObject]]:
    """Yield the paths and responses of discovery whose files are next to the record."""
    known = {(each["path"], each.get("answer", {}).get("discovery")) for each in record.exchanges}
    for path, digest in sorted((path, digest) for path, digest in known if digest):
        file = record.path.parent / DISCOVERY / f"{digest.replace(':', '-')}.json"
        try:
            response = json.loads(file.read_bytes())
        except (OSError, ValueError):
            continue  # the head of the record has some kinds, too
        if isinstance(response, dict):
            yield path, response


def _created(resources: list[ApiResource]) -> RawObject:
    """Create a definition for the versions of one kind."""
    first = resources[0]
    kind = first.gvk.kind
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{first.plural}.{first.gvk.group}", "annotations": dict(_APPROVAL)},
        "spec": {
            "group": first.gvk.group,
            "scope": "Namespaced" if first.namespaced else "Cluster",
            "names": {"plural": first.plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [_version(each, is_stored=each is first) for each in resources],
        },
    }


def _version(resource: ApiResource, *, is_stored: bool) -> RawObject:
    known: dict[str, RawObject] = {"status": {}, "scale": dict(_SCALE)}
    subresources = {name: value for name, value in known.items() if name in resource.subresources}
    return {
        "name": resource.gvk.version,
        "served": True,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": dict(_ANY_FIELD)},
        **({"subresources": subresources} if subresources else {}),
    }
