"""Reads manifests from directories and applies them to a cluster, in the order of their kustomizations.

Discovery, applying and waiting are done by the ``openshift`` client, which nothing else uses: its three-way merge is
that of ``kubectl apply``, so either can be repeated. CustomResourceDefinitions are waited for, because the API server
serves a new kind a moment after it has accepted its definition. Only plain lists of ``resources`` are understood here;
anything more is kustomize's own business.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes.config import new_client_from_config
from openshift.dynamic import DynamicClient
from openshift.dynamic.exceptions import NotFoundError, ResourceNotFoundError

from rolecall.kube.references import GVK, ObjectKey, RawObject

KUSTOMIZATION = "kustomization.yaml"
ESTABLISHED_SECONDS = 20
_POLL_SECONDS = 0.1


def read_manifests(path: Path) -> Iterator[RawObject]:
    """Yield every object of a file or directory, in the order of its kustomization (without one: by file name).

    Raise FileNotFoundError if the path does not exist.
    """
    if path.is_dir():
        kustomization = path / KUSTOMIZATION
        if kustomization.is_file():
            names = yaml.safe_load(kustomization.read_text()).get("resources") or []
        else:
            names = sorted(child.name for child in path.glob("*.yaml"))
        for name in names:
            yield from read_manifests(path / name)
    else:
        yield from (document for document in yaml.safe_load_all(path.read_text()) if document)


class Applier:
    """Apply objects to the cluster of a kubeconfig file."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = DynamicClient(new_client_from_config(str(kubeconfig)))

    def apply(self, objects: Iterable[RawObject]) -> list[str]:
        """Apply the objects in order and return ``Kind namespace/name`` for each.

        Raise TimeoutError if a CustomResourceDefinition does not become established.
        """
        return [self._apply(obj) for obj in objects]

    def _apply(self, obj: RawObject) -> str:
        gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
        resource = self._resource(gvk)
        resource.apply(body=obj, namespace=key.namespace or None)
        if gvk.kind == "CustomResourceDefinition":
            self._wait_until_established(key.name)
        return f"{gvk.kind} {key}"

    def _resource(self, gvk: GVK) -> Any:
        deadline = time.monotonic() + ESTABLISHED_SECONDS
        while True:
            try:
                return self._client.resources.get(api_version=gvk.api_version, kind=gvk.kind)
            except (NotFoundError, ResourceNotFoundError):
                if time.monotonic() > deadline:
                    raise
                self._client.resources.invalidate_cache()
                time.sleep(_POLL_SECONDS)

    def _wait_until_established(self, name: str) -> None:
        definitions = self._resource(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
        for event in definitions.watch(name=name, timeout=ESTABLISHED_SECONDS):
            conditions = (event["raw_object"].get("status") or {}).get("conditions") or ()
            if any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
                return
        raise TimeoutError(f"CustomResourceDefinition {name} was not established within {ESTABLISHED_SECONDS} s")
