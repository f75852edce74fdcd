"""Each failure of a run is reported in a condition, leaves no process or file, and is retried."""

import signal
from pathlib import Path

import psutil
import pytest

from rolecall.kube.references import RawObject
from rolecall.runner.runs.process_marks import processes_of_run
from rolecall.runner.runs.workspace import workspaces_of
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.things import MANIFEST, THING, write_project, write_role
from tests.support.world import CONFIG_MAP, EVENT, TIMEOUT_SECONDS, World, always, condition, eventually, is_true

pytestmark = pytest.mark.core

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
    "syntax-error": (
        "- name: Broken\n  ansible.builtin.debug: {msg: [}\n",
        "main.yml",
    ),
    "failing-task": (
        "- name: Give up\n  ansible.builtin.fail: {msg: no more coffee}\n",
        "Task 'Give up': no more coffee",
    ),
    "invalid-object": (
        """
- name: Ask in vain
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Service
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      spec: {ports: []}
""",
        " is invalid: spec.ports: Required value (422)",
    ),
}


REPORTS = "- name: Report\n  ansible.builtin.set_stats: {data: {small: 11}, aggregate: false}\n"
HUNGRY = "- name: Eat\n  ansible.builtin.command: python3 -c 'x = bytearray({{ size }} << 20)'\n"
REGISTERS = """
- name: Look
  ansible.builtin.command: echo safe {{ size }}
  register: found
- name: Believe it
  ansible.builtin.assert: {that: found.stdout == "safe 1"}
"""
OLDER = """
- name: Tell what arrived
  ansible.builtin.assert: {that: "quota == {'max_pods': 2, 'more': [{'cpu': 1}]}"}
"""
OLDER_SPECS = """
argument_specs:
  main:
    options:
      quota:
        type: dict
        options:
          max_pods: {type: int}
          more: {type: list, elements: dict, options: {cpu: {type: int}}}
"""
NEWER_OBJECT = {"quota": {"maxPods": 2, "storage": "1Gi", "more": [{"cpu": 1, "memory": 2}]}}
SHARED = Shared(
    {name: Role(tasks) for name, (tasks, _) in BROKEN.items()}
    | {
        "deaf": Role(IGNORES_TERM, "timeout: 8s"),
        "refused": Role(REPORTS, "status: {small: $.stats.small}"),
        "plain": Role(GOOD, "markUnsafe: true"),
        "hungry": Role(HUNGRY),
        "declared": Role(REGISTERS, "variables: declared"),
        "older": Role(OLDER),
    },
    arguments=("--backoff-min=4s", "--backoff-max=20s", "--run-memory-limit=400Mi", "--work-dir=FOLDER/runner"),
    files={
        "roles/declared/meta/argument_specs.yml": "argument_specs: {main: {options: {size: {type: int}}}}\n",
        "roles/older/meta/argument_specs.yml": OLDER_SPECS,
    },
)


async def no_processes(operator: Operator) -> None:
    """Wait until no process of the operator's runs is left."""

    async def look() -> list[psutil.Process]:
        return operator.job_processes()

    await eventually(look, lambda left: not left, TIMEOUT_SECONDS, "no process of a run is left")


def retried(thing: Thing) -> list[str]:
    """Return the marks of a Thing's runs but the last one, all of which have ended."""
    return [str(line["job"]) for line in thing.messages("Reconcile started")][:-1]


async def no_processes_of(thing: Thing) -> None:
    """Wait until no process of a Thing's runs but the last one is left."""

    async def look() -> list[psutil.Process]:
        return [process for job in retried(thing) for process in processes_of_run(job)]

    await eventually(look, lambda left: not left, TIMEOUT_SECONDS, "no process of a run is left")


@pytest.mark.parametrize("role", BROKEN)
async def test_broken_role_is_reported_and_recovers_when_fixed(world: World, things: Things, role: str) -> None:
    """The condition names the failed task and the reason; fixing the file fixes the object without a restart."""
    thing, text = things[role], BROKEN[role][1]
    await thing.create()

    def has_failed(obj: RawObject) -> bool:
        is_over = condition(obj, "Running").get("status") == "False"  # a retry keeps the condition Failure
        return is_over and is_true(obj, "Failure") and text in condition(obj, "Failure")["message"]

    found = await world.wait_for(thing.gvk, thing.name, has_failed)
    assert condition(found, "Successful")["status"] == "False"
    # After three failures the next retry is sixteen seconds away: healing before it is not the back-off's doing.
    await thing.runs_at_least(3)

    async def idle() -> bool:
        return thing.runs() == thing.ended()

    await eventually(idle, bool, TIMEOUT_SECONDS, "the last retry has ended")
    thing.write_role(GOOD)
    found = await thing.succeeds()
    assert condition(found, "Failure")["status"] == "False"
    assert thing.messages("Reconcile started")[-1]["causes"] == ["files of the role changed"]
    await eventually(idle, bool, TIMEOUT_SECONDS, "its run has ended")
    await no_processes_of(thing)


async def test_run_over_its_timeout_is_stopped_with_all_processes(things: Things) -> None:
    """The condition names the task and the limit; no process is left, a module that ignores SIGTERM included."""
    thing = things["deaf"]
    await thing.create()
    assert "8s" in condition(await thing.fails("Play deaf"), "Failure")["message"]  # a slow run may end before its task
    await thing.runs_at_least(2)
    await no_processes_of(thing)


async def _has_job_process(operator: Operator, name: str) -> bool:
    for process in operator.job_processes():
        try:
            if name in " ".join(process.cmdline()):
                return True
        except psutil.Error:
            continue
    return False


async def test_a_spec_cannot_make_ansible_run_a_program(things: Things, tmp_path: Path) -> None:
    """A variable that makes Ansible start programs fails the run before it starts; the object recovers without it."""
    thing, mark = things["plain"], tmp_path / "mark"
    await thing.create({"ansibleRemoteTmp": f"{tmp_path}/$(touch {mark})", "size": 1})
    await thing.fails("the spec sets ansible_remote_tmp, which Ansible itself acts on")
    assert not mark.exists()

    async def runs() -> int:
        return thing.runs()

    await always(runs, lambda count: count == 1, 4, "only another spec helps: there is no retry")
    await thing.patch({"spec": {"ansibleRemoteTmp": None}})
    await thing.succeeds()
    assert not mark.exists()


async def test_a_field_that_the_role_does_not_declare_overrides_nothing(things: Things) -> None:
    """An extra var would override the register of that name; ``variables: declared`` omits it."""
    thing = things["declared"]
    await thing.create({"size": 1, "found": {"stdout": "forged"}})
    await thing.succeeds()


async def test_object_with_too_many_values_fails_before_its_run_starts(things: Things) -> None:
    """A megabyte object would need a gigabyte of memory; the condition names the limit and the object recovers."""
    thing = things["plain"]
    await thing.create({"items": ["a"] * 250_000})
    await thing.fails("and a run takes at most 20,000")
    key, root = thing.world.key(thing.name), thing.operator.directory / "runner"
    assert key not in workspaces_of(root, thing.gvk)
    await thing.patch({"spec": {"items": ["a"]}})
    await thing.succeeds()
    assert key in workspaces_of(root, thing.gvk)


async def test_a_process_that_takes_too_much_memory_fails_its_run_only(things: Things) -> None:
    """The condition reports the exceeded memory limit and how to raise it; with less memory the object recovers."""
    thing = things["hungry"]
    await thing.create({"size": 600})
    found = await thing.fails("out of memory: a process of the run needed more than 400Mi")
    assert condition(found, "Failure")["message"].startswith("Task 'Eat': ")
    assert "--run-memory-limit" in condition(found, "Failure")["message"]
    await thing.patch({"spec": {"size": 100}})
    await thing.succeeds()


TAKES_SECONDS = "- name: Take four seconds\n  ansible.builtin.command: {argv: [sleep, '4']}\n  changed_when: false\n"


async def test_stop_lets_a_run_finish_and_reports_its_result(world: World, thing_operator: Operator) -> None:
    """SIGTERM while a finished object is reconciled by its period: the run ends by itself, and no condition changes."""
    write_project(thing_operator.directory, TAKES_SECONDS, "reconcilePeriod: 1s")
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Ready"))
    await eventually(lambda: _has_job_process(thing_operator, "sleep"), bool, TIMEOUT_SECONDS, "the next run works")
    assert thing_operator.stop() == 0
    thing = await world.get(THING, "one")
    assert condition(thing, "Running")["reason"] == "Successful"
    assert is_true(thing, "Ready")
    assert is_true(thing, "Successful")
    assert not is_true(thing, "Failure")


async def test_stop_interrupts_a_run_that_takes_too_long_and_keeps_the_last_result(
    world: World, thing_operator: Operator
) -> None:
    """The interruption is no failure: no Warning, Ready stays True, and the next operator runs the object first."""
    write_project(thing_operator.directory, GOOD)
    thing_operator.arguments = (*thing_operator.arguments, "--graceful-shutdown-timeout=16s")
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    before = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Ready"))
    write_role(thing_operator.directory, TAKES_SECONDS.replace("'4'", "'600'"))
    await world.patch(THING, "one", {"metadata": {"annotations": {"rolecall.dev/reconcile-requested-at": "now"}}})
    await eventually(lambda: _has_job_process(thing_operator, "sleep"), bool, TIMEOUT_SECONDS, "the long run works")
    assert thing_operator.stop() == 0
    await no_processes(thing_operator)
    thing = await world.get(THING, "one")
    assert condition(thing, "Running")["reason"] == "Interrupted"
    assert "operator is stopping" in condition(thing, "Running")["message"]
    for kind in ("Ready", "Stalled", "Failure", "Successful"):
        assert condition(thing, kind) == condition(before, kind)
    events = await world.objects(EVENT)
    assert [event for event in events if event["type"] == "Warning"] == []


async def test_nothing_is_left_and_nothing_written_after_a_kill(world: World, thing_operator: Operator) -> None:
    """After SIGKILL of the operator its plays end, the secret is invalid, and the next operator continues."""
    tasks = IGNORES_TERM + WRITES_LATE
    write_project(thing_operator.directory, tasks)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await eventually(lambda: _has_job_process(thing_operator, "SIG_IGN"), bool, TIMEOUT_SECONDS, "the module runs")
    thing_operator.kill()
    await no_processes(thing_operator)
    assert await world.find(CONFIG_MAP, "late") is None
    write_role(thing_operator.directory, GOOD)
    thing_operator.start()
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))


async def test_mapped_value_rejected_by_the_schema_does_not_hide_conditions(things: Things) -> None:
    """The conditions are written without it, and the message reports the reason."""
    await things["refused"].create()
    thing = await things["refused"].succeeds()
    assert "status.small" in condition(thing, "Successful")["message"]
    assert "small" not in thing["status"]


async def test_second_signal_ends_the_operator_immediately(world: World, thing_operator: Operator) -> None:
    """A user who presses Ctrl-C twice does not wait for the grace period."""
    write_project(thing_operator.directory, IGNORES_TERM)
    thing_operator.arguments = (*thing_operator.arguments, "--graceful-shutdown-timeout=600s")
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await eventually(lambda: _has_job_process(thing_operator, "SIG_IGN"), bool, TIMEOUT_SECONDS, "the module runs")
    thing_operator.signal(signal.SIGINT)
    await eventually(lambda: _said(thing_operator, "Stopping"), bool, TIMEOUT_SECONDS, "the first signal is heard")
    thing_operator.signal(signal.SIGINT)
    assert thing_operator.wait(60) in (0, 1)
    await no_processes(thing_operator)


async def _said(operator: Operator, message: str) -> bool:
    return bool(operator.messages(message))


async def test_object_of_a_newer_version_is_reconciled_by_an_older_role(world: World, things: Things) -> None:
    """Ansible rejects nested options that a role doesn't declare: a rollback would break every object."""
    thing = things["older"]
    await thing.create(NEWER_OBJECT)
    found = await thing.succeeds()
    assert is_true(found, "Ready")
    assert "spec.quota.more[].memory, spec.quota.storage" in condition(found, "Successful")["message"]

    async def warnings() -> list[str]:
        events = [each for each in await world.objects(EVENT) if each["reason"] == "FieldsLeftOut"]
        return [each["message"] for each in events if each["involvedObject"]["kind"] == thing.gvk.kind]

    [message] = await eventually(warnings, bool, TIMEOUT_SECONDS, "there is an Event")
    assert "spec.quota.more[].memory, spec.quota.storage" in message
