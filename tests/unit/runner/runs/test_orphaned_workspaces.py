import os
import time
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.informer import Informer
from rolecall.runner.runs.orphaned_workspaces import OrphanedWorkspaces, remove_old_kubeconfigs
from rolecall.runner.runs.run_processes import RUN_VARIABLE
from rolecall.runner.runs.workspace import Inputs, Workspace, workspaces_of
from tests.integration.things import THING
from tests.unit.fake_cluster import FakeCluster

HERE, THERE = ObjectKey("here", "one"), ObjectKey("there", "one")


def workspace(root: Path, key: ObjectKey, gvk: GVK = THING) -> Path:
    """Make the workspace of an object and return its folder."""
    made = Workspace(root, gvk, key)
    made.prepare("7", Inputs({}))
    return made.path


@pytest.fixture
def informer(cluster: FakeCluster) -> Informer:
    """Give an informer that knows all there is: nothing, until a test says otherwise."""
    informer = Informer(cluster, THING)
    informer.on_list_complete(None, set(), "")
    return informer


async def remove(root: Path, informer: Informer, *namespaces: str, busy: ObjectKey | None = None) -> list[ObjectKey]:
    """Remove the workspaces of objects that an informer does not know, and return what was forgotten with them."""
    forgotten: list[ObjectKey] = []
    await OrphanedWorkspaces(root, informer, namespaces, lambda key: key == busy, forgotten.append).remove()
    return forgotten


def know(informer: Informer, key: ObjectKey) -> None:
    """Let the informer know an object."""
    metadata = {"namespace": key.namespace, "name": key.name, "uid": "u", "resourceVersion": "1"}
    informer.on_watch_event("ADDED", {"apiVersion": THING.api_version, "kind": THING.kind, "metadata": metadata})


async def test_what_has_no_object_any_more_goes_and_the_rest_stays(tmp_path: Path, informer: Informer) -> None:
    gone, kept = workspace(tmp_path, HERE), workspace(tmp_path, THERE)
    know(informer, THERE)
    other_kind = workspace(tmp_path, HERE, GVK("other.example.com", "v1", "Thing"))
    other_version = workspace(tmp_path, HERE, GVK(THING.group, "v2", "Thing"))
    assert await remove(tmp_path, informer) == [HERE]
    assert not gone.exists()
    assert all(path.is_dir() for path in (kept, other_kind, other_version))
    assert workspaces_of(tmp_path, THING) == [THERE]


async def test_what_other_operators_namespaces_hold_stays(tmp_path: Path, informer: Informer) -> None:
    gone, kept = workspace(tmp_path, HERE), workspace(tmp_path, THERE)
    await remove(tmp_path, informer, "here")
    assert (gone.exists(), kept.exists()) == (False, True)


async def test_the_workspace_of_a_run_that_goes_on_stays(tmp_path: Path, informer: Informer) -> None:
    kept = workspace(tmp_path, HERE)
    assert await remove(tmp_path, informer, busy=HERE) == []
    assert kept.is_dir()


async def test_a_cluster_scoped_object_has_a_workspace_too(tmp_path: Path, informer: Informer) -> None:
    gone = workspace(tmp_path, ObjectKey("", "one"))
    await remove(tmp_path, informer, "here")
    assert not gone.exists()


async def test_a_folder_that_is_no_workspace_is_left_alone(tmp_path: Path, informer: Informer) -> None:
    precious = tmp_path / THING.group / THING.version / THING.kind / "here" / "photos"
    precious.mkdir(parents=True)
    await remove(tmp_path, informer)
    assert precious.is_dir()


@pytest.mark.parametrize("key", [ObjectKey("env", "artifacts"), ObjectKey("artifacts", "env"), ObjectKey("", "env")])
def test_an_object_may_have_the_name_of_a_folder_of_a_workspace(tmp_path: Path, key: ObjectKey) -> None:
    workspace(tmp_path, key)
    assert workspaces_of(tmp_path, THING) == [key]


def test_kubeconfigs_of_runs_that_are_no_more_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    kubeconfig(tmp_path, "kubeconfig-123")
    remove_old_kubeconfigs(tmp_path, is_shared=True)
    assert list(tmp_path.iterdir()) == []


def test_what_may_be_the_kubeconfig_of_a_run_that_starts_stays(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "kubeconfig-123", age_seconds=0)
    remove_old_kubeconfigs(tmp_path, is_shared=True)
    assert path.exists()


def test_in_a_directory_of_its_own_an_operator_removes_them_at_once(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "kubeconfig-123", age_seconds=0)
    remove_old_kubeconfigs(tmp_path, is_shared=False)
    assert not path.exists()


def test_a_kubeconfig_of_a_user_stays(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "kubeconfig-production")
    remove_old_kubeconfigs(tmp_path, is_shared=True)
    assert path.exists()


def test_a_kubeconfig_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(tmp_path, "kubeconfig-123")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    remove_old_kubeconfigs(tmp_path, is_shared=True)
    assert path.exists()


def kubeconfig(folder: Path, name: str, age_seconds: float = 3600) -> Path:
    """Write a kubeconfig that is so old, and return its path."""
    path = folder / name
    path.write_text("secret of a dead run")
    os.utime(path, (time.time() - age_seconds,) * 2)
    return path
