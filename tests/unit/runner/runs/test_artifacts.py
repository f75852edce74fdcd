import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.artifacts import ArtifactBudget, BudgetedRunner, size_on_disk
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


RUN_BYTES = 40 << 10


def store(root: Path, ident: str, name: str = "one", *, is_failed: bool = False) -> Path:
    """Leave the artifacts of a run, of 44 to 48 KiB on disk."""
    workspace = Workspace(root, KIND, ObjectKey("default", name))
    workspace.prepare(ident, Inputs({}))
    folder = workspace.artifacts(ident)
    (folder / "stdout").write_bytes(b"x" * RUN_BYTES)
    (folder / "status").write_text("failed" if is_failed else "successful")
    workspace.finish(ident)
    return folder


def left(root: Path) -> list[str]:
    return sorted(path.parent.name for path in root.rglob("stdout"))


def test_the_oldest_runs_of_all_objects_are_removed_first(tmp_path: Path) -> None:
    budget = ArtifactBudget(5 * size_on_disk(store(tmp_path, "0", "first")))
    for number in range(1, 8):
        budget.add(store(tmp_path, str(number), f"object-{number}"), is_failed=False)
    assert left(tmp_path) == ["0", "3", "4", "5", "6", "7"]  # 0 was never added


def test_failed_runs_are_removed_last(tmp_path: Path) -> None:
    budget = ArtifactBudget(3 * size_on_disk(store(tmp_path, "0")) + 1)
    for number, is_failed in enumerate([True, False, False, False], 1):
        budget.add(store(tmp_path, str(number), is_failed=is_failed), is_failed=is_failed)
    assert left(tmp_path) == ["0", "1", "4"]


def test_the_limit_holds_when_all_runs_have_failed(tmp_path: Path) -> None:
    size = size_on_disk(store(tmp_path, "0"))
    budget = ArtifactBudget(3 * size)
    for number in range(1, 30):
        budget.add(store(tmp_path, str(number), is_failed=True), is_failed=True)
        assert budget.total_bytes <= 3 * size


def test_what_others_have_removed_does_not_count(tmp_path: Path) -> None:
    size = size_on_disk(store(tmp_path, "0"))
    budget = ArtifactBudget(3 * size)
    for number in range(1, 20):
        workspace = Workspace(tmp_path, KIND, ObjectKey("default", f"short-{number}"))
        budget.add(store(tmp_path, str(number), workspace.key.name), is_failed=False)
        workspace.remove()
    budget.add(store(tmp_path, "20"), is_failed=False)
    assert "20" in left(tmp_path)
    assert budget.total_bytes <= 3 * size


def test_the_run_that_has_just_ended_stays_whatever_its_size(tmp_path: Path) -> None:
    folder = store(tmp_path, "1")
    ArtifactBudget(1).add(folder, is_failed=False)
    assert folder.is_dir()


def test_the_link_to_the_latest_run_goes_with_it(tmp_path: Path) -> None:
    budget = ArtifactBudget(1)
    first = store(tmp_path, "1", "first")
    budget.add(first, is_failed=False)
    budget.add(store(tmp_path, "2", "second"), is_failed=False)
    assert list(first.parent.iterdir()) == []


def test_runs_of_an_earlier_operator_count_in_the_order_of_their_ends(tmp_path: Path) -> None:
    for number, is_failed in enumerate([True, False, False, False], 1):
        folder = store(tmp_path, str(number), f"object-{number}", is_failed=is_failed)
        os.utime(folder, (1000 - number, 1000 - number))
    size = size_on_disk(folder)
    budget = ArtifactBudget(3 * size)
    budget.load(tmp_path, [KIND])
    assert left(tmp_path) == ["1", "2"]  # the failed one, and the newest of the others
    assert budget.total_bytes == 2 * size


def test_a_run_that_has_begun_since_the_start_is_not_one_of_an_earlier_operator(tmp_path: Path) -> None:
    budget = ArtifactBudget(1)
    folder = store(tmp_path, "1")
    budget.load(tmp_path, [KIND])
    assert folder.is_dir()
    assert budget.total_bytes == 0


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 5000])
def test_sizes_are_those_on_disk(tmp_path: Path, content: bytes) -> None:
    before = size_on_disk(tmp_path)
    (tmp_path / "file").write_bytes(content)
    assert size_on_disk(tmp_path) - before == (tmp_path / "file").stat().st_blocks * 512
