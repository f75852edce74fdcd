"""A run's own writes start no run. Writes of other clients always do."""

import asyncio
from typing import Any

import pytest

from rolecall.kube.metadata import metadata_of, owner_references_of
from rolecall.kube.references import RawObject
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, eventually

pytestmark = pytest.mark.core

WRITES_EVERYTHING_BUT_THE_SPEC = """
- name: Patch the primary's labels
  kubernetes.core.k8s:
    api_version: test.rolecall.dev/v1
    kind: KIND
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    definition:
      metadata:
        labels: {run: "{{ now().timestamp() | string }}"}
        annotations: {run: "{{ now() | string }}"}
- name: Patch the primary's status
  rolecall.util.k8s_status:
    api_version: test.rolecall.dev/v1
    kind: KIND
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status: {seen: "{{ now().timestamp() | string }}"}
- name: Create a dependent, and patch it
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: dependent, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {key: "{{ item }}"}
  loop: [one, two, "{{ now() | string }}"]
"""

PATCHES_THE_SPEC = """
- name: Remember the size that this run saw
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "saw-{{ size }}", namespace: "{{ ansible_operator_meta.namespace }}"}
- name: Patch the primary's spec
  kubernetes.core.k8s:
    api_version: test.rolecall.dev/v1
    kind: KIND
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    definition: {spec: {size: 2}}
"""


REQUEUES = "- name: Come back later\n  rolecall.util.requeue_after: {time: 12s}\n  when: size | int == 1\n"
IS_HELD = """
- name: Remember what this run saw
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "saw-{{ size }}-{{ colour | default('none') }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
- name: Take long enough to be interrupted
  ansible.builtin.command: {argv: [tail, --follow=name, --pid, "{{ gate }}", /dev/null]}
  when: colour is not defined
  changed_when: false
- name: Write the spec
  kubernetes.core.k8s:
    api_version: test.rolecall.dev/v1
    kind: KIND
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    definition: {spec: {size: 2}}
- name: Come back much later
  rolecall.util.requeue_after: {time: 10m}
"""
TOUCHES = """
- name: Touch the user's ConfigMap
  kubernetes.core.k8s:
    apply: "{{ item }}"
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: theirs, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {touched: "with apply {{ item }}"}
  loop: [false, true]
"""
ASKS_BEFORE_IT_CREATES = """
- name: Make a ConfigMap with a name of the server's, unless there is one
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        generateName: made-
        namespace: "{{ ansible_operator_meta.namespace }}"
        labels: {made: "yes"}
  when: >-
    query('kubernetes.core.k8s', kind='ConfigMap', namespace=ansible_operator_meta.namespace,
          label_selector='made=yes') | length == 0
"""
KEEPS_ITS_VERSION = """
- name: Read the primary
  kubernetes.core.k8s_info:
    api_version: test.rolecall.dev/v1
    kind: KIND
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: primary
- name: Work for longer than a second
  ansible.builtin.command: {argv: [sleep, "1.5"]}
  changed_when: false
- name: Write the primary in the version that was read
  kubernetes.core.k8s:
    api_version: test.rolecall.dev/v1
    kind: KIND
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    definition:
      metadata:
        resourceVersion: "{{ primary.resources[0].metadata.resourceVersion }}"
        annotations: {round: "{{ size | string }}"}
"""
SHARED = Shared(
    {
        "versioned": Role(KEEPS_ITS_VERSION),
        "beside-the-spec": Role(WRITES_EVERYTHING_BUT_THE_SPEC, "watchAnnotationsChanges: true"),
        "spec": Role(PATCHES_THE_SPEC),
        "requeuing": Role(PATCHES_THE_SPEC + REQUEUES),
        "held": Role(IS_HELD),
        "touching": Role(TOUCHES),
        "asking": Role(ASKS_BEFORE_IT_CREATES),
    }
)


async def quiet(thing: Thing, seconds: float = 6.0) -> int:
    """Wait until no run has started for some seconds and none is active; return how many there were."""
    counts: list[int] = []
    looks = int(seconds / 0.1)

    async def look() -> list[int]:
        counts.append(thing.runs() if thing.runs() == thing.ended() else -1)
        return counts[-looks:]

    def is_quiet(last: list[int]) -> bool:
        return len(last) == looks and last[0] > 0 and len(set(last)) == 1

    return (await eventually(look, is_quiet, TIMEOUT_SECONDS, f"{seconds} quiet seconds"))[-1]


async def test_own_writes_outside_the_spec_trigger_no_run(world: World, things: Things) -> None:
    """Labels, annotations, status and dependents of its own, written in one run, lead to no second one."""
    thing = things["beside-the-spec"]
    await thing.create()
    found = await thing.succeeds()
    assert metadata_of(found)["labels"]
    assert found["status"]["seen"]
    assert await quiet(thing) == 1
    assert len(owner_references_of(await world.get(CONFIG_MAP, "dependent"))) == 1

    await world.patch(CONFIG_MAP, "dependent", {"data": {"key": "somebody else"}})

    async def key() -> Any:
        return (await world.get(CONFIG_MAP, "dependent"))["data"]["key"]

    await eventually(key, lambda value: value != "somebody else", TIMEOUT_SECONDS, "drift of the dependent is repaired")
    assert await quiet(thing) == 2


async def test_a_change_of_its_own_spec_is_followed_by_one_more_run(world: World, things: Things) -> None:
    """The run that patched the spec worked with the old one, so the next one sees the new one."""
    await things["spec"].create()
    await world.wait_for(CONFIG_MAP, "saw-2", bool)
    assert await quiet(things["spec"]) == 2


async def test_requeue_after_delays_the_run_after_an_own_spec_change(world: World, things: Things) -> None:
    """With requeue_after, the change of its own spec waits until then."""
    await things["requeuing"].create()
    thing = await things["requeuing"].succeeds()
    assert thing["spec"]["size"] == 2
    await world.wait_for(CONFIG_MAP, "saw-2", bool)
    assert things["requeuing"].causes()[1:] == ["requeue_after"]


async def test_patch_by_another_client_during_a_run_triggers_a_run(world: World, things: Things) -> None:
    """A user's change before and after the run's own write of the spec, while it continues, is seen by a later run."""
    thing = things["held"]
    gate = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    assert gate.stdin is not None
    await thing.create({"size": 1, "gate": gate.pid})
    await world.wait_for(CONFIG_MAP, "saw-1-none", bool)
    await thing.patch({"spec": {"colour": "before"}})
    gate.stdin.close()
    await gate.wait()
    # The run requested ten minutes, so only the user's patch can lead to this one.
    await world.wait_for(CONFIG_MAP, "saw-2-before", bool)
    await thing.patch({"spec": {"colour": "after"}})
    await world.wait_for(CONFIG_MAP, "saw-2-after", bool)


async def test_existing_object_is_not_adopted(world: World, things: Things) -> None:
    """A user's ConfigMap that a role changes stays the user's: it does not go with the primary."""
    theirs: RawObject = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "theirs", "namespace": world.namespace},
        "data": {"key": "value"},
    }
    await world.client.create(theirs)
    await things["touching"].create()
    await things["touching"].succeeds()
    touched = await world.get(CONFIG_MAP, "theirs")
    assert touched["data"] == {"key": "value", "touched": "with apply True"}
    assert owner_references_of(touched) == ()


async def test_a_module_can_create_first_thing_after_a_lookup_of_its_task(world: World, things: Things) -> None:
    """A lookup leaves an open connection, which a forked module must not use."""
    thing = things["asking"]
    await thing.create()
    await thing.succeeds()
    await thing.patch({"spec": {"size": 2}})
    await thing.runs_at_least(2)
    assert await quiet(thing) == 2
    made = [obj for obj in await world.objects(CONFIG_MAP) if metadata_of(obj).get("labels") == {"made": "yes"}]
    assert len(made) == 1


async def test_role_that_writes_its_primary_after_a_second_meets_no_write_of_the_operator(things: Things) -> None:
    """During a run only the run writes its object: first runs, runs after an edit, and runs of unchanged objects."""
    thing = things["versioned"]
    await thing.create()
    again = {"metadata": {"annotations": {"rolecall.dev/reconcile-requested-at": "now"}}}
    patches: list[dict[str, Any]] = [{"spec": {"size": 2}}, again, {"spec": {"size": 3}}]
    for count, patch in enumerate(patches, 1):
        await thing.ends_at_least(count)  # an edit during a run would be a conflict, and rightly so
        await thing.patch(patch)
    await thing.ends_at_least(4)
    assert thing.messages("Reconcile failed") == []
