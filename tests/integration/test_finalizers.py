"""Objects that are deleted at a bad moment, or whose finalizer's run does not succeed at first."""

import asyncio

import pytest

from tests.integration.shared import Role, Shared, Things
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, condition, eventually

pytestmark = pytest.mark.core

WATCH = "finalizer: {name: test.rolecall.dev/finalizer, vars: {state: absent}}"
BLOCKS = """
- name: Show that the run has begun
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: begun, namespace: "{{ ansible_operator_meta.namespace }}"}
- name: Wait until somebody opens the gate
  ansible.builtin.command: {argv: [tail, --follow=name, --pid, "{{ gate }}", /dev/null]}
  changed_when: false
  when: state is not defined
"""
FAILS = "- name: Clean up\n  ansible.builtin.fail: {msg: the cloud is away}\n  when: state is defined\n"
SHARED = Shared({"blocking": Role(BLOCKS, WATCH), "failing": Role(FAILS, WATCH)})


async def test_a_deletion_during_a_run_is_followed_by_the_finalizers_run(world: World, things: Things) -> None:
    """Behaviour 23 of the Go runner's tests: the object goes soon after the run that was under way has ended."""
    thing = things["blocking"]
    gate = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    assert gate.stdin is not None
    await thing.create({"gate": gate.pid})
    await world.wait_for(CONFIG_MAP, "begun", bool)
    await thing.delete()
    assert await thing.get()
    gate.stdin.close()
    await gate.wait()
    await thing.goes()

    async def succeeded() -> int:
        return len(thing.messages("Reconcile succeeded"))

    await eventually(succeeded, lambda count: count == 2, TIMEOUT_SECONDS, "two runs have ended")
    assert thing.messages("Reconcile failed") == []


async def test_failed_finalizer_is_reported_and_retried_until_it_succeeds(things: Things) -> None:
    """The object stays with a condition that names the finalizer and the task; a fixed role lets it go."""
    thing = things["failing"]
    await thing.create()
    await thing.succeeds()
    await thing.delete()
    expected = "Finalizer test.rolecall.dev/finalizer: Task 'Clean up': the cloud is away"
    assert condition(await thing.fails(), "Failure")["message"] == expected

    async def causes() -> list[str]:
        return thing.causes()

    await eventually(causes, lambda found: "retry 2" in found, TIMEOUT_SECONDS, "a second retry")
    thing.write_role("- name: Do nothing\n  ansible.builtin.debug: {msg: fine}\n")
    await thing.goes()
