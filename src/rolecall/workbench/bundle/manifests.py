"""The objects of an operator's deployment, divided into the parts of a bundle.

OLM creates the operator's account, permissions, and pods from the ClusterServiceVersion. Every other object becomes a
file of the bundle. An object that OLM can't create is an error, so a bundle lacks nothing that ``kubectl apply``
creates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

Document = dict[str, Any]

CLUSTER_SCOPED: Final = frozenset({"ClusterRole", "ClusterRoleBinding", "PriorityClass"})
NAMESPACED: Final = frozenset(
    {
        "ConfigMap",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PodMonitor",
        "PrometheusRule",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    }
)
"""The kinds of further objects that OLM v0 and v1 create from a bundle."""


class BundleError(Exception):
    """The bundle can't be created; the message states what was found, where, and what to do."""


@dataclass(frozen=True)
class Deployed:
    """The objects that a deployment creates."""

    objects: tuple[Document, ...]

    def only(self, kind: str) -> Document:
        """Return the only object of a kind. Raise BundleError if there is none or more than one."""
        found = [each for each in self.objects if each["kind"] == kind]
        if len(found) != 1:
            raise BundleError(f"the manifests have {len(found)} objects of kind {kind!r}; a bundle takes exactly one")
        return found[0]

    @property
    def namespace(self) -> str:
        """The namespace of the operator, empty if its manifests don't name one."""
        return str(self.only("Deployment")["metadata"].get("namespace", ""))

    def namespaces(self) -> list[Document]:
        """Return the Namespace of the operator, if the manifests contain it."""
        return [
            each for each in self.objects if (each["kind"], each["metadata"]["name"]) == ("Namespace", self.namespace)
        ]

    def definitions(self) -> dict[str, Document]:
        """Return the CRDs by name."""
        found = (each for each in self.objects if each["kind"] == "CustomResourceDefinition")
        return dict(sorted((each["metadata"]["name"], each) for each in found))

    def permissions(self, binding_kind: str) -> list[Document]:
        """Return the rules that bindings of a kind grant the operator's account. Raise BundleError."""
        roles = [self._role(binding) for binding in self._bindings() if binding["kind"] == binding_kind]
        rules = [rule for role in roles for rule in role["rules"]]
        return [{"serviceAccountName": self._account(), "rules": rules}] if rules else []

    def others(self) -> list[Document]:
        """Return the objects that have a file of their own, without their namespace. Raise BundleError."""
        bindings = list(self._bindings())
        taken = [self.only("Deployment"), *self.namespaces(), *bindings, *map(self._role, bindings)]
        left = [each for each in self.objects if not any(each is part for part in taken)]
        return [
            _checked(each)
            for each in left
            if each["kind"] != "CustomResourceDefinition"
            and (each["kind"], each["metadata"]["name"]) != ("ServiceAccount", self._account())
        ]

    def _account(self) -> str:
        name: str = self.only("Deployment")["spec"]["template"]["spec"].get("serviceAccountName", "default")
        return name

    def _bindings(self) -> Iterator[Document]:
        """Yield the bindings of the operator's account."""
        for binding in self.objects:
            subjects = [
                (subject.get("kind"), subject["name"])
                for subject in (binding.get("subjects") or ())
                if binding["kind"] in ("RoleBinding", "ClusterRoleBinding")
            ]
            if ("ServiceAccount", self._account()) not in subjects:
                continue
            where = f"{binding['kind']} {binding['metadata']['name']!r}"
            if len(subjects) > 1:
                raise BundleError(f"{where} has more subjects than the operator's account: give those another binding")
            if binding["metadata"].get("namespace", self.namespace) != self.namespace:
                raise BundleError(
                    f"{where} is in the namespace {binding['metadata']['namespace']!r}: OLM grants roles only in the "
                    "operator's namespace and in those that it watches; grant a ClusterRole instead"
                )
            yield binding

    def _role(self, binding: Document) -> Document:
        kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        for each in self.objects:
            if (each["kind"], each["metadata"]["name"]) == (kind, name):
                return each
        raise BundleError(
            f"{binding['kind']} {binding['metadata']['name']!r} grants the {kind} {name!r}, which the manifests don't "
            "contain: OLM grants only rules in the bundle; add a role with these rules"
        )


def read_deployed(text: str) -> Deployed:
    """Read the output of ``kubectl kustomize``. Raise BundleError if it isn't a list of objects."""
    try:
        objects = tuple(each for each in yaml.safe_load_all(text) if each)
    except yaml.YAMLError as error:
        raise BundleError(f"the manifests aren't YAML: {error}") from error
    for each in objects:
        if not (isinstance(each, dict) and each.get("kind") and (each.get("metadata") or {}).get("name")):
            raise BundleError(f"the manifests have an entry without kind and name: {str(each)[:80]}")
    if not objects:
        raise BundleError("the manifests are empty: pass the output of 'kubectl kustomize deploy' on standard input")
    return Deployed(objects)


def documents(path: Path) -> list[Document]:
    """Return the documents of a YAML file. Raise BundleError if it can't be read."""
    try:
        return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BundleError(f"{path}: {error}") from error


def _checked(document: Document) -> Document:
    """Return an object as OLM creates it. Raise BundleError if OLM doesn't create objects of its kind."""
    kind, metadata = document["kind"], document["metadata"]
    if kind not in CLUSTER_SCOPED | NAMESPACED:
        raise BundleError(
            f"{kind} {metadata['name']!r}: OLM doesn't create objects of this kind from a bundle; remove it from the "
            "kustomization, and create it otherwise"
        )
    return {**document, "metadata": {key: value for key, value in metadata.items() if key != "namespace"}}
