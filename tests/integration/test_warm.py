"""Guarantees of a warm runner only: no state of earlier runs, recovery of its server, changes on disk."""

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.process import ColdStarter, ProcessRunner
from rolecall.runner.runs.process_marks import processes_of_run
from rolecall.runner.runs.run import RunEnvironment
from rolecall.runner.warm import client
from rolecall.runner.warm.starter import ForkserverStarter
from rolecall.system.processes import reap_children
from tests.integration.test_runner import Bench, has_module, ready_starter, until, zombies

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]

MANY = int(os.environ.get("ROLECALL_MANY_RUNS", "60"))
SLEEP = "- name: Sleep\n  ansible.builtin.command: sleep 300\n"
WAIT = """
- name: Wait
  ansible.builtin.wait_for: {path: "{{ file }}", timeout: 600, sleep: 1}
"""
TELL = """
- name: Look at this process
  ansible.builtin.set_fact:
    seen:
      directory: "{{ lookup('pipe', 'pwd') }}"
      mine: "{{ lookup('env', 'MINE') }}"
      theirs: "{{ lookup('env', 'THEIRS') }}"
      temporary: "{{ lookup('config', 'DEFAULT_LOCAL_TMP') }}"
      fact: "{{ fact | default('none') }}"
    cacheable: true
- name: Look at the module's process
  ansible.builtin.command: env
  environment: "{{ extra }}"
  register: printed
- name: Tell
  ansible.builtin.set_stats:
    data: {seen: "{{ seen }}", environment: "{{ printed.stdout_lines | select('match', 'MINE|THEIRS|EXTRA') }}"}
- name: Leave something
  ansible.builtin.set_fact: {fact: left}
"""
KILLED = """
#!/usr/bin/python
import os, signal
from ansible.module_utils.basic import AnsibleModule
AnsibleModule({})
os.kill(os.getpid(), signal.SIGKILL)
"""
LEAK = """
import os
KEPT = []
os.register_at_fork(after_in_parent=lambda: KEPT.append(b"x" * 80 * 1024 * 1024))
"""
FORKLESS = """
import errno, os
FORK = os.fork
def fork():
    os.fork = FORK
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.fork = fork
"""
LEAKY = """
#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.some.thing.plugins.module_utils import leak
AnsibleModule({}).exit_json()
"""

WRECK = """
import gc, os, types

def wreck(text):
    gc.unfreeze()
    objects, function, end = gc.get_objects(), types.FunctionType, os._exit
    try:
        for each in objects:
            if type(each) is function and each is not wreck:
                each.__defaults__, each.__kwdefaults__, each.__doc__ = ("wrecked",), {}, "wrecked"
        for each in objects:
            if type(each) is list and each is not objects:
                each[:] = ["wrecked"]
            elif type(each) is set:
                each.clear()
        for each in objects:
            if type(each) is dict:
                each.clear()
    finally:
        end(77)

class FilterModule:
    def filters(self):
        return {"wreck": wreck}
"""
"""A filter runs in the process of ansible-playbook, where it can reach all objects that came from the server."""

PARENTS = """
- name: Ask alone
  ansible.builtin.slurp: &own_status {src: /proc/self/status}
  register: alone
- name: Ask in a loop
  ansible.builtin.slurp: *own_status
  loop: [1, 2]
  register: looped
- name: Ask until it is enough
  ansible.builtin.slurp: *own_status
  register: repeated
  until: repeated.attempts > 1
  retries: 2
  delay: 0
- name: Ask within a time
  ansible.builtin.slurp: *own_status
  timeout: 60
  register: timed
- name: Ask alone again
  ansible.builtin.slurp: *own_status
  register: again
- name: Tell
  ansible.builtin.set_stats:
    data:
      alone: "{{ [alone.content, again.content] }}"
      looped: "{{ looped.results | map(attribute='content') }}"
      repeated: ["{{ repeated.content }}"]
      timed: ["{{ timed.content }}"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def starter(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ForkserverStarter]:
    """Yield a starter for the whole module; it replaces a stopped server, as in the operator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        reap_children()  # operators that other tests have killed have left some to this process
        patch.setenv("ANSIBLE_GATHERING", "explicit")
        patch.delenv("ANSIBLE_INVENTORY", raising=False)
        async with ready_starter() as starter:
            yield starter


@pytest.fixture
def bench(tmp_path: Path, starter: ForkserverStarter) -> Bench:
    return Bench(tmp_path, ProcessRunner(starter))


async def test_run_that_changes_everything_it_can_reach_changes_nothing_for_the_next(bench: Bench) -> None:
    """Several times, because the server gives the first runs copies of its code."""
    role = bench.role("- name: Wreck\n  ansible.builtin.set_fact: {a: \"{{ 'x' | wreck }}\"}\n", "wrecker")
    (role.path / "filter_plugins").mkdir()
    (role.path / "filter_plugins" / "wreck.py").write_text(WRECK)
    ordinary = bench.role(TELL, "ordinary")
    variables = {"extra": {"EXTRA": "1"}}
    expected = await bench.run(ordinary, variables)
    for _ in range(8):
        assert not (await bench.run(role)).is_successful
        found = await bench.run(ordinary, variables)
        assert found.is_successful, found.message
        assert (found.counts, found.stats["environment"]) == (expected.counts, expected.stats["environment"])


def server_of(starter: ForkserverStarter) -> psutil.Process:
    """Return the process of the server that forks new runs."""
    assert starter.server
    return psutil.Process(starter.server.process.pid)


def parent_in(status: str) -> str:
    """Return the parent's identifier from /proc content of a process, in base64 as from the module slurp."""
    lines = base64.b64decode(status).decode().splitlines()
    return next(line for line in lines if line.startswith("PPid:"))


async def tell(bench: Bench, role: RoleContent, **own: str) -> Outcome:
    """Run the role that inspects its surroundings, with its own environment variables."""
    job = bench.job(role, {"extra": {f"EXTRA_{name}": value for name, value in own.items()}})
    return await bench.runner.run(replace(job, environment=RunEnvironment(own)), bench.events.append)


def seen_of(summary: Outcome) -> dict[str, Any]:
    """Return the result of a run without its identifiers."""
    assert summary.message == ""
    return {**summary.stats["seen"], "environment": summary.stats["environment"]}


async def test_tasks_share_the_process_of_the_play_but_for_loops_and_others_that_need_their_own(bench: Bench) -> None:
    told = (await bench.run(bench.role(PARENTS))).stats
    parents = {name: {parent_in(status) for status in statuses} for name, statuses in told.items()}
    assert [len(each) for each in parents.values()] == [1, 1, 1, 1]
    assert len(set.union(*parents.values())) == 4


async def test_run_has_no_state_of_earlier_runs(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path / "other", bench.runner)
    first = seen_of(await tell(bench, bench.role(TELL), MINE="1"))
    second = seen_of(await tell(other, other.role(TELL), THEIRS="2"))
    assert (first["mine"], first["theirs"], first["fact"]) == ("1", "", "none")
    assert (second["mine"], second["theirs"], second["fact"]) == ("", "2", "none")
    assert first["environment"] == ["MINE=1", "EXTRA_MINE=1"]
    assert second["environment"] == ["THEIRS=2", "EXTRA_THEIRS=2"]
    assert first["temporary"] != second["temporary"]


async def test_concurrent_runs_share_no_state(bench: Bench, tmp_path: Path) -> None:
    benches = [Bench(tmp_path / str(number), bench.runner) for number in range(4)]
    runs = [tell(each, each.role(TELL), MINE=str(number)) for number, each in enumerate(benches)]
    found = [seen_of(summary) for summary in await asyncio.gather(*runs)]
    assert [each["mine"] for each in found] == ["0", "1", "2", "3"]
    assert len({each["temporary"] for each in found}) == 4


async def test_no_two_tasks_have_the_same_identifier(bench: Bench) -> None:
    role = bench.role("- ansible.builtin.debug:\n")
    await bench.run(role)
    first = {event.task_id for event in bench.events if event.task_id}
    bench.events.clear()
    await bench.run(role)
    assert first
    assert not first & {event.task_id for event in bench.events}


async def test_killed_server_fails_its_runs_but_not_later_ones(bench: Bench, starter: ForkserverStarter) -> None:
    job = bench.job(bench.role(SLEEP))
    run = asyncio.create_task(bench.runner.run(job, bench.events.append))
    await until(lambda: has_module(job.ident))
    server_of(starter).kill()
    summary = await run
    assert summary.status == "error"
    assert "the fork server of the run has died" in summary.message
    assert processes_of_run(job.ident) == []
    await until(lambda: not zombies())
    with capture_logs() as logs:
        assert (await bench.run(bench.role("- ansible.builtin.debug:\n"))).is_successful
    assert "The fork server has exited; starting another one" in {line["event"] for line in logs}


async def test_stopped_server_affects_neither_its_runs_nor_later_ones(
    bench: Bench, starter: ForkserverStarter, tmp_path: Path
) -> None:
    job = bench.job(bench.role(WAIT, name="wait"), {"file": os.fspath(tmp_path / "go")})
    run = asyncio.create_task(bench.runner.run(job, bench.events.append))
    await until(lambda: bench.has_started("Wait"))
    server = server_of(starter)
    server.suspend()
    other = Bench(tmp_path / "other", bench.runner)
    with capture_logs() as logs:
        assert (await other.run(other.role("- ansible.builtin.debug:\n"))).is_successful
    assert "The fork server does not respond; starting another one" in {line["event"] for line in logs}
    assert server_of(starter) != server
    (tmp_path / "go").touch()
    assert (await run).is_successful
    await until(lambda: not server.is_running())
    await until(lambda: not zombies())


async def test_a_run_whose_server_is_stopped_can_be_cancelled(
    bench: Bench, starter: ForkserverStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RESPONSE_LIMIT_SECONDS", 600)  # nothing but the cancellation ends the run
    await bench.run(bench.role("- ansible.builtin.debug:\n"))
    server = server_of(starter)
    server.suspend()
    job = bench.job(bench.role(SLEEP))
    run = asyncio.create_task(bench.runner.run(job, bench.events.append))
    await until(lambda: starter.server is not None and not starter.server.idle.is_set())
    run.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait({run})
    server.resume()
    assert (await bench.run(bench.role("- ansible.builtin.debug:\n"))).is_successful
    await until(lambda: processes_of_run(job.ident) == [])
    assert not (bench.workspace.artifacts(job.ident) / "job_events").exists()


async def test_each_run_after_an_idle_time_is_forked_from_another_server(bench: Bench, tmp_path: Path) -> None:
    servers, role, go = [], bench.role(WAIT), tmp_path / "go"
    async with ForkserverStarter(idle_seconds=0.5) as starter:
        bench.runner = ProcessRunner(starter)
        for _ in range(3):
            job = bench.job(role, {"file": os.fspath(go)})
            run = asyncio.create_task(bench.runner.run(job, bench.events.append))
            await until(lambda: bench.has_started("Wait"))
            await asyncio.sleep(1)  # longer than the idle time: a run in progress must keep its server
            servers.append(server_of(starter))
            assert set(servers[-1].children()) & set(processes_of_run(job.ident))
            go.touch()
            assert (await run).is_successful
            await until(lambda: not servers[-1].is_running())
            go.unlink()
            bench.events.clear()
    assert len(set(servers)) == 3
    await until(lambda: not zombies())


def write_leaky_collection(directory: Path, utility: str) -> Path:
    """Write a collection whose module ``some.thing.leaky`` uses this utility; return where collections lie."""
    collections = directory / "collections"
    plugins = collections / "ansible_collections/some/thing/plugins"
    for name, source in (("module_utils/leak.py", utility), ("modules/leaky.py", LEAKY)):
        (plugins / name).parent.mkdir(parents=True)
        (plugins / name).write_text(source.lstrip())
    return collections


async def test_failed_fork_fails_only_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_GATHERING", "explicit")
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(write_leaky_collection(tmp_path, FORKLESS)))
    bench = Bench(tmp_path, ProcessRunner(ColdStarter()))
    role = bench.role("- some.thing.leaky:\n")
    async with ready_starter(role.path) as starter:
        server = server_of(starter)
        bench.runner = ProcessRunner(starter)
        failed = await bench.run(role)
        assert (await bench.run(role)).is_successful
        assert server_of(starter) == server
    assert "cannot fork: [Errno 11] Resource temporarily unavailable" in failed.message


async def test_run_that_could_not_start_reports_the_reason(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    role = bench.role("- ansible.builtin.debug:\n")
    await bench.run(role)
    monkeypatch.setattr(os, "getcwd", lambda: "/no/such/directory")
    summary = await bench.run(role)
    assert summary.status == "error"
    assert "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/directory'" in summary.message


async def test_runs_are_cold_if_the_server_cannot_prepare(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "ansible.cfg"
    broken.write_text("[defaults]\nforks = many\n")
    async with ForkserverStarter() as starter:
        assert starter.server
        starter.server.process.kill()
        monkeypatch.setenv("ANSIBLE_CONFIG", str(broken))
        bench.runner = ProcessRunner(starter)
        summary = await bench.run(bench.role("- ansible.builtin.debug:\n"))
    assert summary.status == "failed"
    assert "forks" in summary.message.lower()


async def test_next_run_uses_a_changed_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_GATHERING", "explicit")
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path / "collections"))
    collection = tmp_path / "collections/ansible_collections/some/thing"
    utility = collection / "plugins/module_utils/word.py"
    module = collection / "plugins/modules/say.py"
    for path in (utility, module):
        path.parent.mkdir(parents=True)
    module.write_text(
        "#!/usr/bin/python\nfrom ansible.module_utils.basic import AnsibleModule\n"
        "from ansible_collections.some.thing.plugins.module_utils.word import WORD\n"
        "AnsibleModule({}).exit_json(msg=WORD)\n"
    )
    utility.write_text("WORD = 'before'\n")
    bench = Bench(tmp_path, ProcessRunner(ColdStarter()))
    role = bench.role("- some.thing.say:\n")
    async with ready_starter(role.path) as starter:
        bench.runner = ProcessRunner(starter)
        await bench.run(role)
        utility.write_text("WORD = 'afterwards'\n")
        await bench.run(role)
    said = [event.message for event in bench.events if event.name == "runner_on_ok"]
    assert said == ["before", "afterwards"]


async def test_server_over_its_memory_limit_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_GATHERING", "explicit")
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(write_leaky_collection(tmp_path, LEAK)))
    bench = Bench(tmp_path, ProcessRunner(ColdStarter()))
    role = bench.role("- some.thing.leaky:\n")
    servers = []
    with capture_logs() as logs:
        async with ready_starter(role.path) as starter:
            bench.runner = ProcessRunner(starter)
            for _ in range(2):
                assert (await bench.run(role)).is_successful
                servers.append(server_of(starter))
            await until(lambda: not servers[0].is_running())
    assert servers[0] != servers[1]
    (reason,) = [line["reason"] for line in logs if line["event"] == "Replacing the fork server"]
    assert reason.startswith("the server has grown by ")


async def test_a_module_that_is_killed_fails_its_task_as_in_a_cold_run(bench: Bench, tmp_path: Path) -> None:
    collection = tmp_path / "collections/ansible_collections/some/thing/plugins/modules"
    collection.mkdir(parents=True)
    (collection / "die.py").write_text(KILLED.lstrip())
    playbook = bench.playbook("""
        - hosts: localhost
          gather_facts: false
          tasks: [{name: Die, some.thing.die: }]
    """)
    cold = Bench(tmp_path, ProcessRunner(ColdStarter()))
    found = [(await each.run(playbook)).message for each in (bench, cold)]
    assert found[0] == found[1]
    assert "Killed" in found[0]


async def test_many_runs_leave_no_processes_or_files(bench: Bench, starter: ForkserverStarter) -> None:
    role = bench.role("- ansible.builtin.command: 'true'\n- ansible.builtin.debug:\n")
    await bench.run(role)
    server = server_of(starter)
    before = (_descriptors(server), _descriptors(psutil.Process()), _directories())
    memory = server.memory_info().rss
    for _ in range(MANY):
        assert (await bench.run(role)).is_successful
        bench.events.clear()
    assert (_descriptors(server), _descriptors(psutil.Process()), _directories()) == before
    assert [child for child in server.children() if child.status() != psutil.STATUS_RUNNING] == []
    await until(lambda: not zombies())
    assert server.memory_info().rss - memory < 4 * 1024 * 1024
    assert server.is_running()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_server_ends_with_the_operator(number: signal.Signals) -> None:
    operator = await asyncio.create_subprocess_exec(sys.executable, "-c", OPERATOR, stderr=asyncio.subprocess.PIPE)
    assert operator.stderr
    server = psutil.Process(json.loads(await operator.stderr.readline()))
    operator.send_signal(number)
    await operator.wait()
    await until(lambda: server.status() == psutil.STATUS_ZOMBIE)  # it has climbed to this process
    server.wait()


OPERATOR = """
import asyncio, json, sys
from rolecall.runner.warm.starter import ForkserverStarter

async def main():
    async with ForkserverStarter() as starter:
        await starter.server.ready
        print(json.dumps(starter.server.process.pid), file=sys.stderr, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def _descriptors(process: psutil.Process) -> int:
    return process.num_fds()


def _directories() -> set[str]:
    return {path.name for path in Path("~/.ansible/tmp").expanduser().glob("*")}
