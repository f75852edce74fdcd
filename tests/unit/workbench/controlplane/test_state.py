from pathlib import Path

import pytest

from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError
from rolecall.workbench.controlplane.state import ProcessRecord, State, StateStore, default_state_directory, known_names

STATE = State(20000, 2, {"etcd": "/bin/etcd"}, {"etcd": ProcessRecord(7, "boot/1")})


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path)
    store.create_folders()
    store.save(STATE)
    assert StateStore("one", tmp_path).load() == STATE
    assert known_names(tmp_path) == ["one"]


def test_nothing_saved_is_none(tmp_path: Path) -> None:
    assert StateStore("one", tmp_path / "missing").load() is None
    assert known_names(tmp_path / "missing") == []


def test_a_damaged_state_names_the_file(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path)
    store.create_folders()
    (store.layout.root / "state.json").write_text("[]")
    with pytest.raises(ControlPlaneError, match=r"state\.json: expected the state of a control plane"):
        store.load()


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "a-", "a" * 64])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="expected lower case letters"):
        StateStore(name, tmp_path)


def test_state_is_private(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path / "base")
    with store.lock():
        store.create_folders()
        store.save(STATE)
        assert (tmp_path / "base").stat().st_mode & 0o777 == 0o700
        assert store.layout.root.stat().st_mode & 0o777 == 0o700
        assert (store.layout.root / "state.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(ControlPlaneError, match="that only you can write to"), StateStore("one", base).lock():
        pytest.fail("nothing must happen in such a folder")


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "real")
    with pytest.raises(ControlPlaneError), StateStore("one", tmp_path / "base").lock():
        pytest.fail("nothing must happen behind a link")


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path / "base")
    with store.lock():
        store.create_folders()
        store.remove()
    store.remove_base_if_empty()
    assert list(tmp_path.iterdir()) == []


def test_the_base_stays_while_another_control_plane_is_in_it(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    StateStore("two", base).create_folders()
    StateStore("one", base).remove_base_if_empty()
    assert (base / "two").is_dir()


def test_the_default_is_below_the_runtime_folder_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_state_directory() == tmp_path / "rolecall"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_state_directory().name.startswith("rolecall-")


def test_stopping_removes_even_a_damaged_state(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path / "base")
    with store.lock():
        store.create_folders()
    (store.layout.root / "state.json").write_text("[]")
    assert ControlPlane("one", state_directory=tmp_path / "base").stop()
    assert list(tmp_path.iterdir()) == []
