"""A condition that neither the operator nor a run has written never changes, regardless of the runs."""

from rolecall.kube.references import GVK
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, THING, WATCH, write_role
from tests.support.world import POD, TIMEOUT_SECONDS, World, condition, eventually, is_true

SLICE = GVK("discovery.k8s.io", "v1", "EndpointSlice")
SERVED = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: web, image: nginx}]}
"""
SINCE = "2026-01-01T12:00:00Z"
BOOM = "- name: Boom\n  ansible.builtin.fail: {msg: no more coffee}\n"
REPORTS = """
- name: Boom
  ansible.builtin.fail: {msg: no more coffee}
  when: size == 13
- name: Report
  rolecall.util.k8s_status:
    api_version: test.rolecall.dev/v1
    kind: Thing
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    conditions: [{type: Ready, status: "True", reason: Serving, message: fine}]
"""


async def test_failing_role_does_not_take_a_pod_out_of_service(world: World, thing_operator: Operator) -> None:
    (thing_operator.directory / "watches.yaml").write_text("- {version: v1, kind: Pod, role: thing}\n")
    write_role(thing_operator.directory, BOOM)

    async def ready_endpoints() -> int:
        found = [each for each in await world.objects(SLICE) if each.get("endpoints")]
        return sum(each["conditions"]["ready"] for slice_ in found for each in slice_["endpoints"])

    await world.wait_until_pods_are_allowed()
    await world.create(SERVED)
    await eventually(ready_endpoints, lambda found: found == 1, TIMEOUT_SECONDS, "the pod serves")
    ready = condition(await world.get(POD, "web"), "Ready")
    thing_operator.start()
    await world.wait_for(POD, "web", lambda pod: is_true(pod, "Failure"))
    await eventually(
        lambda: _failures(thing_operator), lambda count: count >= 3, TIMEOUT_SECONDS, "the role has failed three times"
    )
    pod = await world.get(POD, "web")
    assert condition(pod, "Ready") == ready
    assert {"Reconciling", "Stalled"}.isdisjoint(each["type"] for each in pod["status"]["conditions"])
    assert await ready_endpoints() == 1
    [warning] = thing_operator.messages("The status of a built-in kind is managed")
    assert "set manageStatus to false" in warning["reason"]


async def _failures(operator: Operator) -> int:
    return len(operator.messages("Reconcile failed"))


async def test_failed_run_replaces_only_a_ready_that_a_run_has_written(world: World, thing_operator: Operator) -> None:
    operator = thing_operator
    (operator.directory / "watches.yaml").write_text(WATCH)
    write_role(operator.directory, REPORTS)
    await world.create(MANIFEST.replace("size: 1", "size: 13"))
    issued = {"type": "Ready", "status": "True", "reason": "Issued", "message": "", "lastTransitionTime": SINCE}
    await world.patch(THING, "one", {"status": {"conditions": [issued]}}, "status")
    await world.create(MANIFEST.replace("one", "two"))
    operator.start()
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Failure"))
    await world.wait_for(THING, "two", lambda obj: is_true(obj, "Successful"))
    assert operator.stop() == 0
    operator.log_file.unlink()

    operator.start()
    await wait_until_ready(operator)
    await world.patch(THING, "one", {"spec": {"more": 1}})
    await world.patch(THING, "two", {"spec": {"size": 13}})
    for name in ("one", "two"):
        await world.wait_for(THING, name, lambda obj: obj["status"]["observedGeneration"] == 2)
    assert condition(await world.get(THING, "one"), "Ready") == issued
    assert condition(await world.get(THING, "two"), "Ready")["reason"] == "RunFailed"
