"""Which reason a run gets whose container was full: runs and the kernel are stand-ins, the files are real."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.events import RunSummary, TaskFailure
from rolecall.runner.runs.memory import GuardedRunner, MemoryGuard
from rolecall.runner.runs.process import OnEvent, RunSpec
from rolecall.runner.runs.workspace import Workspace
from rolecall.system.control_groups import ContainerMemory, ControlGroup

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
