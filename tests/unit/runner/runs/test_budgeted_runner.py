import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.artifacts import BudgetedRunner
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.process import OnEvent, RunSpec
from rolecall.runner.runs.workspace import Inputs, Workspace

KIND = GVK("example.com", "v1", "Foo")
LIMIT_BYTES = 100 << 10


@dataclass
class Writer:
    """A runner whose runs leave 40 KiB; those of the role ``stuck`` do so and then last for ever."""

    limit_bytes: int = -1

    async def run(self, spec: RunSpec, on_event: OnEvent) -> RunSummary:  # noqa: ARG002 - there are no events
        """Leave something."""
        self.limit_bytes = spec.artifact_limit_bytes
        (spec.workspace.artifacts(spec.ident) / "stdout").write_bytes(b"x" * (40 << 10))
        if spec.content.path.name == "stuck":
            await asyncio.Event().wait()
        return RunSummary("successful")


def prepared(root: Path, ident: str, role: str = "foo", variables: str = "") -> RunSpec:
    workspace = Workspace(root, KIND, ObjectKey("default", "one"))
    workspace.prepare(ident, Inputs({"data": variables}))
    return RunSpec(ident, workspace, RoleContent(Path(role)))


async def test_runs_are_within_the_budget_when_they_return(tmp_path: Path) -> None:
    async with BudgetedRunner.of(Writer(), LIMIT_BYTES, tmp_path, [KIND]) as runner:
        for number in range(6):
            await runner.run(prepared(tmp_path, str(number)), lambda _: None)
            assert runner.budget.total_bytes <= LIMIT_BYTES
            assert (tmp_path / "example.com/v1/Foo/default/one/artifacts" / str(number)).is_dir()


async def test_a_run_may_have_an_eighth(tmp_path: Path) -> None:
    writer = Writer()
    async with BudgetedRunner.of(writer, LIMIT_BYTES, tmp_path, []) as runner:
        await runner.run(prepared(tmp_path, "1"), lambda _: None)
    assert writer.limit_bytes == LIMIT_BYTES // 8


async def test_a_cancelled_run_counts_too(tmp_path: Path) -> None:
    async with BudgetedRunner.of(Writer(), LIMIT_BYTES, tmp_path, []) as runner:
        running = asyncio.create_task(runner.run(prepared(tmp_path, "1", "stuck"), lambda _: None))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert runner.budget.total_bytes >= 40 << 10


@pytest.mark.parametrize(("variables", "is_kept"), [("few", True), ("x" * 100_000, False)])
async def test_large_variables_do_not_stay_on_disk(tmp_path: Path, variables: str, is_kept: bool) -> None:  # noqa: FBT001
    spec = prepared(tmp_path, "1", variables=variables)
    async with BudgetedRunner.of(Writer(), LIMIT_BYTES, tmp_path, []) as runner:
        await runner.run(spec, lambda _: None)
    assert (variables in (spec.workspace.path / "env" / "extravars").read_text()) is is_kept
