"""Objects that are deleted at a bad moment, or whose finalizer's run does not succeed at first."""

import asyncio

from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.integration.things import MANIFEST, THING, write_project, write_role
from tests.integration.world import CONFIG_MAP, World, condition, is_true

PATIENCE = 60.0
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


async def test_a_deletion_during_a_run_is_followed_by_the_finalizers_run(
    world: World, thing_operator: Operator
) -> None:
    """Behaviour 23 of the Go runner's tests: the object goes soon after the run that was under way has ended."""
    gate = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    assert gate.stdin is not None
    variables = f"vars: {{gate: {gate.pid}}}"
    write_project(thing_operator.folder, BLOCKS, f"{WATCH}\n{variables}")
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await world.wait_for(CONFIG_MAP, "begun", bool, PATIENCE)
    await world.delete(THING, "one")
    assert await world.find(THING, "one")
    gate.stdin.close()
    await gate.wait()
    await world.wait_until_gone(THING, "one", 20)
    assert len(thing_operator.messages("Reconcile succeeded", name="one")) == 2


async def test_a_finalizer_that_fails_says_so_and_is_retried_until_it_succeeds(
    world: World, thing_operator: Operator
) -> None:
    """The object stays with a condition that names the finalizer and the task; a mended role lets it go."""
    write_project(thing_operator.folder, FAILS, WATCH)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"), PATIENCE)
    await world.delete(THING, "one")
    thing = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Failure"), PATIENCE)
    expected = "Finalizer test.rolecall.dev/finalizer: Task 'Clean up': the cloud is away"
    assert condition(thing, "Failure")["message"] == expected
    await world.wait_for(THING, "one", lambda _obj: "retry 2" in causes(thing_operator), PATIENCE)
    write_role(thing_operator.folder, "- name: Do nothing\n  ansible.builtin.debug: {msg: fine}\n")
    await world.wait_until_gone(THING, "one", PATIENCE)


def causes(operator: Operator) -> list[str]:
    """Return why reconciles have started."""
    return [text for line in operator.messages("Reconcile started") for text in line["causes"]]
