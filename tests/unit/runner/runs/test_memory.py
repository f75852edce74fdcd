"""Which reason a run gets whose container was full: runs and the kernel are stand-ins, the files are real.

The guard looks at a control group that is a folder of files, and kills real processes.

Their command names the runner, so that no test beside this one takes them for abandoned.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.events import RunSummary, TaskFailure
from rolecall.runner.runs.memory import (
    GuardedRunner,
    MemoryGuard,
    explain_kernel_kill,
    explain_kill,
    explain_memory_limit,
    resolve_memory_limit,
)
from rolecall.runner.runs.process import OnEvent, RunSpec
from rolecall.runner.runs.run_processes import RUN_VARIABLE, RUNNER_MODULE
from rolecall.runner.runs.workspace import Workspace
from rolecall.system.control_groups import ContainerMemory, ControlGroup
from tests.unit.system.test_processes import running

LIMIT = 400 << 20
FAILED = RunSummary("failed", failures=(TaskFailure("Eat", "", "failed."),), peak_memory_bytes=LIMIT)
SUCCESSFUL = RunSummary("successful", peak_memory_bytes=LIMIT)


@dataclass
class Runs:
    """A runner during whose runs the kernel kills some processes of the container."""

    summary: RunSummary
    folder: Path
    kernel_kills: int = 0

    async def run(self, spec: RunSpec, on_event: OnEvent) -> RunSummary:  # noqa: ARG002 - there are no events
        """Return the summary."""
        (self.folder / "memory.events").write_text(f"oom_kill {self.kernel_kills}\n")
        return self.summary


async def ended(runs: Runs, *, container: str) -> RunSummary:
    (runs.folder / "memory.events").write_text("oom_kill 0\n")
    guard = MemoryGuard(ContainerMemory(ControlGroup(2, runs.folder), LIMIT)) if container == "limited" else None
    workspace = Workspace(runs.folder, GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample"))
    spec = RunSpec("7", workspace, RoleContent(runs.folder))
    return await GuardedRunner(runs, LIMIT, guard).run(spec, lambda _: None)


@pytest.mark.parametrize("container", ["limited", "unlimited"])
@pytest.mark.parametrize("kernel_kills", [0, 1])
async def test_a_run_that_succeeds_in_a_full_container_has_succeeded(
    tmp_path: Path, kernel_kills: int, container: str
) -> None:
    assert await ended(Runs(SUCCESSFUL, tmp_path, kernel_kills), container=container) == SUCCESSFUL


async def test_a_run_that_fails_while_the_kernel_kills_says_so(tmp_path: Path) -> None:
    found = await ended(Runs(FAILED, tmp_path, kernel_kills=1), container="limited")
    assert "the kernel killed a process" in found.message


@pytest.mark.parametrize("container", ["limited", "unlimited"])
async def test_a_run_that_fails_by_itself_is_judged_by_its_size(tmp_path: Path, container: str) -> None:
    found = await ended(Runs(FAILED, tmp_path), container=container)
    assert "a process of the run had 400Mi and may have 400Mi" in found.message


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups and /proc")

MIB = 1 << 20
LARGE, SMALL = (f"data = b'x' * ({size} << 20); print(flush=True); import signal; signal.pause()" for size in (80, 20))


def memory(folder: Path, used_bytes: int, limit_bytes: int = 200 * MIB) -> ContainerMemory:
    (folder / "memory.current").write_text(f"{used_bytes}\n")
    return ContainerMemory(ControlGroup(2, folder), limit_bytes)


def test_the_largest_run_is_killed_when_the_container_is_nearly_full(tmp_path: Path) -> None:
    guard = MemoryGuard(memory(tmp_path, 180 * MIB))
    with (
        running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "61"}) as large,
        running(SMALL, RUNNER_MODULE, **{RUN_VARIABLE: "62"}) as small,
    ):
        guard.add("61")
        guard.add("62")
        guard.check()
        assert large.wait(timeout=60) == -9
        assert small.poll() is None
    killed = guard.remove("61")
    assert killed is not None
    assert 80 * MIB < killed.run_bytes < 120 * MIB
    assert str(killed).startswith("out of memory: the container had 180Mi of its 200Mi in use, and this run had ")
    assert guard.remove("62") is None


def test_nothing_is_killed_while_there_is_room(tmp_path: Path) -> None:
    guard = MemoryGuard(memory(tmp_path, 160 * MIB))
    with running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "63"}) as process:
        guard.add("63")
        guard.check()
        assert process.poll() is None
    assert guard.remove("63") is None


def test_processes_of_others_are_not_killed(tmp_path: Path) -> None:
    guard = MemoryGuard(memory(tmp_path, 180 * MIB))
    with (
        running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "64"}) as foreign,
        running(SMALL, RUNNER_MODULE, **{RUN_VARIABLE: "65"}) as own,
    ):
        guard.add("65")
        guard.check()
        assert own.wait(timeout=60) == -9
        assert foreign.poll() is None


def test_runs_are_spared_if_the_memory_is_held_by_something_else(tmp_path: Path) -> None:
    guard = MemoryGuard(memory(tmp_path, 1900 * MIB, 2000 * MIB))
    with running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "66"}) as process:
        guard.add("66")
        guard.check()
        assert process.poll() is None


def test_it_looks_more_often_when_more_than_half_is_in_use(tmp_path: Path) -> None:
    calm = MemoryGuard(memory(tmp_path, 50 * MIB)).check()
    assert MemoryGuard(memory(tmp_path, 150 * MIB)).check() < calm


def test_the_thread_looks_by_itself_until_it_is_stopped(tmp_path: Path) -> None:
    guard = MemoryGuard(memory(tmp_path, 180 * MIB))
    with guard, running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "67"}) as process:
        guard.add("67")
        assert process.wait(timeout=60) == -9


FAILURE = TaskFailure("Eat", "localhost", "non-zero return code 1: MemoryError")
OTHER = TaskFailure("Eat", "localhost", "Error rendering template.")


def failed(*failures: TaskFailure, peak_bytes: int = 0) -> RunSummary:
    return RunSummary("failed", failures=failures, peak_memory_bytes=peak_bytes)


@pytest.mark.parametrize(
    ("asked", "container", "limit"),
    [(None, None, 0), (None, 768 << 20, 384 << 20), (None, 300 << 20, 256 << 20), (0, 768 << 20, 0), (5, None, 5)],
)
def test_a_process_gets_half_of_the_container_unless_something_else_was_asked_for(
    asked: int | None, container: int | None, limit: int
) -> None:
    assert resolve_memory_limit(asked, container) == limit


@pytest.mark.parametrize(
    "said", ["MemoryError", "fatal error: runtime: out of memory", "[Errno 12] Cannot allocate memory"]
)
def test_a_failure_that_says_so_is_out_of_memory(said: str) -> None:
    found = explain_memory_limit(failed(OTHER, TaskFailure("Eat", "", said)), LIMIT)
    assert found.failures[0] == OTHER
    assert found.failures[1].message.startswith("out of memory: a process of the run needed more than 400Mi")
    assert said in found.failures[1].message


def test_a_failure_that_does_not_say_why_is_probably_out_of_memory_if_a_process_was_large() -> None:
    found = explain_memory_limit(failed(OTHER, peak_bytes=LIMIT * 9 // 10), LIMIT)
    assert found.message.startswith("Task 'Eat': probably out of memory: a process of the run had 360Mi and may have")
    assert "Error rendering template." in found.message


@pytest.mark.parametrize(
    ("summary", "limit"),
    [
        (failed(OTHER, peak_bytes=LIMIT // 4), LIMIT),
        (failed(TaskFailure("Eat", "", "no more coffee"), peak_bytes=LIMIT), LIMIT),
        (failed(FAILURE, peak_bytes=LIMIT), 0),
    ],
    ids=["small", "says why", "no limit"],
)
def test_any_other_end_stays_as_it_is(summary: RunSummary, limit: int) -> None:
    assert explain_memory_limit(summary, limit) == summary


def test_a_killed_run_is_told_why_and_in_which_task() -> None:
    gone = TaskFailure("Eat", "", "the process of the run ended unexpectedly with exit code -9")
    assert (
        explain_kill(failed(gone), "out of memory: it was killed").message == "Task 'Eat': out of memory: it was killed"
    )


def test_a_failure_while_the_kernel_killed_says_so() -> None:
    found = explain_kernel_kill(failed(OTHER), 768 << 20)
    assert found.message.startswith("Task 'Eat': probably out of memory: the 768Mi of the container were full")
