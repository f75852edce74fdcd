import os
import time
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.informer import Informer
from rolecall.runner.runs.cleanup import OrphanedWorkspaces, remove_old_kubeconfigs
from rolecall.runner.runs.workspace import Inputs, Workspace, workspaces_of
from tests.integration.things import THING
from tests.unit.fake_cluster import FakeCluster

HERE, THERE = ObjectKey("here", "one"), ObjectKey("there", "one")


def workspace(root: Path, key: ObjectKey, gvk: GVK = THING) -> Path:
    """Make the workspace of an object and return its directory."""
    made = Workspace(root, gvk, key)
    made.prepare("7", Inputs({}))
    return made.path


@pytest.fixture
def informer(cluster: FakeCluster) -> Informer:
    """Give a synced informer without objects."""
    informer = Informer(cluster, THING)
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


def kubeconfig(directory: Path, name: str = "kubeconfig-123", age_seconds: float = 3600) -> Path:
    """Write a kubeconfig of this age, and return its path."""
    path = directory / name
    path.write_text("secret of a dead run")
    os.utime(path, (time.time() - age_seconds,) * 2)
    return path


@pytest.mark.parametrize(
    ("name", "age_seconds", "is_shared", "is_kept"),
    [
        ("kubeconfig-123", 3600, True, False),
        ("kubeconfig-123", 0, True, True),
        ("kubeconfig-123", 0, False, False),
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
