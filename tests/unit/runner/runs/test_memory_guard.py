"""The guard looks at a control group that is a folder of files, and kills real processes.

Their command names the runner, so that no test beside this one takes them for abandoned.
"""

import sys
from pathlib import Path

import pytest

from rolecall.runner.runs.memory import MemoryGuard
from rolecall.runner.runs.run_processes import RUN_VARIABLE, RUNNER_MODULE
from rolecall.system.control_groups import ContainerMemory, ControlGroup
from tests.unit.system.test_process_tree import running

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
