"""Runs of processes that only the test controls: their limits, their end, and what others can do in the meantime."""

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.proxy import sessions
from rolecall.runner.runs import process as process_module
from rolecall.runner.runs.disk_space import ArtifactBudget
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.memory import MemoryGuard
from rolecall.runner.runs.process import (
    ProcessRunner,
    RunProcess,
    RunSpec,
    cancellation_seconds,
    grace_seconds,
    new_ident,
)
from rolecall.runner.runs.process_marks import RUN_VARIABLE
from rolecall.runner.runs.run import RunEnvironment
from rolecall.runner.runs.workspace import Workspace

LIMIT = 400 << 20
FAILED = RunEvent("runner_on_failed", task="Eat", host="localhost", message="failed.").to_json()


def ending(status: str) -> str:
    return json.dumps({"ending": {"status": status, "peak_memory_bytes": LIMIT}, "survivors": []})


SUCCESS = [RunEvent("playbook_on_stats").to_json(), ending("successful")]
FAILURE = [FAILED, ending("failed")]


class FakeProcess:
    """A process that has printed its output and ended, or one that hangs in the kernel and keeps its pipes open."""

    def __init__(self, *lines: str, hangs: bool = False) -> None:
        self.returncode = None if hangs else 0
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self.stdout.feed_data("".join(f"{line}\n" for line in lines).encode())
        if not hangs:
            self.stdout.feed_eof()
            self.stderr.feed_eof()

    async def wait(self) -> int:
        """Return the exit code, or wait forever."""
        if self.returncode is None:
            await asyncio.Event().wait()
        return 0

    def terminate(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing either."""


class Starter:
    """Starts a process with these lines of output, or one that hangs; without ``lines`` it waits forever."""

    def __init__(self, *lines: str, hangs: bool = False) -> None:
        self.lines = lines
        self.hangs = hangs
        self.specs: list[RunSpec] = []

    async def start(self, spec: RunSpec) -> RunProcess:
        """Return the process."""
        self.specs.append(spec)
        if not (self.lines or self.hangs):
            await asyncio.Event().wait()
        return FakeProcess(*self.lines, hangs=self.hangs)


def spec(root: Path, timeout_seconds: float | None = None) -> RunSpec:
    """Return a run of a role that is never read.

    Its name is unique, because a run that is stopped kills all processes with its mark, also those of parallel tests.
    """
    ident = new_ident()
    workspace = Workspace(root, GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample"))
    workspace.prepare(ident, {})
    return RunSpec(ident, workspace, RoleContent(root), timeout_seconds=timeout_seconds, grace_seconds=0.05)


async def test_timeout_includes_the_start_of_the_process(tmp_path: Path) -> None:
    running = ProcessRunner(Starter()).run(spec(tmp_path, 0.05), lambda _: None)
    outcome = await asyncio.wait_for(running, 20)
    assert (outcome.status, outcome.limit) == ("timeout", "time")


CRASH = """
import os, signal, sys
reading, writing = os.pipe()
if os.fork():
    os.read(reading, 1)
    os.kill(os.getpid(), signal.SIGKILL)
os.setsid()
child = os.fork()
if child == 0:
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print(child, file=sys.stderr, flush=True)
os.close(1), os.close(2), os.write(writing, b"x")
signal.pause()
"""


class CrashStarter:
    """Starts a process that is killed while a process below it has a child that has ended by itself."""

    async def start(self, spec: RunSpec) -> RunProcess:
        """Start the process, whose stderr contains the id of that child."""
        pipe = asyncio.subprocess.PIPE
        marked = os.environ | {RUN_VARIABLE: spec.ident}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CRASH), stdout=pipe, stderr=pipe, env=marked, start_new_session=True
        )


async def test_crashed_run_leaves_no_zombie_of_a_process_that_has_ended_by_itself(tmp_path: Path) -> None:
    outcome = await asyncio.wait_for(ProcessRunner(CrashStarter()).run(spec(tmp_path), lambda _: None), 60)
    reason, _, pid = outcome.message.rpartition(": ")
    assert reason == "the process of the run ended unexpectedly with exit code -9"
    assert not psutil.pid_exists(int(pid))


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Starter:
    """Shorten every limit, and give a starter of a process that can't be killed."""
    for name in ("_LAST_OUTPUT_SECONDS", "_KILL_AFTER_SECONDS", "KILL_LIMIT_SECONDS"):
        monkeypatch.setattr(process_module, name, 0.05)
    return Starter(hangs=True)


async def test_process_that_cannot_be_killed_does_not_block_its_timeout(hanging: Starter, tmp_path: Path) -> None:
    running = ProcessRunner(hanging).run(spec(tmp_path, 0.05), lambda _: None)
    outcome = await asyncio.wait_for(running, 20)
    assert (outcome.status, outcome.limit) == ("timeout", "time")


async def test_process_that_cannot_be_killed_does_not_block_its_cancellation(hanging: Starter, tmp_path: Path) -> None:
    budget = ArtifactBudget(1 << 20)
    runner = ProcessRunner(hanging, artifacts=budget)
    running = asyncio.create_task(runner.run(spec(tmp_path), lambda _: None))
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait({running})
    assert running.cancelled()
    assert budget.total_bytes > 0  # a cancelled run counts too


async def test_other_tasks_get_their_turn_between_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_READ_SECONDS", 0)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    seen: list[int] = []
    starter = Starter(*[RunEvent("runner_on_ok").to_json()] * 100)
    await ProcessRunner(starter).run(spec(tmp_path), lambda _: seen.append(turns))
    other.cancel()
    assert len(set(seen)) == len(seen) == 100


async def test_each_run_may_use_an_eighth_of_the_artifact_limit(tmp_path: Path) -> None:
    starter = Starter(*SUCCESS)
    await ProcessRunner(starter, artifacts=ArtifactBudget(800)).run(spec(tmp_path), lambda _: None)
    assert starter.specs[0].runner_input.artifact_limit_bytes == 100


@pytest.mark.parametrize(
    ("lines", "message"),
    [(SUCCESS, ""), (FAILURE, "Task 'Eat': probably out of memory: a process of the run had 400Mi and may have 400Mi")],
    ids=["success", "failure"],
)
async def test_failure_of_a_large_process_is_explained_by_the_limit(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    starter = Starter(*lines)
    summary = await ProcessRunner(starter, MemoryGuard(LIMIT)).run(spec(tmp_path), lambda _: None)
    assert starter.specs[0].runner_input.memory_limit_bytes == LIMIT
    assert summary.message[: len(message)] == message
    assert summary.is_successful is (lines is SUCCESS)


def test_idents_are_decimal_numbers_of_63_bits() -> None:
    idents = {new_ident() for _ in range(100)}
    assert len(idents) == 100
    assert all(0 <= int(ident) < 2**63 for ident in idents)


def test_seed_determines_the_names_of_runs() -> None:
    """A simulation repeats a history by its seed."""
    state = random.getstate()
    try:
        random.seed(7)
        first = new_ident()
        random.seed(7)
        second = new_ident()
    finally:
        random.setstate(state)
    assert first == second


def test_names_of_runs_differ_in_a_forked_process() -> None:
    """A run that ends kills all processes with its name, which must not be the runs of another operator."""
    script = f"""
import os, random
from {new_ident.__module__} import new_ident
random.seed(7)
child = os.fork()
os.write(1, (new_ident() + "\\n").encode())  # at once, because two processes write
if child:
    os.waitpid(child, 0)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert len(set(found)) == len(found) == 2


def test_secrets_are_not_in_the_representation_of_a_spec(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, GVK("a", "v1", "A"), ObjectKey("n", "x"))
    environment = RunEnvironment(secrets={"TOKEN": "s3cret"})
    assert "s3cret" not in repr(RunSpec("1", workspace, RoleContent(tmp_path), environment))


@given(st.floats(0, 3600))
def test_parts_of_a_stop_fit_into_its_time(seconds: float) -> None:
    """A deaf role with a write in flight ends in time for its status, unless the whole time is too short for that."""
    settings = Settings(grace_seconds=seconds)
    parts = sessions.WRITE_GRACE_SECONDS + grace_seconds(settings) + process_module.STATUS_SECONDS
    assert cancellation_seconds(settings) == parts
    assert parts <= max(0.75 * seconds, 0.2 * seconds + 5) + 1e-6
    assert cancellation_seconds(Settings()) == 10


def test_grace_period_of_a_run_is_shorter_than_the_rest_of_the_lease() -> None:
    electing = Settings(leader_elect=True, leader_election_id="lock", leader_election_namespace="operators")
    assert grace_seconds(Settings()) == 5
    assert grace_seconds(electing) == pytest.approx(1)
