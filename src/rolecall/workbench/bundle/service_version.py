"""The ClusterServiceVersion: texts of ``deploy/olm/base.yaml`` with the kinds, permissions, and pods of the manifests.

``base.yaml`` is a ClusterServiceVersion with only the fields that no manifest has; it wins over the defaults here. The
description defaults to the first paragraph of the project's README. The same input always gives the same result.
"""

import base64
import json
import re
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from rolecall.workbench.bundle.descriptors import spec_descriptors, status_descriptors, words_of
from rolecall.workbench.bundle.manifests import BundleError, Deployed, Document, documents

# Without build metadata: the name of the ClusterServiceVersion becomes a label, which has no "+".
VERSION = re.compile(
    r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-(0|[1-9]\d*|\d*[a-z-][0-9a-z-]*)(\.(0|[1-9]\d*|\d*[a-z-][0-9a-z-]*))*)?"
)
IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]*[a-zA-Z0-9](@sha256:[0-9a-f]{64})?")
TARGETS = "metadata.annotations['olm.targetNamespaces']"
MODES = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
"""The install modes. OLM passes the namespaces of each mode in the same way, so an operator supports all of them."""
ICONS = {"icon.svg": "image/svg+xml", "icon.png": "image/png"}
NOT_TEXT = ("#", "`", "|", "<", "!", "[", "-", "*", ">")
"""The start of a paragraph of Markdown that isn't text: headings, code, tables, pictures, and lists."""


@dataclass(frozen=True)
class Release:
    """A release: a semantic version and the operator's image. Raise BundleError if one of them is invalid."""

    version: str
    image: str

    def __post_init__(self) -> None:
        """Validate both."""
        if not VERSION.fullmatch(self.version):
            raise BundleError(
                f"VERSION {self.version!r} is not a semantic version in lower case, such as 0.1.0 or 0.2.0-rc.1"
            )
        if not IMAGE.fullmatch(self.image):
            raise BundleError(
                f"IMG {self.image!r} is not the name of an image, such as registry.example/rolecall:0.1.0"
            )


def read_base(directory: Path) -> Document:
    """Return the handwritten part of the ClusterServiceVersion in deploy/olm. Raise BundleError if it is invalid."""
    path = directory / "base.yaml"
    if not path.is_file():
        raise BundleError(f"{path}: file not found. It has the texts of the bundle; 'rolecall update' writes one")
    found = documents(path)
    name = found[0].get("metadata", {}).get("name") if len(found) == 1 and isinstance(found[0], dict) else None
    if not name or not isinstance(found[0].get("spec"), dict):
        raise BundleError(f"{path}: expected one ClusterServiceVersion with the package as metadata.name, and a spec")
    return found[0]


def service_version(deployed: Deployed, base: Document, directory: Path, release: Release) -> Document:
    """Return the ClusterServiceVersion of the manifests and of the files in the directory deploy/olm."""
    made = deepcopy(base)
    name, icons = base["metadata"]["name"], _icons(directory)
    made["metadata"]["name"] = f"{name}.v{release.version}"
    made["metadata"]["annotations"] = base["metadata"].get("annotations", {}) | _annotations(
        deployed, directory, release
    )
    spec = made["spec"] = {"displayName": words_of(name), "installModes": _modes(deployed), **made["spec"]}
    if not spec.get("description"):
        spec["description"] = _description(directory.parents[1])
    spec |= {
        "version": release.version,
        **({"icon": icons} if icons else {}),
        "customresourcedefinitions": {"owned": _owned(deployed, base)},
        "install": {"strategy": "deployment", "spec": _strategy(deployed, release)},
        "relatedImages": [{"name": name, "image": release.image}],
    }
    return made


def _description(project: Path) -> str:
    path = project / "README.md"
    paragraphs = path.read_text(encoding="utf-8").split("\n\n") if path.is_file() else []
    texts = [each.strip() for each in paragraphs if each.strip() and not each.lstrip().startswith(NOT_TEXT)]
    if not texts:
        raise BundleError(
            f"{path}: no paragraph describes the project; write one, or set spec.description in base.yaml"
        )
    return " ".join(texts[0].split())


def _annotations(deployed: Deployed, directory: Path, release: Release) -> dict[str, str]:
    suggested = "operatorframework.io/suggested-namespace"
    return {
        "containerImage": release.image,
        **({suggested: deployed.namespace} if deployed.namespace else {}),
        **{f"{suggested}-template": json.dumps(each) for each in deployed.namespaces()},
        "alm-examples": json.dumps(_examples(deployed, directory), indent=2, ensure_ascii=False),
    }


def _examples(deployed: Deployed, directory: Path) -> list[Document]:
    owned = {crd["spec"]["names"]["kind"] for crd in deployed.definitions().values()}
    files = [*sorted((directory.parent / "samples").glob("*.yaml")), *directory.glob("examples.yaml")]
    samples = [document for path in files if path.name != "kustomization.yaml" for document in documents(path)]
    return [_without_namespace(sample) for sample in samples if sample.get("kind") in owned]


def _without_namespace(document: Document) -> Document:
    metadata = {key: value for key, value in document["metadata"].items() if key != "namespace"}
    return {**document, "metadata": metadata}


def _modes(deployed: Deployed) -> list[Document]:
    """Return the install modes: only all namespaces if a kind is cluster-scoped, because its objects are in none."""
    scopes = {crd["spec"]["scope"] for crd in deployed.definitions().values()}
    return [{"type": mode, "supported": mode == MODES[-1] or "Cluster" not in scopes} for mode in MODES]


def _icons(directory: Path) -> list[Document]:
    return [
        {"base64data": base64.b64encode(path.read_bytes()).decode(), "mediatype": media_type}
        for name, media_type in ICONS.items()
        for path in directory.glob(name)
    ][:1]


def _owned(deployed: Deployed, base: Document) -> list[Document]:
    described = (base["spec"].get("customresourcedefinitions") or {}).get("owned") or ()
    texts = {each["name"]: each for each in described}
    definitions = deployed.definitions()
    if unknown := sorted(texts.keys() - definitions.keys()):
        raise BundleError(f"deploy/olm/base.yaml describes {unknown}, but the manifests have only {[*definitions]}")
    return [
        _owned_version(crd, version, texts.get(name, {"name": name}))
        for name, crd in definitions.items()
        for version in crd["spec"]["versions"]
    ]


def _owned_version(crd: Document, version: Document, texts: Document) -> Document:
    kind = crd["spec"]["names"]["kind"]
    default = {"name": texts["name"], "displayName": words_of(kind)}
    return {
        **default,
        **texts,
        "kind": kind,
        "version": version["name"],
        "description": version["schema"]["openAPIV3Schema"].get("description", f"A {kind}."),
        "specDescriptors": spec_descriptors(version),
        "statusDescriptors": status_descriptors(version),
    }


def _strategy(deployed: Deployed, release: Release) -> Document:
    deployment = deployed.only("Deployment")
    permissions = {
        "clusterPermissions": deployed.permissions("ClusterRoleBinding"),
        "permissions": deployed.permissions("RoleBinding"),
    }
    return {
        **{key: value for key, value in permissions.items() if value},
        "deployments": [
            {
                "name": deployment["metadata"]["name"],
                "label": deployment["metadata"].get("labels", {}),
                "spec": _deployment_spec(deployment["spec"], release.image),
            }
        ],
    }


def _deployment_spec(spec: Document, image: str) -> Document:
    """Return the spec with the image and the namespaces that OLM selects."""
    made = deepcopy(spec)
    containers = made["template"]["spec"]["containers"]
    if len(containers) != 1:
        raise BundleError(
            f"the Deployment has {len(containers)} containers; a bundle takes exactly one, the operator's"
        )
    container = containers[0]
    container["image"] = image
    environment = container.setdefault("env", [])
    if any(each["name"] == "WATCH_NAMESPACE" for each in environment):
        raise BundleError(
            "the Deployment sets WATCH_NAMESPACE, but in a bundle OLM sets it: remove it, for example the component "
            "'namespaced'"
        )
    environment.append({"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": TARGETS}}})
    return made
