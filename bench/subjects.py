"""The work that all contenders do: two kinds whose objects want pods, with the role podscaler and with a plain role.

The section ``fleet`` has its own kind and role, which applies four manifests. No role uses ``spec.revision``: a change
of it makes a new generation, so that every operator has to run, and finds nothing to do. That is what *unchanged* means
in the report. The repository's own definition of PodScalers has no such field; here it gets one.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from rolecall.kube.references import GVK, ObjectKey, RawObject

POD_SCALER = GVK("scaling.example.com", "v1", "PodScaler")
WIDGET = GVK("bench.rolecall.dev", "v1", "Widget")
APP = GVK("bench.rolecall.dev", "v1", "App")
PODS_EACH = 2
CONTENT = Path(__file__).with_name("content")
CONTAINERS = [{"name": "nginx", "image": "nginx:latest"}]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind and how its objects request pods."""

    gvk: GVK
    title: str
    label: str

    def make(self, key: ObjectKey, pods: int) -> RawObject:
        """Return a new object that wants so many pods."""
        wish = {"count": pods, "selector": {self.label: key.name}} if self.gvk == POD_SCALER else {"pods": pods}
        metadata = {"name": key.name, "namespace": key.namespace}
        spec = {**wish, "revision": 0}
        return {"apiVersion": self.gvk.api_version, "kind": self.gvk.kind, "metadata": metadata, "spec": spec}

    def pods(self, key: ObjectKey, count: int) -> Iterator[RawObject]:
        """Yield pods that satisfy such an object before any operator has seen it."""
        first = "" if self.gvk == WIDGET else "scaled-"  # the plain role requests certain names
        for number in range(count):
            name, labels = f"{first}{key.name}-{number}", {self.label: key.name}
            metadata = {"name": name, "namespace": key.namespace, "labels": labels}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": CONTAINERS}}


PLAIN = Subject(WIDGET, "plain", "widget")
SUBJECTS = (Subject(POD_SCALER, "podscaler", "bench"), PLAIN)
FLEET = Subject(APP, "app", "app")
"""Only for the section ``fleet``: its pods are the replicas of a Deployment."""


def write_project(directory: Path, tasks: Sequence[RawObject] = ()) -> None:
    """Write a project with one watch, for Widgets, and a role of these tasks."""
    watch = {"group": WIDGET.group, "version": WIDGET.version, "kind": WIDGET.kind, "role": "widget"}
    (directory / "watches.yaml").write_text(yaml.safe_dump([watch]))
    role = directory / "roles" / "widget" / "tasks"
    role.mkdir(parents=True)
    (role / "main.yml").write_text(yaml.safe_dump([*tasks]))


def with_revision(definition: RawObject) -> RawObject:
    """Return a CustomResourceDefinition whose objects may have ``spec.revision``."""
    changed = copy.deepcopy(definition)
    for version in changed["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["revision"] = {"type": "integer"}
    return changed
