"""An operator stays within its limits however often it reconciles: what grows with runs is counted in runs."""

from dataclasses import replace

import psutil

from rolecall.runner.runs.disk_space import size_on_disk
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.support.things import THING, write_project
from tests.support.world import TIMEOUT_SECONDS, World, condition, eventually, is_true

OBJECTS, RUNS = 6, 90
BUDGET_BYTES = 3 << 20
MEMORY_BYTES = 16 << 20
TASKS = """
- name: Say much
  ansible.builtin.debug: {msg: "{{ 'x' * 20000 }}"}
- name: Fail sometimes
  ansible.builtin.fail: {msg: "as asked"}
  when: fails | default(false)
"""
MANIFEST = """
apiVersion: test.rolecall.dev/v1
kind: Thing
metadata:
  name: "NAME"
  annotations:
    ansible.sdk.operatorframework.io/reconcile-period: 1ms
    ansible.sdk.operatorframework.io/max-runner-artifacts: "0"
spec: {fails: FAILS}
"""


async def _runs(operator: Operator, count: int) -> None:
    async def look() -> int:
        assert operator.is_ready()
        return len(operator.messages("Reconcile succeeded"))

    await eventually(look, lambda found: found >= count, TIMEOUT_SECONDS, f"{count} runs have succeeded")


async def test_disk_and_memory_do_not_grow_with_runs(world: World, thing_operator: Operator) -> None:
    """Objects that request a run every millisecond and keep all artifacts fill neither disk nor memory."""
    work = thing_operator.directory / "work"
    flags = (f"--work-dir={work}", f"--max-artifacts-size={BUDGET_BYTES}", "--backoff-max=1s")
    operator = replace(thing_operator, arguments=flags)
    write_project(operator.directory, TASKS)
    operator.start()
    try:
        await wait_until_ready(operator)
        for number in range(OBJECTS):
            fails = "true" if number == 0 else "false"
            await world.create(MANIFEST.replace("NAME", f"thing-{number}").replace("FAILS", fails))
        await _runs(operator, RUNS // 3)
        assert operator.process is not None
        before = psutil.Process(operator.process.pid).memory_full_info().uss
        await _runs(operator, RUNS)
        grown = psutil.Process(operator.process.pid).memory_full_info().uss - before
        assert operator.messages("Removed old artifacts: total size exceeds --max-artifacts-size")
        failed = await world.get(THING, "thing-0")
        assert "as asked" in condition(failed, "Failure")["message"]
        await world.wait_for(THING, "thing-1", lambda obj: is_true(obj, "Successful"))
    finally:
        assert operator.stop() == 0
    # Runs that were ended with the operator are in it too; links and directories count.
    assert sum(size_on_disk(directory) for directory in work.rglob("artifacts")) <= BUDGET_BYTES * 1.2
    assert grown < MEMORY_BYTES
