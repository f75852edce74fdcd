"""Plays of a real ansible-runner, as the operator starts them, cold and warm; no cluster is needed."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest
import pytest_asyncio

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import PlaybookContent, RoleContent
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.memory import MemoryGuard
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.process import ColdStarter, ProcessRunner, RunSpec, new_ident
from rolecall.runner.runs.process_marks import RUNNER_MODULE, kill_run_processes, processes_of_run
from rolecall.runner.runs.run import RunEnvironment
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm.starter import ForkserverStarter
from rolecall.system.control_groups import ContainerMemory, ControlGroup
from rolecall.system.processes import reap_children

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]

# No test waits for these five minutes: a module that a failed test leaves behind ends after them.
STUBBORN = """
#!/usr/bin/python
import signal, time
from ansible.module_utils.basic import AnsibleModule
signal.signal(signal.SIGTERM, signal.SIG_IGN)
AnsibleModule({})
time.sleep(300)
"""
SLEEP = "- name: Sleep\n  ansible.builtin.command: sleep 300\n"
IGNORE = "- name: Ignore\n  stubborn:\n"
WARM_ONLY = pytest.mark.parametrize("runner", ["warm"], indirect=True)
"""For rules that are independent of how a run starts, by design or as the parity suite shows."""
SECRET = "s3cret-of-this-run"  # noqa: S105 - the value that must not be found anywhere


class Bench:
    """One object's workspace, roles made from text, and a runner."""

    def __init__(self, directory: Path, runner: ProcessRunner) -> None:
        self.directory = directory
        self.runner = runner
        self.workspace = Workspace(
            directory / "runner", GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample")
        )
        self.events: list[RunEvent] = []

    def role(self, tasks: str, name: str = "foo", **modules: str) -> RoleContent:
        """Write a role with these tasks and modules of its own."""
        role = self.directory / "roles" / name
        for module, text in modules.items():
            (role / "library").mkdir(parents=True, exist_ok=True)
            (role / "library" / f"{module}.py").write_text(text.lstrip())
        (role / "tasks").mkdir(parents=True, exist_ok=True)
        (role / "tasks" / "main.yml").write_text(dedent(tasks))
        return RoleContent(role)

    def playbook(self, text: str) -> PlaybookContent:
        """Write a playbook."""
        path = self.directory / "site.yml"
        path.write_text(dedent(text))
        return PlaybookContent(path)

    def job(
        self, content: RoleContent | PlaybookContent, variables: Mapping[str, Any] | None = None, **inputs: Any
    ) -> RunSpec:
        """Prepare the workspace for a run; ``inputs`` are those of ``Workspace.prepare``."""
        ident = new_ident()
        self.workspace.prepare(ident, variables or {}, **inputs)
        return RunSpec(ident, self.workspace, content, grace_seconds=0.5)

    async def run(self, content: RoleContent | PlaybookContent, variables: Mapping[str, Any] | None = None) -> Outcome:
        """Run to the end; events are kept."""
        return await self.runner.run(self.job(content, variables), self.events.append)

    def has_started(self, task: str) -> bool:
        """Return whether the event of a task's start has arrived, which may be later than its module runs."""
        return any(event.task == task for event in self.events)

    def files(self) -> list[Path]:
        """Return every file of the workspace."""
        return [path for path in self.workspace.path.rglob("*") if path.is_file()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm() -> AsyncIterator[ProcessRunner]:
    """Yield a warm runner, whose server starts with the environment that its runs have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_GATHERING", "explicit")
        patch.delenv("ANSIBLE_INVENTORY", raising=False)
        async with ready_starter() as starter:
            yield ProcessRunner(starter)


@asynccontextmanager
async def ready_starter(*contents: Path) -> AsyncIterator[ForkserverStarter]:
    """Yield a starter whose server is ready: runs start cold while one gets no CPU on a busy machine."""
    async with ForkserverStarter(contents) as starter:
        assert starter.server
        await starter.server.ready
        yield starter


@pytest.fixture(params=["cold", "warm"])
def runner(request: pytest.FixtureRequest, warm: ProcessRunner) -> ProcessRunner:
    """Return a runner of each kind."""
    reap_children()  # operators that tests have killed have left some to this process
    return warm if request.param == "warm" else ProcessRunner(ColdStarter())


@pytest.fixture
def bench(runner: ProcessRunner, tmp_path: Path) -> Bench:
    return Bench(tmp_path, runner)


async def until(condition: Callable[[], bool], seconds: float = 240) -> None:
    """Poll until a condition of the system holds, which has no notification.

    The limit is less than the five minutes after which the processes of these tests end by themselves.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        await asyncio.sleep(0.02)


def has_module(ident: str) -> bool:
    """Whether a module of a run is running: a process with its own session below the playbook."""
    return any(_is_module(process) for process in processes_of_run(ident))


def zombies() -> list[psutil.Process]:
    """Return unreaped children of this process."""
    return [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]


def _play_of(ident: str) -> psutil.Process:
    return next(process for process in processes_of_run(ident) if RUNNER_MODULE in process.cmdline())


def _has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _is_module(process: psutil.Process) -> bool:
    try:
        command = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    return "sleep" in command or any("AnsiballZ_stubborn" in part for part in command)


@WARM_ONLY
async def test_a_role_runs_with_its_variables(bench: Bench) -> None:
    role = bench.role("""
        - name: Say
          ansible.builtin.debug: {msg: "size {{ size }} in {{ ansible_operator_meta.name }}"}
        - name: Leave something
          ansible.builtin.set_stats: {aggregate: false, data: {pods: 3}}
    """)
    summary = await bench.run(role, {"size": 3, "ansible_operator_meta": {"name": "x"}})
    assert summary.is_successful
    assert summary.counts.ok == 2
    assert summary.stats == {"pods": 3}
    assert [event.message for event in bench.events if event.action == "ansible.builtin.debug"][-1] == "size 3 in x"


@WARM_ONLY
async def test_facts_are_gathered_for_roles_unless_gathering_is_explicit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = bench.role("- ansible.builtin.debug:\n")
    await bench.run(role)
    assert "Gathering Facts" not in {event.task for event in bench.events}
    monkeypatch.delenv("ANSIBLE_GATHERING")
    await bench.run(role)
    assert "Gathering Facts" in {event.task for event in bench.events}


@WARM_ONLY
async def test_a_playbook_runs_where_it_lies(bench: Bench) -> None:
    (bench.directory / "vars.yml").write_text("word: found")
    playbook = bench.playbook("""
        - hosts: localhost
          gather_facts: false
          vars_files: [vars.yml]
          tasks:
            - ansible.builtin.debug: {msg: "{{ word }} {{ playbook_dir }}"}
    """)
    assert (await bench.run(playbook)).is_successful
    assert f"found {bench.directory}" in {event.message for event in bench.events}
    command = json.loads((bench.workspace.path / "artifacts/latest/command").read_text())
    assert command["cwd"] == str(bench.workspace.path / "project")


@WARM_ONLY
async def test_words_of_ansible_args_and_verbosity_reach_ansible(bench: Bench) -> None:
    role = bench.role("- ansible.builtin.debug: {msg: '{{ ansible_check_mode }} {{ ansible_verbosity }} {{ mine }}'}\n")
    job = replace(bench.job(role, {"mine": "object"}, cmdline="--check -e mine=args"), verbosity=3)
    await bench.runner.run(job, bench.events.append)
    assert "True 3 object" in {event.message for event in bench.events}


@WARM_ONLY
async def test_a_failing_task_is_named_and_a_rescued_one_is_not(bench: Bench) -> None:
    role = bench.role("""
        - block:
            - name: Rescued
              ansible.builtin.fail: {msg: never mind}
          rescue:
            - ansible.builtin.debug:
        - name: Ignored
          ansible.builtin.fail: {msg: never mind}
          ignore_errors: true
        - name: Loop
          ansible.builtin.command: sh -c 'echo item {{ item }} >&2; exit {{ item }}'
          loop: [0, 3, 4]
    """)
    summary = await bench.run(role)
    assert summary.status == "failed"
    assert summary.message == "Task 'Loop': non-zero return code 3: item 3"
    assert summary.counts.failures == 1


@WARM_ONLY
async def test_a_syntax_error_is_named_with_file_and_line(bench: Bench) -> None:
    role = bench.role('- name: A\n  ansible.builtin.debug: {msg: "a"\n')
    summary = await bench.run(role)
    assert summary.status == "failed"
    assert "YAML" in summary.message
    assert re.search(rf"{role.path}/tasks/main\.yml(:|': line )[1-3]\b", summary.message), summary.message


@WARM_ONLY
async def test_an_unknown_module_is_named(bench: Bench) -> None:
    assert "nosuchmodule" in (await bench.run(bench.role("- nosuchmodule:\n"))).message


@WARM_ONLY
async def test_a_missing_role_is_named(bench: Bench) -> None:
    assert "gone" in (await bench.run(RoleContent(bench.directory / "roles" / "gone"))).message


@WARM_ONLY
async def test_an_undefined_variable_is_named_with_its_task(bench: Bench) -> None:
    summary = await bench.run(bench.role('- name: Say\n  ansible.builtin.debug: {msg: "{{ nope.x }}"}\n'))
    assert summary.message.startswith("Task 'Say': ")
    assert "'nope' is undefined" in summary.message


@WARM_ONLY
async def test_an_unreachable_host_is_a_failure(bench: Bench) -> None:
    role = bench.role("""
        - name: Go there
          ansible.builtin.ping:
          delegate_to: 127.0.0.9
          vars: {ansible_connection: ssh, ansible_port: 1}
    """)
    summary = await bench.run(role)
    assert summary.message.startswith("Task 'Go there': unreachable: ")


@WARM_ONLY
async def test_no_log_values_are_in_no_output(bench: Bench) -> None:
    role = bench.role("""
        - name: Quiet
          ansible.builtin.fail: {msg: "s3cret-in-message"}
          no_log: true
    """)
    summary = await bench.run(role)
    assert summary.message == "Task 'Quiet': hidden, because the task says no_log"
    assert "s3cret-in-message" not in "".join(event.to_json() for event in bench.events)


@pytest.mark.parametrize("loop", ["", "\n          loop: [1]"], ids=["task", "loop"])
async def test_failure_with_a_large_result_has_its_message(bench: Bench, loop: str) -> None:
    role = bench.role(f"""
        - name: Print
          ansible.builtin.command:
            argv: [python3, -c, "import sys; print('x' * 900000, '=> {{}}'); sys.exit('no more => {{coffee}}')"]{loop}
    """)
    summary = await bench.run(role)
    assert summary.message == "Task 'Print': non-zero return code 1: no more => {coffee}"


async def test_large_message_of_a_module_is_reported(bench: Bench) -> None:
    role = bench.role("""
        - name: Give up
          ansible.builtin.fail: {msg: "{{ 'no more coffee ' * 60000 }}"}
    """)
    assert (await bench.run(role)).message.startswith("Task 'Give up': no more coffee no more coffee")


async def test_a_secret_reaches_the_play_and_no_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANSIBLE_GATHERING")
    role = bench.role("""
        - name: See it
          ansible.builtin.assert: {that: "lookup('env', 'ROLECALL_RUN_SECRET') | length == length"}
        - name: Tell it
          ansible.builtin.debug: {msg: "{{ ansible_env.ROLECALL_RUN_SECRET }}"}
        - name: Tell it by a command
          ansible.builtin.command: env
    """)
    job = replace(
        bench.job(role, {"length": len(SECRET)}),
        environment=RunEnvironment(secrets={"ROLECALL_RUN_SECRET": SECRET}),
        verbosity=4,
    )
    summary = await bench.runner.run(job, bench.events.append)
    assert summary.message == ""
    assert [path for path in bench.files() if SECRET in path.read_text(errors="replace")] == []
    assert SECRET not in "".join(event.to_json() for event in bench.events)


async def test_the_environment_of_the_operator_is_in_no_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    await bench.run(bench.role("- ansible.builtin.debug:\n"))
    assert [path for path in bench.files() if SECRET in path.read_text(errors="replace")] == []


async def test_the_way_of_the_operator_to_the_cluster_is_not_inherited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8S_AUTH_CONTEXT", "admin")
    role = bench.role("""- ansible.builtin.debug: {msg: "<{{ lookup('env', 'K8S_AUTH_CONTEXT') }}>"}""")
    await bench.run(role)
    assert "<>" in {event.message for event in bench.events}


@WARM_ONLY
async def test_a_process_that_cannot_be_started_is_a_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(bench.directory / "no-python"))
    bench.runner = ProcessRunner(ColdStarter())
    summary = await bench.run(bench.role("- ansible.builtin.debug:\n"))
    assert summary.status == "error"
    assert "cannot start a process for the run" in summary.message


async def test_run_over_its_timeout_is_stopped(bench: Bench) -> None:
    job = replace(bench.job(bench.role(SLEEP)), timeout_seconds=10)
    summary = await bench.runner.run(job, bench.events.append)
    assert summary.status == "timeout"
    assert summary.message.endswith("the run took longer than its timeout of 10s and was stopped")
    assert processes_of_run(job.ident) == []
    assert (bench.workspace.path / "artifacts/latest").resolve().name == job.ident


@pytest.mark.parametrize("tasks", [SLEEP, IGNORE])
async def test_canceled_run_leaves_no_process(bench: Bench, tasks: str) -> None:
    job = bench.job(bench.role(tasks, stubborn=STUBBORN))
    run = asyncio.create_task(bench.runner.run(job, bench.events.append))
    await until(lambda: has_module(job.ident))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert processes_of_run(job.ident) == []
    assert zombies() == []
    assert not bench.workspace.temporary.exists()


async def test_run_canceled_during_its_start_leaves_no_process(bench: Bench) -> None:
    job = bench.job(bench.role(SLEEP))
    run = asyncio.create_task(bench.runner.run(job, bench.events.append))
    await until(lambda: processes_of_run(job.ident) != [])
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert processes_of_run(job.ident) == []


@WARM_ONLY
async def test_secret_is_revoked_before_a_process_is_terminated(bench: Bench) -> None:
    alive: list[bool] = []
    job = bench.job(bench.role(SLEEP))

    async def revoke() -> None:
        alive.append(has_module(job.ident))

    run = asyncio.create_task(
        bench.runner.run(replace(job, environment=RunEnvironment(revoke=revoke)), bench.events.append)
    )
    await until(lambda: has_module(job.ident))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert alive == [True]


@WARM_ONLY
async def test_a_run_ends_even_if_its_access_cannot_be_revoked(bench: Bench) -> None:
    async def revoke() -> None:
        raise ConnectionError

    job = replace(bench.job(bench.role(SLEEP)), timeout_seconds=2, environment=RunEnvironment(revoke=revoke))
    assert (await bench.runner.run(job, bench.events.append)).status == "timeout"
    assert processes_of_run(job.ident) == []


async def test_cancelling_twice_does_not_spare_the_play(bench: Bench) -> None:
    job = bench.job(bench.role(IGNORE, stubborn=STUBBORN))
    run = asyncio.create_task(bench.runner.run(job, bench.events.append))
    await until(lambda: has_module(job.ident))
    run.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert processes_of_run(job.ident) == []


async def test_background_processes_of_a_role_are_stopped(bench: Bench) -> None:
    job = bench.job(bench.role("- ansible.builtin.command: sleep 300\n  async: 600\n  poll: 0\n"))
    summary = await bench.runner.run(job, bench.events.append)
    assert summary.is_successful
    assert processes_of_run(job.ident) == []
    assert zombies() == []


async def test_killed_play_leaves_no_process(bench: Bench) -> None:
    job = bench.job(bench.role(IGNORE, stubborn=STUBBORN))
    run = asyncio.create_task(bench.runner.run(job, bench.events.append))
    await until(lambda: has_module(job.ident) and bench.has_started("Ignore"))
    _play_of(job.ident).kill()
    summary = await run
    assert summary.status == "error"
    assert summary.message == "Task 'Ignore': the process of the run ended unexpectedly with exit code -9"
    assert processes_of_run(job.ident) == []
    assert zombies() == []


@pytest.mark.parametrize("tasks", [SLEEP, IGNORE])
async def test_killed_operator_leaves_no_process_of_a_run(bench: Bench, tasks: str) -> None:
    job = bench.job(bench.role(tasks, stubborn=STUBBORN))
    operator = subprocess.Popen([sys.executable, "-c", OPERATOR, *_arguments(bench, job)])  # noqa: ASYNC220 - is killed
    try:
        await until(lambda: has_module(job.ident))
        operator.send_signal(signal.SIGKILL)
        operator.wait()
        await until(lambda: processes_of_run(job.ident) == [])
    finally:
        operator.kill()
        operator.wait()
        kill_run_processes(job.ident)


async def test_next_operator_stops_orphaned_runs(bench: Bench) -> None:
    job = bench.job(bench.role(IGNORE, stubborn=STUBBORN))
    operator = subprocess.Popen([sys.executable, "-c", OPERATOR, *_arguments(bench, job)])  # noqa: ASYNC220 - is killed
    await until(lambda: has_module(job.ident))
    play = _play_of(job.ident)
    # A stopped operator ends nothing of the run, and the play does not end itself while the operator lives.
    operator.send_signal(signal.SIGSTOP)
    play.kill()
    operator.kill()
    operator.wait()
    # A play that is still ending counts as one that looks after its run.
    await until(lambda: _has_ended(play))
    ProcessRunner(ColdStarter())
    assert processes_of_run(job.ident) == []


@WARM_ONLY
async def test_an_error_of_the_listener_ends_the_play(bench: Bench) -> None:
    def listen(event: RunEvent) -> None:
        if event.name == "playbook_on_task_start":
            raise LookupError(event.task)

    job = bench.job(bench.role(SLEEP))
    with pytest.raises(LookupError, match="Sleep"):
        await bench.runner.run(job, listen)
    assert processes_of_run(job.ident) == []


async def test_nothing_but_inputs_and_artifacts_stays_in_the_workspace(bench: Bench) -> None:
    await bench.run(bench.role("- ansible.builtin.debug:\n"))
    outside = {path.relative_to(bench.workspace.path).as_posix() for path in bench.files()}
    expected = {"env/envvars", "env/extravars", "env/settings", "inventory/hosts"}
    assert {path for path in outside if not path.startswith("artifacts/")} == expected


OPERATOR = """
import asyncio, sys
from pathlib import Path
from rolecall.runner.runs.process import ProcessRunner
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.process import RunSpec
from rolecall.runner.warm.starter import ForkserverStarter
from rolecall.runner.runs.process import ColdStarter
from rolecall.runner.runs.workspace import Workspace
from rolecall.kube.references import GVK, ObjectKey

ident, root, role, starter = sys.argv[1:]
workspace = Workspace(Path(root), GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample"))
job = RunSpec(ident, workspace, RoleContent(Path(role)), grace_seconds=0.5)

async def main():
    if starter == "ColdStarter":
        await ProcessRunner(ColdStarter()).run(job, lambda event: None)
    async with ForkserverStarter() as warm:
        await ProcessRunner(warm).run(job, lambda event: None)

asyncio.run(main())
"""


def _arguments(bench: Bench, job: RunSpec) -> list[str]:
    return [job.ident, str(bench.workspace.root), os.fspath(job.content.path), type(bench.runner.starter).__name__]


async def test_play_over_its_memory_limit_reports_this(bench: Bench) -> None:
    """Ansible does not report a lack of memory, so the size of the play decides."""
    role = bench.role('- name: Grow\n  ansible.builtin.set_fact: {big: "{{ range(30000000) | batch(1000) | list }}"}\n')
    with MemoryGuard(400 << 20) as memory:
        runner = ProcessRunner(bench.runner.starter, memory)
        summary = await runner.run(bench.job(role), bench.events.append)
    # ansible-core 2.18 shows the error, and then it's certain.
    assert re.search(r"Task 'Grow': (probably )?out of memory: a process of the run .*400Mi", summary.message)


async def test_largest_run_of_a_full_container_is_killed_and_reports_this(bench: Bench, tmp_path: Path) -> None:
    """All processes of the run are killed immediately, not the operator, and the summary reports the run's memory."""
    (tmp_path / "memory.current").write_text("0")
    memory = ContainerMemory(ControlGroup(2, tmp_path), 200 << 20)
    role = bench.role("- name: Stay\n  ansible.builtin.command: sleep 300\n")
    spec = bench.job(role)
    with MemoryGuard(None, memory) as guard:
        runner = ProcessRunner(bench.runner.starter, guard)
        running = asyncio.create_task(runner.run(spec, bench.events.append))
        await until(lambda: has_module(spec.ident) and bench.has_started("Stay"))
        (tmp_path / "memory.current").write_text(str(180 << 20))
        summary = await running
    assert summary.message.startswith("Task 'Stay': out of memory: the container had 180Mi of its 200Mi in use")
    assert processes_of_run(spec.ident) == []
    assert zombies() == []


@WARM_ONLY
async def test_run_with_too_many_artifacts_is_stopped(bench: Bench) -> None:
    """An endlessly printing task fills no disk: the run is stopped within its limit and reports the reason."""
    loud = '- name: Shout\n  ansible.builtin.debug: {msg: "{{ \'x\' * 10000 }}"}\n  loop: "{{ range(1000) | list }}"\n'
    spec = replace(bench.job(bench.role(loud)), artifact_limit_bytes=1 << 20)
    summary = await bench.runner.run(spec, bench.events.append)
    assert summary.message.startswith("Task 'Shout': the run was stopped, because its artifacts have more than 1Mi")
    artifacts = spec.workspace.artifacts(spec.ident)
    assert 1 << 19 < sum(path.stat().st_size for path in artifacts.rglob("*") if path.is_file()) <= 1 << 20
    assert processes_of_run(spec.ident) == []


@WARM_ONLY
async def test_output_of_a_task_is_stored_once_unless_events_repeat_it(bench: Bench) -> None:
    role = bench.role("- name: Say\n  ansible.builtin.debug: {msg: printed}\n")
    found = []
    for is_repeated in (True, False):
        spec = replace(bench.job(role), output_in_events=is_repeated)
        assert (await bench.runner.run(spec, bench.events.append)).is_successful
        directory = bench.workspace.artifacts(spec.ident)
        assert '"msg": "printed"' in (directory / "stdout").read_text()
        found.append([json.loads(path.read_text()) for path in (directory / "job_events").iterdir()])
    assert [any("stdout" in event for event in events) for events in found] == [True, False]
    assert len(found[0]) == len(found[1])
