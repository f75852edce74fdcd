"""Kinds that a test brings itself, as CustomResourceDefinitions that take anything."""

from typing import Any

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from tests.support.world import TIMEOUT_SECONDS, eventually

CRD = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


ANYTHING: RawObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(gvk: GVK, *older_versions: str, schema: RawObject = ANYTHING) -> RawObject:
    """Return the definition of a namespaced kind with a status; the kind's own version is the one that is stored."""
    plural = f"{gvk.kind.lower()}s"
    versions: list[dict[str, Any]] = [
        {
            "name": version,
            "served": True,
            "storage": version == gvk.version,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        }
        for version in (gvk.version, *older_versions)
    ]
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"{plural}.{gvk.group}"},
        "spec": {
            "group": gvk.group,
            "scope": "Namespaced",
            "names": {"kind": gvk.kind, "plural": plural, "singular": gvk.kind.lower()},
            "versions": versions,
        },
    }


async def define(client: Client, gvk: GVK, *older_versions: str, schema: RawObject = ANYTHING) -> None:
    """Install a kind and wait until objects of it can be listed."""
    await client.create(definition(gvk, *older_versions, schema=schema))

    async def is_served() -> bool:
        try:
            return [page async for page in client.list_pages(gvk)] != []
        except KubeError:
            return False

    await eventually(is_served, bool, TIMEOUT_SECONDS, f"{gvk} is served")


async def undefine(client: Client, gvk: GVK) -> None:
    """Remove a kind with all its objects and wait until it is deleted."""
    key = ObjectKey("", f"{gvk.kind.lower()}s.{gvk.group}")
    await client.delete(CRD, key)

    async def is_there() -> bool:
        try:
            await client.get(CRD, key)
        except KubeError:
            return False
        return True

    await eventually(is_there, lambda there: not there, TIMEOUT_SECONDS, f"{gvk} is gone")
