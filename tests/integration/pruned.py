"""What the tests of prune have in common: tasks of their roles, and the parts that these make in a namespace."""

from typing import Any

from rolecall.kube.metadata import annotation_of, metadata_of
from rolecall.kube.references import GVK
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION
from tests.integration.shared import Thing
from tests.support.world import CONFIG_MAP, EVENT, TIMEOUT_SECONDS, World, always, eventually

SECRET = GVK("", "v1", "Secret")
SERVICE = GVK("", "v1", "Service")
CLAIM = GVK("", "v1", "PersistentVolumeClaim")
ROLE = GVK("rbac.authorization.k8s.io", "v1", "Role")
JOB = GVK("batch", "v1", "Job")
PRUNE = "rolecall.dev/prune"
CONFIRM = "rolecall.dev/confirm-prune"
REQUESTED = "rolecall.dev/reconcile-requested-at"
QUIET_SECONDS = 6.0
"""Several times as long as an object stays obsolete here."""

_KINDS = (CONFIG_MAP, SECRET, SERVICE, CLAIM, ROLE, JOB)
_OF_KUBERNETES = {"ConfigMap/kube-root-ca.crt"}

MAKE = """
- name: Make the parts
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: "{{ item.split('/')[0] }}"
      metadata: {name: "{{ item.split('/')[1] }}", namespace: "{{ ansible_operator_meta.namespace }}"}
  loop: "{{ parts }}"
"""
END = """
- name: Delete what is no longer needed
  rolecall.util.prune:
    after: 1s
    mode: delete
"""
REPORT = END.replace("    mode: delete\n", "")


async def parts(world: World) -> set[str]:
    """Return the objects of the kinds that roles make here, except those of Kubernetes itself."""
    found = {f"{gvk.kind}/{metadata_of(obj)['name']}" for gvk in _KINDS for obj in await world.objects(gvk)}
    return found - _OF_KUBERNETES


async def become(world: World, expected: set[str]) -> None:
    """Wait until exactly these objects exist."""
    await eventually(lambda: parts(world), expected.__eq__, TIMEOUT_SECONDS, f"only {sorted(expected)}")


async def stay(world: World, expected: set[str], seconds: float = QUIET_SECONDS) -> None:
    """Check that these objects exist for a while."""
    await always(lambda: parts(world), expected.issubset, seconds, f"{sorted(expected)} stay")


async def wants(thing: Thing, *wanted: str, **others: Any) -> None:
    """Change the parts that an object has."""
    await thing.patch({"spec": {"parts": list(wanted), **others}})


async def has_inventory(thing: Thing, *names: str) -> None:
    """Wait until the inventory names these objects."""

    def holds(obj: dict[str, Any]) -> bool:
        text = annotation_of(obj, INVENTORY_ANNOTATION) or ""
        return all(f'"{name}"' in text for name in names)

    await thing.world.wait_for(thing.gvk, thing.name, holds)


async def made(thing: Thing, *wanted: str, **others: Any) -> None:
    """Create an object with parts, and wait until its inventory has them."""
    await thing.create({"parts": list(wanted), **others})
    await has_inventory(thing, *(name.split("/")[1] for name in wanted))


async def run_again(thing: Thing, number: int = 1) -> None:
    """Request runs, one after the other, and wait for their ends."""
    for each in range(number):
        ended = thing.ended()
        await thing.patch({"metadata": {"annotations": {REQUESTED: f"{ended} {each}"}}})
        await thing.ends_at_least(ended + 1)


async def events(world: World) -> dict[str, str]:
    """Return the message of the last Event with each reason."""
    found = await world.objects(EVENT)
    found.sort(key=lambda obj: (obj["lastTimestamp"] or "", metadata_of(obj)["resourceVersion"]))
    return {obj["reason"]: obj["message"] for obj in found}


async def reported(world: World, reason: str) -> str:
    """Wait until an Event with this reason exists; return its message."""
    found = await eventually(lambda: events(world), lambda found: reason in found, TIMEOUT_SECONDS, f"Event {reason}")
    return found[reason]
