"""The initial reconcile: when an operator starts, changed objects go before unchanged ones."""

from dataclasses import replace

import aiohttp

from tests.integration.conftest import wait_until_ready
from tests.integration.metrics import read
from tests.integration.operators import Operator
from tests.support.things import THING, write_project
from tests.support.world import TIMEOUT_SECONDS, World, eventually

NAMES = [f"thing-{number:02}" for number in range(20)]
TASKS = """
- name: Wait for the gate
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: gate
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: gate
  until: gate.resources | length > 0
  retries: 1000
  delay: 0.2
"""
MANIFEST = "{apiVersion: test.rolecall.dev/v1, kind: Thing, metadata: {name: NAME}, spec: {size: 1}}"
GATE = "{apiVersion: v1, kind: ConfigMap, metadata: {name: gate}}"


async def test_changed_objects_are_reconciled_before_unchanged_ones(world: World, thing_operator: Operator) -> None:
    """One was changed while no operator was running, one during the initial reconcile, and one is new."""
    arguments = ("--max-concurrent-runs=1", "--metrics-bind-address=127.0.0.1:0")
    operator = replace(thing_operator, arguments=arguments)
    write_project(operator.directory, TASKS)
    for name in NAMES:
        await world.create(MANIFEST.replace("NAME", name))
        await world.patch(THING, name, {"status": {"observedGeneration": 1}}, "status")
    await world.patch(THING, "thing-18", {"spec": {"size": 2}})
    operator.start()
    try:
        await wait_until_ready(operator)
        await wait_for_depths(operator, high=0, low=len(NAMES) - 1)
        await world.patch(THING, "thing-17", {"spec": {"size": 2}})
        await wait_for_depths(operator, high=1, low=len(NAMES) - 2)
        await world.create(MANIFEST.replace("NAME", "new"))
        await wait_for_depths(operator, high=2, low=len(NAMES) - 2)
        await world.create(GATE)
        expected = ["thing-18", "thing-17", "new", *NAMES[:17], "thing-19"]

        async def started() -> list[str]:
            return [line["name"] for line in operator.messages("Reconcile started")]

        await eventually(
            started, lambda names: names == expected, TIMEOUT_SECONDS, f"they start in this order: {expected}"
        )
    finally:
        operator.stop()


async def wait_for_depths(operator: Operator, *, high: int, low: int) -> None:
    """Wait until two priorities have so many waiting objects."""
    async with aiohttp.ClientSession() as session:

        async def depths() -> list[float]:
            found = await read(session, operator)
            controller = "thing-v1-controller"
            series = f'workqueue_depth{{controller="{controller}",name="{controller}",priority="%s"}}'
            return [found[series % priority] for priority in ("high", "low")]

        await eventually(
            depths, lambda seen: seen == [high, low], TIMEOUT_SECONDS, f"{high} urgent and {low} others wait"
        )
