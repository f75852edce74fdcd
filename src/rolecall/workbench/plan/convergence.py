"""Waits until the controllers of the shadow have done their work on what a run has written.

Whatever they change then wakes the primary in a real operator, too.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import generation_of, resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject

SETTLES_WITHIN_SECONDS: Final = 60.0
LOOK_EVERY_SECONDS: Final = 0.1


def _pod(obj: RawObject) -> bool:
    return (obj.get("status") or {}).get("phase") not in (None, "Pending")


def _replicas(ready: str) -> Callable[[RawObject], bool]:
    def is_done(obj: RawObject) -> bool:
        wanted = (obj.get("spec") or {}).get("replicas", 1)
        status: dict[str, Any] = obj.get("status") or {}
        return status.get("observedGeneration") == generation_of(obj) and status.get(ready, 0) == wanted

    return is_done


def _daemons(obj: RawObject) -> bool:
    status: dict[str, Any] = obj.get("status") or {}
    is_seen = status.get("observedGeneration") == generation_of(obj)
    return is_seen and status.get("numberReady") == status.get("desiredNumberScheduled")


def _job(obj: RawObject) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in conditions)


_IS_DONE: Final[dict[tuple[str, str], Callable[[RawObject], bool]]] = {
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replicas("readyReplicas"),
    ("apps", "Deployment"): _replicas("availableReplicas"),
    ("apps", "ReplicaSet"): _replicas("readyReplicas"),
    ("apps", "StatefulSet"): _replicas("readyReplicas"),
    ("apps", "DaemonSet"): _daemons,
    ("batch", "Job"): _job,
}
"""Kinds that controllers of Kubernetes change, and how to tell that they are done."""


@dataclass(frozen=True, slots=True)
class Written:
    """An object as a run has written it last."""

    gvk: GVK
    key: ObjectKey
    resource_version: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Which objects the controllers have changed or removed, and with which they were not done in time."""

    changed: tuple[Written, ...] = ()
    unfinished: tuple[Written, ...] = ()


async def settled(client: Client, written: Iterable[Written]) -> Settled:
    """Return what the controllers have done, when they are done with all objects.

    An object that never gets done, such as a pod that fits on no node, is waited for in vain for a while.
    """
    looked_after = [each for each in written if (each.gvk.group, each.gvk.kind) in _IS_DONE]
    deadline = asyncio.get_running_loop().time() + SETTLES_WITHIN_SECONDS
    changed, unfinished = [], []
    for each in looked_after:
        found = await _when_done(client, each, deadline)
        if found is None or resource_version_of(found) != each.resource_version:
            changed.append(each)
        if found is not None and not _is_done(each, found):
            unfinished.append(each)
    return Settled(tuple(changed), tuple(unfinished))


async def _when_done(client: Client, written: Written, deadline: float) -> RawObject | None:
    """Return an object when it is done, as it is when the time is over, or None when it is gone."""
    while True:
        try:
            found = await client.get(written.gvk, written.key)
        except NotFoundError:
            return None
        if _is_done(written, found) or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(LOOK_EVERY_SECONDS)


def _is_done(written: Written, found: RawObject) -> bool:
    return _IS_DONE[written.gvk.group, written.gvk.kind](found)
