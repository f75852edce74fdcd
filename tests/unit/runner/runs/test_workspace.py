import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from hypothesis import example, given
from hypothesis import strategies as st

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.runs.workspace import Workspace, workspaces_of
from tests.support.names import HOSTILE_NAMES, LONG_NAMES, NAMES

FOO = GVK("example.com", "v1", "Foo")
CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")
KEY = ObjectKey("default", "sample")


@pytest.fixture(autouse=True)
def _no_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    for variable in ("ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP", "ANSIBLE_ASYNC_DIR"):
        monkeypatch.delenv(variable, raising=False)


def prepared(workspace: Workspace, ident: str = "1", variables: Mapping[str, Any] | None = None, **inputs: Any) -> Path:
    workspace.prepare(ident, variables or {}, **inputs)
    return workspace.path


def runs(workspace: Workspace) -> list[str]:
    return sorted(path.name for path in (workspace.path / "artifacts").iterdir() if not path.is_symlink())


def run_once(workspace: Workspace, number: int) -> None:
    """Leave the artifacts of a run; runs are ordered by the times of their directories."""
    ident = str(number)
    workspace.prepare(ident, {})
    (workspace.artifacts(ident) / "stdout").write_text(ident)
    os.utime(workspace.artifacts(ident), (number, number))
    workspace.finish(ident)


@pytest.mark.parametrize(
    ("gvk", "key", "path"),
    [
        (FOO, KEY, "example.com/v1/Foo/default/sample"),
        (GVK("", "v1", "Secret"), KEY, "v1/Secret/default/sample"),
        (FOO, ObjectKey("", "sample"), "example.com/v1/Foo/sample"),
    ],
)
def test_path_leaves_out_empty_parts(tmp_path: Path, gvk: GVK, key: ObjectKey, path: str) -> None:
    assert Workspace(tmp_path, gvk, key).path == tmp_path / path


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../../etc"])
def test_name_cannot_lead_out_of_the_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a directory"):
        _ = Workspace(tmp_path, FOO, ObjectKey("default", name)).path


def test_longest_names_of_kubernetes_fit(tmp_path: Path) -> None:
    path = prepared(Workspace(tmp_path, FOO, ObjectKey("n" * 63, "x" * 253)))
    assert path == tmp_path / "example.com/v1/Foo" / ("n" * 63) / ("x" * 253)


@contextmanager
def new_directory() -> Iterator[Path]:
    """Yield a directory for one example of a property."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@given(st.sampled_from(["", "default"]), NAMES, NAMES)
@example("", HOSTILE_NAMES[0], LONG_NAMES[0])
@example("default", *LONG_NAMES[:2])
@example("", "a:b", "a+3Ab")
def test_every_name_has_a_plain_path_of_its_own_that_is_found_again(namespace: str, one: str, other: str) -> None:
    with new_directory() as root:
        keys = {ObjectKey(namespace, one), ObjectKey(namespace, other)}
        workspaces = [Workspace(root, CLUSTER_ROLE, key) for key in keys]
        for workspace in workspaces:
            path = prepared(workspace, variables={"name": workspace.key.name})
            assert re.fullmatch(r"[A-Za-z0-9/._%+~-]+", str(path.relative_to(root)))
            assert re.fullmatch(r"\.tmp/[0-9a-f]{16}", str(workspace.temporary.relative_to(root)))
        assert sorted(workspaces_of(root, CLUSTER_ROLE)) == sorted(keys)
        assert len({each.temporary for each in workspaces}) == len(keys)
        for workspace in workspaces:
            assert json.loads((workspace.path / "env/extravars").read_text()) == {"name": workspace.key.name}
            workspace.remove()
        assert workspaces_of(root, CLUSTER_ROLE) == []


def inventory_of(path: Path) -> dict[str, Any]:
    """Return the variables of the only host in a workspace's inventory, as Ansible reads and evaluates them."""
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(path / "inventory")])
    [host] = inventory.get_hosts("all")
    assert host.name == "localhost"
    variables = host.get_vars() | {"ansible_playbook_python": "/python"}
    return {name: Templar(loader, variables).template(value) for name, value in variables.items()}


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
@example("/a virtual  env")
@example('"x" # ')
@example('/it\'s "mine" {{ 1 + 1 }} {% raw %} {# # $HOME `id` \\ \n \u2028 é ☃ 😀')
def test_any_virtual_environment_is_one_value_of_the_inventory(virtual_env: str) -> None:
    with pytest.MonkeyPatch.context() as patch, new_directory() as root:
        patch.delenv("ANSIBLE_INVENTORY", raising=False)
        patch.setenv("VIRTUAL_ENV", virtual_env)
        workspace = Workspace(root / "a work", FOO, KEY)
        found = inventory_of(prepared(workspace))
        python = Path(found["ansible_python_interpreter"])
        directory = python.parent.parent
        assert python.relative_to(directory) == Path("bin/python3")
        if directory.is_symlink():
            assert directory.parent == workspace.temporary
            assert directory.readlink() == Path(virtual_env).absolute()
        else:
            assert str(python) == str(Path(f"{virtual_env}/bin/python3"))
        assert found["ansible_remote_tmp"] == str(workspace.temporary)
        assert found["ansible_async_dir"] == str(workspace.path / "async")
        assert found["ansible_connection"] == "local"


def test_other_users_can_read_nothing(tmp_path: Path) -> None:
    root = tmp_path / "runner"
    prepared(Workspace(root, FOO, KEY), variables={"password": "x"}, cmdline="--diff")
    for path in [root, *root.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert list(root.rglob("artifacts/*/stderr"))  # ansible-runner would create it readable for all users


def test_inputs_are_written(tmp_path: Path) -> None:
    path = prepared(Workspace(tmp_path, FOO, KEY), variables={"size": 3}, cmdline="--vault-password-file /v")
    assert json.loads((path / "env/extravars").read_text()) == {"size": 3}
    assert (path / "env/cmdline").read_text() == "--vault-password-file /v"


def test_variables_are_sorted_at_every_depth(tmp_path: Path) -> None:
    path = prepared(Workspace(tmp_path, FOO, KEY), variables={"b": 1, "a": [{"d": "é", "c": None}]})
    assert json.loads((path / "env/extravars").read_text(), object_pairs_hook=list) == [
        ("a", [[("c", None), ("d", "é")]]),
        ("b", 1),
    ]


def test_inputs_of_the_last_run_are_removed(tmp_path: Path) -> None:
    playbook = tmp_path / "p.yml"
    playbook.write_text("[]")
    workspace = Workspace(tmp_path, FOO, KEY)
    path = prepared(workspace, variables={"old": 1}, cmdline="--diff", playbook=playbook)
    assert (path / "project/playbook.yaml").read_text() == "[]"
    (workspace.temporary / "left").mkdir()  # by a killed run
    prepared(workspace, "2")
    assert not (workspace.temporary / "left").exists()
    assert not (path / "env/cmdline").exists()
    assert not (path / "project/playbook.yaml").exists()
    assert json.loads((path / "env/extravars").read_text()) == {}


@pytest.mark.parametrize(
    ("environment", "interpreter"),
    [({}, "{{ansible_playbook_python}}"), ({"VIRTUAL_ENV": "/venv"}, "/venv/bin/python3")],
    ids=["default", "virtual environment"],
)
def test_default_inventory_is_localhost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], interpreter: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    workspace = Workspace(tmp_path / "a work", FOO, KEY)
    path = prepared(workspace)
    directories = f"ansible_remote_tmp='{workspace.temporary}' ansible_async_dir='{path / 'async'}'"
    local = f"localhost ansible_connection=local ansible_python_interpreter={interpreter}"
    assert (path / "inventory/hosts").read_text() == f"{local} {directories}\n"


def test_unfinished_background_job_fails_with_its_run_and_finished_one_keeps_its_result(tmp_path: Path) -> None:
    """No process of a run survives it, so a job that hasn't finished by then never will."""
    workspace = Workspace(tmp_path, FOO, KEY)
    jobs = prepared(workspace) / "async"
    jobs.mkdir()
    (jobs / "j1.1").write_text('{"started": 1, "finished": 0, "ansible_job_id": "j1.1"}')
    (jobs / "j2.2").write_text('{"started": true, "finished": false, "ansible_job_id": "j2.2"}')
    (jobs / "j3.3").write_text(done := '{"changed": true, "rc": 0, "ansible_job_id": "j3.3"}')
    (jobs / "rubbish").write_text("[no JSON")
    (jobs / "list").write_text("[]")
    assert sorted(workspace.finish("1")) == ["j1.1", "j2.2"]
    assert (jobs / "j3.3").read_text() == done
    result = json.loads((jobs / "j1.1").read_text())
    assert result["failed"]
    assert "killed it" in result["msg"]
    assert "started" not in result  # so async_status reports it as finished
    assert workspace.finish("1") == []


def test_unfinished_background_job_of_killed_operator_fails_before_the_next_run(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, FOO, KEY)
    jobs = prepared(workspace) / "async"
    jobs.mkdir()
    (jobs / "j1.1").write_text('{"started": 1, "finished": 0, "ansible_job_id": "j1.1"}')
    prepared(workspace, "2")
    assert json.loads((jobs / "j1.1").read_text())["failed"]


def test_results_of_background_jobs_are_limited(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, FOO, KEY)
    jobs = prepared(workspace) / "async"
    jobs.mkdir()
    for number in range(150):
        (jobs / f"j.{number}").write_text("{}")
        os.utime(jobs / f"j.{number}", (number, number))
    workspace.finish("1")
    assert {path.name for path in jobs.iterdir()} == {f"j.{number}" for number in range(50, 150)}


def test_temporary_files_of_a_run_are_removed_with_it(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, FOO, KEY)
    prepared(workspace)
    assert workspace.temporary.stat().st_mode & 0o777 == 0o700
    (workspace.temporary / "left").mkdir()
    workspace.finish("1")
    assert not workspace.temporary.exists()


def test_temporary_directory_has_a_short_path_of_its_own(tmp_path: Path) -> None:
    long = [Workspace(tmp_path, FOO, ObjectKey("n" * 63, f"{number}" * 253)) for number in (1, 2)]
    assert len({each.temporary for each in long}) == 2
    assert all(len(str(each.temporary.relative_to(tmp_path))) < 30 for each in long)


def test_inventory_file_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("web1")
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(tmp_path / "mine"))
    assert (prepared(Workspace(tmp_path / "r", FOO, KEY)) / "inventory/hosts").read_text() == "web1"


def test_inventory_directory_is_copied_with_its_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine/group_vars").mkdir(parents=True)
    (tmp_path / "mine/group_vars/all.yml").write_text("a: 1")
    (tmp_path / "mine/dynamic").touch(0o755)
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(tmp_path / "mine"))
    inventory = prepared(Workspace(tmp_path / "r", FOO, KEY)) / "inventory"
    assert (inventory / "group_vars/all.yml").read_text() == "a: 1"
    assert os.access(inventory / "dynamic", os.X_OK)


def test_missing_inventory_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="gone"):
        prepared(Workspace(tmp_path, FOO, KEY))


def test_latest_is_the_last_ended_run(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, FOO, KEY)
    run_once(workspace, 1)
    run_once(workspace, 2)
    workspace.prepare("3", {})
    assert (workspace.path / "artifacts/latest/stdout").read_text() == "2"


@pytest.mark.parametrize(("keep", "kept"), [(1, 1), (2, 2), (3, 3), (0, 6), (-1, 6)])
def test_newest_runs_are_kept(tmp_path: Path, keep: int, kept: int) -> None:
    workspace = Workspace(tmp_path, FOO, KEY, keep)
    for number in range(1, 7):
        run_once(workspace, number)
    assert runs(workspace) == [str(number) for number in range(7 - kept, 7)]
    assert (workspace.path / "artifacts/latest/stdout").read_text() == "6"


def test_other_files_among_the_artifacts_are_kept(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, FOO, KEY, 1)
    run_once(workspace, 1)
    (workspace.path / "artifacts/notes.txt").write_text("mine")
    run_once(workspace, 2)
    assert runs(workspace) == ["2", "notes.txt"]


def test_removal_keeps_neighbors_and_removes_an_empty_namespace(tmp_path: Path) -> None:
    workspace, other = (Workspace(tmp_path, FOO, key) for key in (KEY, ObjectKey("default", "other")))
    run_once(workspace, 1)
    run_once(other, 1)
    workspace.remove()
    assert not workspace.path.exists()
    assert other.path.is_dir()
    other.remove()
    assert not other.path.parent.exists()
    other.remove()


def test_link_in_place_of_an_input_is_not_followed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, FOO, KEY)
    path = prepared(workspace)
    victim = tmp_path / "victim"
    victim.write_text("safe")
    (path / "env/extravars").unlink()
    (path / "env/extravars").symlink_to(victim)
    prepared(workspace, "2", {"size": 1})
    assert victim.read_text() == "safe"


def test_workspace_that_is_being_removed_is_none(tmp_path: Path) -> None:
    """Its files go one by one, and the one with a long name may be the first."""
    key = ObjectKey("ns", "☃" * 80)
    workspace = Workspace(tmp_path, GVK("example.com", "v1", "Thing"), key)
    workspace.prepare("1", {})
    assert workspaces_of(tmp_path, workspace.gvk) == [key]
    (workspace.path / "name").unlink()
    assert workspaces_of(tmp_path, workspace.gvk) == []
