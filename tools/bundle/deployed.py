"""Reads the objects that ``kubectl apply -k deploy/`` creates, for the bundle.

A kustomization may only list resources; anything else is an error, so that the bundle cannot lack what ``kubectl``
would create.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Deployment",
    "Namespace",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
}


class BundleError(Exception):
    """The bundle cannot be created; the message says what was found, where, and what to do."""


@dataclass(frozen=True)
class Deployed:
    """The objects in deploy/, each with its file."""

    objects: tuple[tuple[Path, Document], ...]

    def of_kind(self, kind: str) -> list[Document]:
        """Return the objects of a kind, in the order of deploy/."""
        return [document for _, document in self.objects if document["kind"] == kind]

    def only(self, kind: str) -> Document:
        """Return the only object of a kind. Raise BundleError if there is none or more than one."""
        found = self.of_kind(kind)
        if len(found) != 1:
            raise BundleError(f"deploy/ has {len(found)} objects of kind {kind!r}; the bundle takes exactly one")
        return found[0]

    def definitions(self) -> dict[str, tuple[Path, Document]]:
        """Return the CRDs by name, each with its file."""
        found = {
            document["metadata"]["name"]: (path, document)
            for path, document in self.objects
            if document["kind"] == "CustomResourceDefinition"
        }
        return dict(sorted(found.items()))

    def rules(self, kind: str) -> dict[str, list[Document]]:
        """Return the rules that bindings of a kind (RoleBinding, ClusterRoleBinding) grant to each service account."""
        roles = {role["metadata"]["name"]: role["rules"] for role in self.of_kind(kind.removesuffix("Binding"))}
        granted: dict[str, list[Document]] = {}
        for binding in self.of_kind(kind):
            for subject in binding["subjects"]:
                granted.setdefault(subject["name"], []).extend(roles[binding["roleRef"]["name"]])
        return granted


def read_deployed(directory: Path) -> Deployed:
    """Read the kustomization in a directory. Raise BundleError if the bundle cannot represent it."""
    objects = tuple(_resources(directory))
    for path, document in objects:
        if document["kind"] not in KINDS:
            raise BundleError(f"{path}: kind {document['kind']!r} is not supported in a bundle")
    return Deployed(objects)


def documents(path: Path) -> list[Document]:
    """Return the documents of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def _resources(directory: Path) -> Iterator[tuple[Path, Document]]:
    path = directory / "kustomization.yaml"
    (kustomization,) = documents(path)
    unknown = set(kustomization) - {"apiVersion", "kind", "resources"}
    if unknown:
        raise BundleError(f"{path}: {sorted(unknown)} would be lost in the bundle; only resources are supported")
    for name in kustomization["resources"]:
        resource = directory / name
        if resource.is_dir():
            yield from _resources(resource)
        else:
            yield from ((resource, document) for document in documents(resource))
