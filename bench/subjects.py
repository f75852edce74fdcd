"""The work that all contenders do: two kinds whose objects want pods, with the role podscaler and with a plain role.

``spec.revision`` is a field that no role looks at: a change of it makes a new generation, so that every operator has to
run, and finds nothing to do. That is what *unchanged* means in the report. The repository's own definition of
PodScalers has no such field; here it gets one.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

from bench.widgets import WIDGET

from rolecall.kube.references import GVK, ObjectKey, RawObject

POD_SCALER = GVK("scaling.example.com", "v1", "PodScaler")
POD = GVK("", "v1", "Pod")
_CONTAINERS = [{"name": "nginx", "image": "nginx:latest"}]


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
        return {
            "apiVersion": self.gvk.api_version,
            "kind": self.gvk.kind,
            "metadata": metadata,
            "spec": {**wish, "revision": 0},
        }

    def pods(self, key: ObjectKey, count: int) -> Iterator[RawObject]:
        """Yield pods that satisfy such an object before any operator has seen it."""
        first = "" if self.gvk == WIDGET else "scaled-"  # the plain role requests certain names
        for number in range(count):
            metadata = {
                "name": f"{first}{key.name}-{number}",
                "namespace": key.namespace,
                "labels": {self.label: key.name},
            }
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": _CONTAINERS}}


SUBJECTS = (Subject(POD_SCALER, "podscaler", "bench"), Subject(WIDGET, "plain", "widget"))


def with_revision(definition: RawObject) -> RawObject:
    """Return a CustomResourceDefinition whose objects may have ``spec.revision``."""
    changed = copy.deepcopy(definition)
    for version in changed["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["revision"] = {"type": "integer"}
    return changed
