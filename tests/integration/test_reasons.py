"""The log and Kubernetes Events say why a reconcile started and what failed (issue 5, item 3)."""

from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, THING, write_project, write_role
from tests.support.world import CONFIG_MAP, EVENT, TIMEOUT_SECONDS, World, condition, eventually, is_true

MAKES_A_DEPENDENT = """
- name: Make a dependent
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: made, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "size {{ size }}"}
"""
FAILS = "- name: Give up\n  ansible.builtin.fail: {msg: no more coffee}\n"


async def events(world: World) -> list[tuple[str, str, str, int]]:
    """Return type, reason, message and count of the Events about the Thing."""
    found = [event for event in await world.objects(EVENT) if event["involvedObject"]["kind"] == "Thing"]
    return [(event["type"], event["reason"], event["message"], event["count"]) for event in found]


async def told(world: World, kind: str, reason: str, message: str) -> None:
    """Wait for an Event."""

    def is_told(found: list[tuple[str, str, str, int]]) -> bool:
        return (kind, reason, message) in {event[:3] for event in found}

    await eventually(lambda: events(world), is_told, TIMEOUT_SECONDS, f"an Event {reason}: {message}")


async def cause(operator: Operator, text: str) -> None:
    """Wait until a reconcile has started for this cause."""

    async def look() -> list[str]:
        return [cause for line in operator.messages("Reconcile started") for cause in line["causes"]]

    await eventually(look, lambda causes: text in causes, TIMEOUT_SECONDS, f"a reconcile because of {text!r}")


async def test_the_reasons_are_told(world: World, thing_operator: Operator) -> None:
    """The object and its changed fields, the failure with its task, the number of retries, and the recovery."""
    write_project(thing_operator.directory, MAKES_A_DEPENDENT)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    started_by = "1 task changed something; started by"
    await told(world, "Normal", "Reconciled", f"{started_by} Thing {world.namespace}/one created")
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))
    await world.patch(THING, "one", {"spec": {"size": 2}})
    await cause(thing_operator, f"Thing {world.namespace}/one: spec.size (generation 2)")
    await world.wait_for(CONFIG_MAP, "made", lambda obj: obj["data"]["size"] == "size 2")
    await world.patch(CONFIG_MAP, "made", {"data": {"size": "9"}})
    drift = f"dependent ConfigMap {world.namespace}/made: data.size"
    await cause(thing_operator, drift)
    await told(world, "Normal", "Reconciled", f"{started_by} {drift}")

    write_role(thing_operator.directory, FAILS)
    await world.patch(THING, "one", {"spec": {"size": 3}})
    because = f"Thing {world.namespace}/one: spec.size (generation 3)"
    await told(world, "Warning", "ReconcileFailed", f"Task 'Give up': no more coffee; started by {because}")
    await cause(thing_operator, "retry 2")

    async def retries() -> list[int]:
        return [count for _, _, message, count in await events(world) if message == "Task 'Give up': no more coffee"]

    await eventually(
        retries, lambda counts: counts and counts[0] >= 2, TIMEOUT_SECONDS, "retries are one Event with a count"
    )
    assert len(await retries()) == 1
    write_role(thing_operator.directory, MAKES_A_DEPENDENT)
    await told(world, "Normal", "ReconcileRecovered", "Reconciled after a failure")


IS_DENIED = """
- name: Make a Secret
  kubernetes.core.k8s:
    impersonate_user: nobody
    impersonate_groups: [system:authenticated]
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: made, namespace: "{{ ansible_operator_meta.namespace }}"}
      stringData: {password: s3cret}
  no_log: true
"""


async def test_denied_request_of_a_hidden_task_is_named(world: World, thing_operator: Operator) -> None:
    write_project(thing_operator.directory, IS_DENIED)
    thing_operator.start()
    await world.create(MANIFEST)
    thing = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Failure"))
    hidden = "Task 'Make a Secret': hidden, because the task says no_log"
    assert (
        condition(thing, "Failure")["message"]
        == f"{hidden}; the API server rejected its last request with 403: get secrets"
    )


HANDLES_ERRORS = """
- name: Write the status of an object that doesn't exist
  operator_sdk.util.k8s_status:
    {api_version: test.rolecall.dev/v1, kind: Thing, name: missing, namespace: default, status: {a: 1}}
  register: missing
  ignore_errors: true
- name: Write the status of a kind that isn't served
  operator_sdk.util.k8s_status: {api_version: e.com/v1, kind: Absent, name: a, namespace: default, status: {a: 1}}
  register: absent
  ignore_errors: true
- name: Write an invalid status
  operator_sdk.util.k8s_status:
    api_version: test.rolecall.dev/v1
    kind: Thing
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status: {small: 11}
  register: invalid
  ignore_errors: true
- name: Check the failures
  ansible.builtin.assert:
    that:
      - missing.msg == 'Failed to retrieve requested object'
      - missing.error.status == 404
      - missing.error.reason == 'Not Found'
      - "'missing' in missing.error.body | string"
      - absent.msg is match('Failed to find exact match for e.com/v1.Absent by')
      - invalid.msg is match('Failed to replace status')
      - invalid.error.status == 422
- name: Post an event about a kind that isn't served
  operator_sdk.util.k8s_event:
    name: told
    namespace: "{{ ansible_operator_meta.namespace }}"
    reason: Told
    message: fine
    involvedObject:
      {apiVersion: e.com/v1, kind: Absent, name: a, namespace: "{{ ansible_operator_meta.namespace }}"}
"""


async def test_modules_fail_with_the_messages_of_the_operator_sdk(world: World, thing_operator: Operator) -> None:
    write_project(thing_operator.directory, HANDLES_ERRORS)
    thing_operator.start()
    await world.create(MANIFEST)
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))
    event = await world.get(EVENT, "told")
    assert (event["reason"], event["involvedObject"]["kind"]) == ("Told", "Absent")
