import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.informer import Informer
from rolecall.runner.runs.disk_space import ArtifactBudget, OrphanedWorkspaces, remove_old_kubeconfigs, size_on_disk
from rolecall.runner.runs.workspace import Workspace, workspaces_of
from rolecall.system.clock import LoopClock
from tests.support.things import THING
from tests.unit.fake_cluster import FakeCluster

KIND = GVK("example.com", "v1", "Foo")


def store(root: Path, ident: str, name: str = "one", *, is_failed: bool = False, variables: str = "") -> Path:
    """Leave the artifacts of a run, of 44 to 48 KiB on disk."""
    workspace = Workspace(root, KIND, ObjectKey("default", name))
    workspace.prepare(ident, {"data": variables})
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
    # Newer than the budget, so it belongs to this operator. The kernel's times of files lag by some milliseconds.
    os.utime(store(tmp_path, "5", "unfinished"), (time.time() + 1,) * 2)
    with budget.running(tmp_path, [KIND]):
        pass
    assert kept(tmp_path) == ["1", "2", "5"]  # the failed one, and the newest of the others
    assert budget.total_bytes == 2 * size


@pytest.mark.parametrize(("vanishing", "counted"), [("default", 0), ("default/gone/artifacts", 1)])
def test_runs_of_an_earlier_operator_count_while_workspaces_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vanishing: str, counted: int
) -> None:
    """A directory that has been found may be gone when its entries are read; the others count."""
    size = size_on_disk(store(tmp_path, "1", "kept"))
    store(tmp_path, "2", "gone")

    def remove_and_read(read: Callable[[str], object], path: str) -> object:
        if str(path).endswith(f"/Foo/{vanishing}"):
            shutil.rmtree(path, ignore_errors=True)
        return read(path)

    for name in ("scandir", "listdir"):  # pathlib uses both, depending on the version of Python
        monkeypatch.setattr(os, name, partial(remove_and_read, getattr(os, name)))
    budget = ArtifactBudget(10 * size)
    budget.load(tmp_path, [KIND])
    assert budget.total_bytes == counted * size


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


HERE, THERE = ObjectKey("here", "one"), ObjectKey("there", "one")


def workspace(root: Path, key: ObjectKey, gvk: GVK = THING) -> Path:
    """Make the workspace of an object and return its directory."""
    made = Workspace(root, gvk, key)
    made.prepare("7", {})
    return made.path


@pytest.fixture
def informer(cluster: FakeCluster) -> Informer:
    """Return a synced informer without objects."""
    informer = Informer(cluster, THING, None, LoopClock())
    informer.on_list_complete(None, set(), "")
    return informer


async def test_only_workspaces_without_an_object_are_removed(tmp_path: Path, informer: Informer) -> None:
    known, busy, cluster_scoped = ObjectKey("here", "known"), ObjectKey("here", "busy"), ObjectKey("", "one")
    metadata = {"namespace": "here", "name": "known", "uid": "u", "resourceVersion": "1"}
    informer.on_watch_event("ADDED", {"apiVersion": THING.api_version, "kind": THING.kind, "metadata": metadata})
    orphaned = [workspace(tmp_path, key) for key in (HERE, cluster_scoped)]
    kept = [workspace(tmp_path, key) for key in (known, busy, THERE)]
    kept += [
        workspace(tmp_path, HERE, GVK(*gvk)) for gvk in (("other.com", "v1", "Thing"), (THING.group, "v2", "Thing"))
    ]
    kept.append(kept[0].with_name("photos"))  # not a workspace
    kept[-1].mkdir()
    forgotten: list[ObjectKey] = []
    await OrphanedWorkspaces(tmp_path, informer, ("here",), lambda key: key == busy, forgotten.append).remove()
    assert sorted(map(str, forgotten)) == sorted(map(str, (HERE, cluster_scoped)))
    assert not any(path.exists() for path in orphaned)
    assert all(path.is_dir() for path in kept)
    assert set(workspaces_of(tmp_path, THING)) == {known, busy, THERE}


@pytest.mark.parametrize("key", [ObjectKey("env", "artifacts"), ObjectKey("artifacts", "env"), ObjectKey("", "env")])
def test_object_may_have_the_name_of_a_workspace_directory(tmp_path: Path, key: ObjectKey) -> None:
    workspace(tmp_path, key)
    assert workspaces_of(tmp_path, THING) == [key]


# No test has a process of this run: its kubeconfig would be kept.
ENDED = "kubeconfig-7002618435"


def kubeconfig(directory: Path, name: str = ENDED, age_seconds: float = 3600) -> Path:
    """Write a kubeconfig of this age, and return its path."""
    path = directory / name
    path.write_text("secret of a dead run")
    os.utime(path, (time.time() - age_seconds,) * 2)
    return path


@pytest.mark.parametrize(
    ("name", "age_seconds", "is_shared", "is_kept"),
    [
        (ENDED, 3600, True, False),
        (ENDED, 0, True, True),
        (ENDED, 0, False, False),
        ("kubeconfig-production", 3600, True, True),
    ],
    ids=["old", "maybe of a starting run", "own directory", "of a user"],
)
def test_kubeconfigs_of_ended_runs_are_removed(
    tmp_path: Path, name: str, age_seconds: float, *, is_shared: bool, is_kept: bool
) -> None:
    path = kubeconfig(tmp_path, name, age_seconds)
    remove_old_kubeconfigs(tmp_path, is_shared=is_shared)
    assert path.exists() is is_kept


def test_kubeconfig_of_another_user_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(tmp_path)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    remove_old_kubeconfigs(tmp_path, is_shared=True)
    assert path.exists()
