import os
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.runs.cleanup import ArtifactBudget, size_on_disk
from rolecall.runner.runs.workspace import Inputs, Workspace

KIND = GVK("example.com", "v1", "Foo")


def store(root: Path, ident: str, name: str = "one", *, is_failed: bool = False, variables: str = "") -> Path:
    """Leave the artifacts of a run, of 44 to 48 KiB on disk."""
    workspace = Workspace(root, KIND, ObjectKey("default", name))
    workspace.prepare(ident, Inputs({"data": variables}))
    artifacts = workspace.artifacts(ident)
    (artifacts / "stdout").write_bytes(b"x" * (40 << 10))
    (artifacts / "status").write_text("failed" if is_failed else "successful")
    workspace.finish(ident)
    return artifacts


def kept(root: Path) -> list[str]:
    return sorted(path.parent.name for path in root.rglob("stdout"))


def test_oldest_runs_of_all_objects_are_removed_first(tmp_path: Path) -> None:
    budget = ArtifactBudget(5 * size_on_disk(store(tmp_path, "0", "first")))
    for number in range(1, 8):
        budget.add(store(tmp_path, str(number), f"object-{number}"), is_failed=False)
    assert kept(tmp_path) == ["0", "3", "4", "5", "6", "7"]  # 0 was never added


def test_failed_runs_are_removed_last(tmp_path: Path) -> None:
    budget = ArtifactBudget(3 * size_on_disk(store(tmp_path, "0")) + 1)
    for number, is_failed in enumerate([True, False, False, False], 1):
        budget.add(store(tmp_path, str(number), is_failed=is_failed), is_failed=is_failed)
    assert kept(tmp_path) == ["0", "1", "4"]


def test_limit_holds_when_all_runs_have_failed(tmp_path: Path) -> None:
    size = size_on_disk(store(tmp_path, "0"))
    budget = ArtifactBudget(3 * size)
    for number in range(1, 30):
        budget.add(store(tmp_path, str(number), is_failed=True), is_failed=True)
        assert budget.total_bytes <= 3 * size


def test_directories_that_others_have_removed_do_not_count(tmp_path: Path) -> None:
    size = size_on_disk(store(tmp_path, "0"))
    budget = ArtifactBudget(3 * size)
    for number in range(1, 20):
        budget.add(store(tmp_path, str(number), f"short-{number}"), is_failed=False)
        Workspace(tmp_path, KIND, ObjectKey("default", f"short-{number}")).remove()
    budget.add(store(tmp_path, "20"), is_failed=False)
    assert "20" in kept(tmp_path)
    assert budget.total_bytes <= 3 * size


def test_latest_run_is_kept_and_link_to_an_older_one_goes_with_it(tmp_path: Path) -> None:
    budget = ArtifactBudget(1)
    first, second = store(tmp_path, "1", "first"), store(tmp_path, "2", "second")
    budget.add(first, is_failed=False)
    assert first.is_dir()
    budget.add(second, is_failed=False)
    assert list(first.parent.iterdir()) == []
    assert second.is_dir()


def test_runs_of_an_earlier_operator_count_in_the_order_of_their_ends(tmp_path: Path) -> None:
    for number, is_failed in enumerate([True, False, False, False], 1):
        artifacts = store(tmp_path, str(number), f"object-{number}", is_failed=is_failed)
        os.utime(artifacts, (1000 - number, 1000 - number))
    size = size_on_disk(artifacts)
    budget = ArtifactBudget(3 * size)
    store(tmp_path, "5", "unfinished")  # newer than the budget, so it belongs to this operator
    with budget.running(tmp_path, [KIND]):
        pass
    assert kept(tmp_path) == ["1", "2", "5"]  # the failed one, and the newest of the others
    assert budget.total_bytes == 2 * size


@pytest.mark.parametrize(("variables", "is_kept"), [("few", True), ("x" * 100_000, False)])
async def test_large_variables_are_dropped_after_the_run(tmp_path: Path, variables: str, *, is_kept: bool) -> None:
    artifacts = store(tmp_path, "1", variables=variables)
    budget, workspace = ArtifactBudget(1), Workspace(tmp_path, KIND, ObjectKey("default", "one"))
    await budget.add_run(workspace, "1", is_failed=False)
    assert budget.total_bytes == size_on_disk(artifacts)
    assert (variables in (workspace.path / "env" / "extravars").read_text()) is is_kept


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 5000])
def test_sizes_are_those_on_disk(tmp_path: Path, content: bytes) -> None:
    before = size_on_disk(tmp_path)
    (tmp_path / "file").write_bytes(content)
    assert size_on_disk(tmp_path) - before == (tmp_path / "file").stat().st_blocks * 512
