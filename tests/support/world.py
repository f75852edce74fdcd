"""The cluster as tests see it: make objects, look at them, wait until something holds.

Every test has its own namespace. Waiting is always for a condition with a deadline, and a deadline that passes
shows what was there instead.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import is_being_deleted, metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject

POD = GVK("", "v1", "Pod")
CONFIG_MAP = GVK("", "v1", "ConfigMap")
EVENT = GVK("", "v1", "Event")
SERVICE_ACCOUNT = GVK("", "v1", "ServiceAccount")
DEPLOYMENT = GVK("apps", "v1", "Deployment")
REPLICA_SET = GVK("apps", "v1", "ReplicaSet")
POD_SCALER = GVK("scaling.example.com", "v1", "PodScaler")
HIKAWA = GVK("zundokokiyoshi.kaitoy.github.com", "v1beta1", "Hikawa")
ZUNDOKO = GVK("zundokokiyoshi.kaitoy.github.com", "v1beta1", "Zundoko")
KIYOSHI = GVK("zundokokiyoshi.kaitoy.github.com", "v1beta1", "Kiyoshi")
FOO = GVK("samplecontroller.k8s.io", "v1alpha1", "Foo")

LOOK_EVERY_SECONDS = 0.1
TIMEOUT_SECONDS = 600.0
"""For each wait: machines are slow, and a wait that succeeds earlier costs nothing more."""
Observed = TypeVar("Observed")


async def eventually(
    look: Callable[[], Awaitable[Observed]], holds: Callable[[Observed], object], within: float, what: str
) -> Observed:
    """Look until what is seen holds and return it; fail with what was seen last when the seconds are over."""
    deadline = time.monotonic() + within
    while True:
        seen = await look()
        if holds(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}; last seen: {shown(seen)}")
        await asyncio.sleep(LOOK_EVERY_SECONDS)


async def always(
    look: Callable[[], Awaitable[Observed]], holds: Callable[[Observed], object], seconds: float, what: str
) -> None:
    """Look again and again for some seconds; fail as soon as something does not hold."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = await look()
        assert holds(seen), f"{what}; seen: {shown(seen)}"
        await asyncio.sleep(LOOK_EVERY_SECONDS)


@dataclass(frozen=True, slots=True)
class World:
    """One namespace of the cluster, with an administrator's permissions."""

    client: Client
    namespace: str

    def key(self, name: str) -> ObjectKey:
        """Return the key of an object here."""
        return ObjectKey(self.namespace, name)

    async def create(self, manifest: str) -> list[RawObject]:
        """Create the objects of YAML text in this namespace."""
        made = []
        for obj in yaml.safe_load_all(manifest):
            obj["metadata"]["namespace"] = self.namespace
            made.append(await self.client.create(obj))
        return made

    async def get(self, gvk: GVK, name: str) -> RawObject:
        """Return an object. Raises NotFoundError."""
        return await self.client.get(gvk, self.key(name))

    async def find(self, gvk: GVK, name: str) -> RawObject | None:
        """Return an object, None when it is not there."""
        try:
            return await self.get(gvk, name)
        except NotFoundError:
            return None

    async def patch(self, gvk: GVK, name: str, patch: dict[str, Any], subresource: str = "") -> RawObject:
        """Change an object by a merge patch."""
        return await self.client.patch(gvk, self.key(name), patch, subresource)

    async def delete(self, gvk: GVK, name: str) -> None:
        """Request an object's deletion."""
        await self.client.delete(gvk, self.key(name))

    async def objects(self, gvk: GVK) -> list[RawObject]:
        """Return all objects of a kind here, by name."""
        found = [obj async for page, _ in self.client.list_pages(gvk, self.namespace) for obj in page]
        return sorted(found, key=lambda obj: str(metadata_of(obj)["name"]))

    async def pods(self, **labels: str) -> list[RawObject]:
        """Return the pods with these labels that are not on their way out."""
        return [
            pod
            for pod in await self.objects(POD)
            if not is_being_deleted(pod) and labels.items() <= (metadata_of(pod).get("labels") or {}).items()
        ]

    async def wait_for(
        self, gvk: GVK, name: str, holds: Callable[[RawObject], object], within: float = TIMEOUT_SECONDS
    ) -> RawObject:
        """Wait until an object is there and something holds for it."""

        async def look() -> RawObject:
            return await self.find(gvk, name) or {}

        return await eventually(look, lambda obj: obj and holds(obj), within, f"{gvk.kind} {name}")

    async def wait_until_pods_are_allowed(self) -> None:
        """Wait until this new namespace has its ServiceAccount, without which the API server rejects pods."""
        await self.wait_for(SERVICE_ACCOUNT, "default", bool)

    async def wait_until_gone(self, gvk: GVK, name: str, within: float) -> None:
        """Wait until an object is deleted."""
        await eventually(lambda: self.find(gvk, name), lambda obj: obj is None, within, f"{gvk.kind} {name} is gone")


def names(objects: list[RawObject]) -> list[str]:
    """Return the names of objects."""
    return [str(metadata_of(obj)["name"]) for obj in objects]


def shown(seen: object) -> str:
    """Return a short description of the objects: names, labels, and statuses."""
    if isinstance(seen, list):
        return "[" + ", ".join(shown(item) for item in seen) + "]"
    if isinstance(seen, dict) and "metadata" in seen:
        wanted = ("name", "labels", "generation", "deletionTimestamp")
        metadata = {key: value for key, value in metadata_of(seen).items() if key in wanted}
        return str({"metadata": metadata, "spec": seen.get("spec"), "status": seen.get("status")})[:1500]
    return repr(seen)[:1500]


def condition(obj: RawObject, kind: str) -> dict[str, Any]:
    """Return a condition of an object's status, empty when there is none."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == kind), {})


def is_true(obj: RawObject, kind: str) -> bool:
    """Return whether a condition is true."""
    return condition(obj, kind).get("status") == "True"
