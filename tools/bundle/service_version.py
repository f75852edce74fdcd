"""The ClusterServiceVersion: the descriptions in deploy/olm/base.yaml with the kinds, permissions, and pods of deploy/.

It does not depend on the time or the machine, so the same input gives the same file.
"""

import base64
import json
import re
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from tools.bundle.deployed import BundleError, Deployed, Document, documents
from tools.bundle.descriptors import spec_descriptors, status_descriptors

# Without build metadata: the name of the ClusterServiceVersion becomes a label, which has no "+".
VERSION = re.compile(
    r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-(0|[1-9]\d*|\d*[a-z-][0-9a-z-]*)(\.(0|[1-9]\d*|\d*[a-z-][0-9a-z-]*))*)?"
)
IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]*[a-zA-Z0-9](@sha256:[0-9a-f]{64})?")
TARGETS = "metadata.annotations['olm.targetNamespaces']"


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


def service_version(deployed: Deployed, directory: Path, release: Release) -> Document:
    """Return the ClusterServiceVersion for deploy/ and the files base.yaml, examples.yaml and icon.svg."""
    (base,) = documents(directory / "base.yaml")
    made = deepcopy(base)
    made["metadata"]["name"] = f"{base['metadata']['name']}.v{release.version}"
    made["metadata"]["annotations"] |= _annotations(deployed, directory, release)
    made["spec"] |= {
        "version": release.version,
        "icon": [_icon(directory / "icon.svg")],
        "customresourcedefinitions": {"owned": _owned(deployed, base)},
        "install": {"strategy": "deployment", "spec": _strategy(deployed, release)},
        "relatedImages": [{"name": base["metadata"]["name"], "image": release.image}],
    }
    return made


def _annotations(deployed: Deployed, directory: Path, release: Release) -> dict[str, str]:
    namespace = deployed.only("Namespace")
    return {
        "containerImage": release.image,
        "operatorframework.io/suggested-namespace": namespace["metadata"]["name"],
        "operatorframework.io/suggested-namespace-template": json.dumps(namespace),
        "alm-examples": json.dumps(_examples(deployed, directory), indent=2, ensure_ascii=False),
    }


def _examples(deployed: Deployed, directory: Path) -> list[Document]:
    owned = {document["spec"]["names"]["kind"] for _, document in deployed.definitions().values()}
    files = [*sorted((directory.parent / "samples").glob("*.yaml")), directory / "examples.yaml"]
    samples = [document for path in files if path.name != "kustomization.yaml" for document in documents(path)]
    return [_without_namespace(sample) for sample in samples if sample["kind"] in owned]


def _without_namespace(document: Document) -> Document:
    metadata = {key: value for key, value in document["metadata"].items() if key != "namespace"}
    return {**document, "metadata": metadata}


def _icon(path: Path) -> Document:
    return {"base64data": base64.b64encode(path.read_bytes()).decode(), "mediatype": "image/svg+xml"}


def _owned(deployed: Deployed, base: Document) -> list[Document]:
    words = {each["name"]: each for each in base["spec"]["customresourcedefinitions"]["owned"]}
    definitions = deployed.definitions()
    if words.keys() != definitions.keys():
        differing = sorted(words.keys() ^ definitions.keys())
        raise BundleError(f"deploy/olm/base.yaml and deploy/crds must have the same kinds; only one has {differing}")
    return [_owned_kind(crd, words[name]) for name, (_, crd) in definitions.items()]


def _owned_kind(crd: Document, words: Document) -> Document:
    (version,) = [each for each in crd["spec"]["versions"] if each["storage"]]
    return {
        **words,
        "kind": crd["spec"]["names"]["kind"],
        "version": version["name"],
        "description": version["schema"]["openAPIV3Schema"]["description"],
        "specDescriptors": spec_descriptors(version),
        "statusDescriptors": status_descriptors(version),
    }


def _strategy(deployed: Deployed, release: Release) -> Document:
    deployment = deployed.only("Deployment")
    return {
        "clusterPermissions": _permissions(deployed, "ClusterRoleBinding"),
        "permissions": _permissions(deployed, "RoleBinding"),
        "deployments": [
            {
                "name": deployment["metadata"]["name"],
                "label": deployment["metadata"]["labels"],
                "spec": _deployment_spec(deployment["spec"], release.image),
            }
        ],
    }


def _permissions(deployed: Deployed, kind: str) -> list[Document]:
    return [{"serviceAccountName": name, "rules": rules} for name, rules in deployed.rules(kind).items()]


def _deployment_spec(spec: Document, image: str) -> Document:
    """Return the spec with the image and the namespaces that the OperatorGroup selects."""
    made = deepcopy(spec)
    (container,) = made["template"]["spec"]["containers"]
    container["image"] = image
    if any(each["name"] == "WATCH_NAMESPACE" for each in container["env"]):
        raise BundleError(
            "the Deployment in deploy/ sets WATCH_NAMESPACE, which the bundle takes from the OperatorGroup"
        )
    container["env"].append({"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": TARGETS}}})
    return made
