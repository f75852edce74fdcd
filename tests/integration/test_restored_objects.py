"""Objects recreated from a backup have new uids: which dependents are kept, and which the role creates again."""

from typing import Any

import yaml

from rolecall.kube.metadata import metadata_of, uid_of
from rolecall.kube.references import RawObject
from tests.integration.shared import Role, Shared, Things
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World

GENERATES = """
- name: Read the generated value
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: generated
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: found

- name: Generate a value once
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: generated
        namespace: "{{ ansible_operator_meta.namespace }}"
        annotations: ANNOTATIONS
      data:
        value: "{{ found.resources[0].data.value if found.resources else lookup('password', '/dev/null') }}"
"""
SHARED = Shared(
    {
        "adopting": Role(GENERATES.replace("ANNOTATIONS", '{rolecall.dev/adopt: "true"}')),
        "plain": Role(GENERATES.replace("ANNOTATIONS", "{}")),
    }
)


def owners(obj: RawObject) -> list[str]:
    """Return the uids of the object's owners."""
    return [reference["uid"] for reference in metadata_of(obj).get("ownerReferences") or []]


async def lose(world: World, things: Things, role: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Create an object of a role and delete it with its dependent; return the dependent's data and old owners."""
    thing = things[role]
    await thing.create()
    await thing.succeeds()
    dependent = await world.get(CONFIG_MAP, "generated")
    await thing.delete()
    await world.wait_until_gone(CONFIG_MAP, "generated", TIMEOUT_SECONDS)
    return dependent["data"], metadata_of(dependent)["ownerReferences"]


async def restore(world: World, data: dict[str, Any], **metadata: Any) -> RawObject:
    """Create the dependent from a backup, and return it."""
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "generated", **metadata}, "data": data}
    (made,) = await world.create(yaml.safe_dump(manifest))
    return made


async def test_restored_dependent_keeps_its_data_and_gets_the_new_owner_if_adopted(
    world: World, things: Things
) -> None:
    data, _ = await lose(world, things, "adopting")
    await restore(world, data)
    uid = uid_of(await things["adopting"].create())
    await things["adopting"].succeeds()
    dependent = await world.get(CONFIG_MAP, "generated")
    assert (dependent["data"], owners(dependent)) == (data, [uid])


async def test_restored_dependent_without_adoption_keeps_its_data_and_has_no_owner(
    world: World, things: Things
) -> None:
    data, _ = await lose(world, things, "plain")
    await restore(world, data)
    await things["plain"].create()
    await things["plain"].succeeds()
    dependent = await world.get(CONFIG_MAP, "generated")
    assert (dependent["data"], owners(dependent)) == (data, [])


async def test_dependent_restored_with_its_old_owner_is_deleted_and_created_again(world: World, things: Things) -> None:
    data, old = await lose(world, things, "plain")
    restored = await restore(world, data, ownerReferences=old)
    uid = uid_of(await things["plain"].create())
    dependent = await world.wait_for(CONFIG_MAP, "generated", lambda obj: owners(obj) == [uid])
    # Not its data: the role may have read the value before the garbage collector deleted the object.
    assert uid_of(dependent) != uid_of(restored)
