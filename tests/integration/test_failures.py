"""Whatever goes wrong with a run ends in an honest condition, nothing left behind, and a retry (design 3.1 and 3.4)."""

import signal
import time

import psutil
import pytest

from rolecall.kube.references import RawObject
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.integration.things import MANIFEST, THING, write_project, write_role
from tests.integration.world import CONFIG_MAP, World, condition, eventually, is_true

PATIENCE = 60.0
GOOD = "- name: Do nothing\n  ansible.builtin.debug: {msg: fine}\n"

IGNORES_TERM = """
- name: Play deaf
  ansible.builtin.command:
    argv:
      - python3
      - -c
      - |
        import signal, threading
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Event().wait()
"""

WRITES_LATE = """
- name: Write afterwards
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: late, namespace: "{{ ansible_operator_meta.namespace }}"}
"""

BROKEN = {
    "syntax error": (
        "- name: Broken\n  ansible.builtin.debug: {msg: [}\n",
        "main.yml",
    ),
    "failing task": (
        "- name: Give up\n  ansible.builtin.fail: {msg: no more coffee}\n",
        "Task 'Give up': no more coffee",
    ),
    "undefined variable": (
        '- name: Ask for more\n  ansible.builtin.debug: {msg: "{{ nowhere.to_be.found }}"}\n',
        "nowhere",
    ),
    "unreachable host": (
        "- name: Call far away\n  ansible.builtin.ping:\n  delegate_to: far.invalid\n  connection: ssh\n",
        "Call far away",
    ),
    "unknown module": (
        "- name: Use what is not there\n  no.such.module: {}\n",
        "no.such.module",
    ),
}


async def failed(world: World, text: str, within: float = PATIENCE) -> RawObject:
    """Wait until the Thing has a Failure condition with this text."""

    def holds(obj: RawObject) -> bool:
        return is_true(obj, "Failure") and text in condition(obj, "Failure")["message"]

    return await world.wait_for(THING, "one", holds, within)


async def no_processes(operator: Operator) -> None:
    """Wait until no process of the operator's runs is left."""

    async def look() -> list[psutil.Process]:
        return operator.job_processes()

    await eventually(look, lambda left: not left, 15, "no process of a run is left")


@pytest.mark.parametrize(("tasks", "text"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_role_is_told_and_heals_when_it_is_mended(
    world: World, thing_operator: Operator, tasks: str, text: str
) -> None:
    """The condition says which task failed and why; mending the file heals the object at once, without a restart."""
    write_project(thing_operator.folder, tasks)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    thing = await failed(world, text)
    assert condition(thing, "Running").get("status") == "False"
    assert condition(thing, "Successful")["status"] == "False"

    async def runs() -> int:
        return thing_operator.runs("Thing", "one")

    # After three failures the next retry is eight seconds away: healing within five is not the back-off's doing.
    await eventually(runs, lambda count: count >= 4, PATIENCE, "retries")
    await eventually(
        lambda: _idle(thing_operator), bool, PATIENCE, "the last retry has ended"
    )  # fmt: skip
    write_role(thing_operator.folder, GOOD)
    mended = time.monotonic()
    thing = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"), PATIENCE)
    assert condition(thing, "Failure")["status"] == "False"
    causes = thing_operator.messages("Reconcile started")[-1]["causes"]
    assert causes == ["files of the role changed"], f"healed after {time.monotonic() - mended:.1f} s by {causes}"
    await no_processes(thing_operator)


async def _idle(operator: Operator) -> bool:
    return len(operator.messages("Reconcile failed")) == operator.runs("Thing", "one")


@pytest.mark.parametrize(
    "tasks",
    ["- name: Sleep\n  ansible.builtin.command: sleep 1000\n", IGNORES_TERM],
    ids=["sleeping module", "module that ignores SIGTERM"],
)
async def test_a_run_over_its_timeout_is_ended_with_everything(
    world: World, thing_operator: Operator, tasks: str
) -> None:
    """The condition names the task and the limit; no process is left, a module that ignores SIGTERM included."""
    write_project(thing_operator.folder, tasks, "timeout: 4s")
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    thing = await failed(world, "4s")
    task = "Sleep" if "Sleep" in tasks else "Play deaf"
    assert task in condition(thing, "Failure")["message"]
    await eventually(lambda: _runs(thing_operator), lambda count: count >= 2, PATIENCE, "a retry")
    assert thing_operator.stop() == 0
    await no_processes(thing_operator)


async def _runs(operator: Operator) -> int:
    return operator.runs("Thing", "one")


async def _has_job_process(operator: Operator, name: str) -> bool:
    for process in operator.job_processes():
        try:
            if name in " ".join(process.cmdline()):
                return True
        except psutil.Error:
            continue
    return False


async def test_a_stop_ends_running_plays_and_says_so(world: World, thing_operator: Operator) -> None:
    """SIGTERM: exit code 0 within the grace period, no process left, an honest condition instead of Running."""
    write_project(thing_operator.folder, IGNORES_TERM)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await eventually(lambda: _has_job_process(thing_operator, "SIG_IGN"), bool, PATIENCE, "the module runs")
    started = time.monotonic()
    assert thing_operator.stop() == 0
    assert time.monotonic() - started < 25
    await no_processes(thing_operator)
    thing = await world.get(THING, "one")
    assert "operator is stopping" in condition(thing, "Failure")["message"]
    assert condition(thing, "Running")["status"] == "False"


async def test_nothing_is_left_and_nothing_written_after_a_kill(world: World, thing_operator: Operator) -> None:
    """SIGKILL of the operator: its plays end, the secret is worthless, and the next operator carries on."""
    tasks = IGNORES_TERM + WRITES_LATE
    write_project(thing_operator.folder, tasks)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await eventually(lambda: _has_job_process(thing_operator, "SIG_IGN"), bool, PATIENCE, "the module runs")
    thing_operator.kill()
    await no_processes(thing_operator)
    assert await world.find(CONFIG_MAP, "late") is None
    write_role(thing_operator.folder, GOOD)
    thing_operator.start()
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"), PATIENCE)


async def test_a_play_that_is_killed_is_a_failure_and_is_retried(world: World, thing_operator: Operator) -> None:
    """A run that somebody kills (the kernel, say) is no stuck status."""
    tasks = (
        "- name: Die\n  ansible.builtin.shell: 'kill -9 $PPID; sleep 60'\n  when: not (lookup('env', 'HOME') is none)\n"
    )
    write_project(thing_operator.folder, tasks)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Failure"), PATIENCE)
    await eventually(lambda: _runs(thing_operator), lambda count: count >= 2, PATIENCE, "a retry")


async def test_a_mapped_value_that_the_schema_refuses_does_not_hide_the_conditions(
    world: World, thing_operator: Operator
) -> None:
    """The conditions are written without it, and the message says why."""
    tasks = "- name: Report\n  ansible.builtin.set_stats: {data: {small: 11}, aggregate: false}\n"
    write_project(thing_operator.folder, tasks, "status: {small: $.stats.small}")
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    thing = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"), PATIENCE)
    assert "status.small" in condition(thing, "Successful")["message"]
    assert "small" not in thing["status"]


async def test_a_second_signal_ends_the_operator_at_once(world: World, thing_operator: Operator) -> None:
    """Somebody who presses Ctrl-C twice does not wait for the grace period."""
    write_project(thing_operator.folder, IGNORES_TERM)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await eventually(lambda: _has_job_process(thing_operator, "SIG_IGN"), bool, PATIENCE, "the module runs")
    thing_operator.signal(signal.SIGINT)
    await eventually(lambda: _said(thing_operator, "Stopping"), bool, 10, "the first signal is heard")
    thing_operator.signal(signal.SIGINT)
    assert thing_operator.wait(5) in (0, 1)
    await no_processes(thing_operator)


async def _said(operator: Operator, message: str) -> bool:
    return bool(operator.messages(message))
