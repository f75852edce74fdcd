"""The guard reads a control group made of files, and kills real processes.

Their command names the runner, so that no test next to this one takes them for abandoned.
"""

import sys
from pathlib import Path

import pytest

from rolecall.runner.runs import memory
from rolecall.runner.runs.memory import MemoryGuard, resolve_memory_limit
from rolecall.runner.runs.process_marks import RUN_VARIABLE, RUNNER_MODULE
from rolecall.system.control_groups import ContainerMemory, ControlGroup
from tests.processes.system.test_processes import running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups and /proc")

MIB = 1 << 20
LARGE, SMALL = (f"data = b'x' * ({size} << 20); print(flush=True); import signal; signal.pause()" for size in (80, 20))


def guarding(directory: Path, used_mib: int, limit_mib: int = 200) -> MemoryGuard:
    """Return a guard of a container that uses so much memory."""
    (directory / "memory.current").write_text(f"{used_mib * MIB}\n")
    return MemoryGuard(None, ContainerMemory(ControlGroup(2, directory), limit_mib * MIB))


def test_largest_run_is_killed_when_container_is_nearly_full(tmp_path: Path) -> None:
    guard = guarding(tmp_path, 180)
    with (
        running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "60"}) as foreign,
        running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "61"}) as large,
        running(SMALL, RUNNER_MODULE, **{RUN_VARIABLE: "62"}) as small,
    ):
        guard.add("61")
        guard.add("62")
        guard.check()
        assert large.wait(timeout=60) == -9
        assert (small.poll(), foreign.poll()) == (None, None)
    killed = guard.remove("61")
    assert killed is not None
    assert killed.reason.startswith("out of memory: the container had 180Mi of its 200Mi in use, and this run had ")
    assert not killed.by_kernel
    assert guard.remove("62") is None


@pytest.mark.parametrize(("used_mib", "limit_mib"), [(160, 200), (1900, 2000)], ids=["room", "other users of memory"])
def test_runs_are_spared(tmp_path: Path, used_mib: int, limit_mib: int) -> None:
    guard = guarding(tmp_path, used_mib, limit_mib)
    with running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "63"}) as process:
        guard.add("63")
        guard.check()
        assert process.poll() is None
    assert guard.remove("63") is None


def test_kernel_kill_during_a_run_is_reported_for_that_run_only(tmp_path: Path) -> None:
    guard = guarding(tmp_path, 0)
    (tmp_path / "memory.events").write_text("oom_kill 3\n")
    guard.add("1")
    (tmp_path / "memory.events").write_text("oom_kill 4\n")
    guard.add("2")
    killed = guard.remove("1")
    assert killed is not None
    assert killed.by_kernel
    assert "the 200Mi of the container were full, and the kernel killed a process" in killed.reason
    assert guard.remove("2") is None


def test_checks_are_more_frequent_above_half_of_the_limit(tmp_path: Path) -> None:
    assert guarding(tmp_path, 150).check() < guarding(tmp_path, 50).check()


def test_entered_guard_checks_by_itself(tmp_path: Path) -> None:
    with guarding(tmp_path, 180) as guard, running(LARGE, RUNNER_MODULE, **{RUN_VARIABLE: "67"}) as process:
        guard.add("67")
        assert process.wait(timeout=60) == -9


def test_container_without_limit_is_not_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "container_memory", lambda: None)
    with MemoryGuard(5) as guard:
        guard.add("1")
        assert (guard.limit_bytes, guard.remove("1")) == (5, None)


@pytest.mark.parametrize(
    ("requested", "container", "limit"),
    [(None, None, 0), (None, 768 << 20, 384 << 20), (None, 300 << 20, 256 << 20), (0, 768 << 20, 0), (5, None, 5)],
)
def test_default_limit_of_a_process_is_half_of_the_container(
    requested: int | None, container: int | None, limit: int
) -> None:
    assert resolve_memory_limit(requested, container) == limit
