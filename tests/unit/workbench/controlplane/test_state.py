import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError
from rolecall.workbench.controlplane import state as component_processes
from rolecall.workbench.controlplane.state import (
    ProcessRecord,
    State,
    StateStore,
    default_state_directory,
    known_names,
    locked,
)

STATE = State(20000, 2, {"etcd": "/bin/etcd"}, {"etcd": ProcessRecord(7, "boot/1")})


def test_saved_state_is_loaded(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path)
    store.create_directories()
    store.save(STATE)
    assert StateStore("one", tmp_path).load() == STATE
    assert known_names(tmp_path) == ["one"]


def test_nothing_saved_is_none(tmp_path: Path) -> None:
    assert StateStore("one", tmp_path / "missing").load() is None
    assert known_names(tmp_path / "missing") == []


def test_a_damaged_state_names_the_file(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path)
    store.create_directories()
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
        store.create_directories()
        store.save(STATE)
        assert (tmp_path / "base").stat().st_mode & 0o777 == 0o700
        assert store.layout.root.stat().st_mode & 0o777 == 0o700
        assert (store.layout.root / "state.json").stat().st_mode & 0o777 == 0o600


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(ControlPlaneError, match="that only you can write to"), StateStore("one", base).lock():
        pytest.fail("nothing must happen in such a directory")


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "real")
    with pytest.raises(ControlPlaneError), StateStore("one", tmp_path / "base").lock():
        pytest.fail("nothing must happen behind a link")


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path / "base")
    with store.lock():
        store.create_directories()
        store.remove()
    store.remove_base_if_empty()
    assert list(tmp_path.iterdir()) == []


def test_the_base_stays_while_another_control_plane_is_in_it(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    StateStore("two", base).create_directories()
    StateStore("one", base).remove_base_if_empty()
    assert (base / "two").is_dir()


def test_the_default_is_below_the_runtime_directory_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_state_directory() == tmp_path / "rolecall"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_state_directory().name.startswith("rolecall-")


def test_stopping_removes_even_a_damaged_state(tmp_path: Path) -> None:
    store = StateStore("one", tmp_path / "base")
    with store.lock():
        store.create_directories()
    (store.layout.root / "state.json").write_text("[]")
    assert ControlPlane("one", state_directory=tmp_path / "base").stop()
    assert list(tmp_path.iterdir()) == []


DEADLINE_SECONDS = 90
IGNORES_TERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('set', flush=True); time.sleep(60)"
)


def _start(directory: Path, *command: str) -> ProcessRecord:
    return component_processes.start(
        command, directory=directory, log=directory / "log", environment={"PATH": os.defpath}
    )


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        os.sched_yield()


def test_a_started_process_is_alive_until_it_is_ended(tmp_path: Path) -> None:
    record = _start(tmp_path, "sleep", "60")
    assert component_processes.is_alive(record)
    assert component_processes.memory_bytes(record) > 0
    component_processes.end([record], grace_seconds=DEADLINE_SECONDS)
    assert not component_processes.is_alive(record)
    assert component_processes.memory_bytes(record) == 0


def test_process_that_ignores_the_request_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    record = _start(tmp_path, sys.executable, "-c", IGNORES_TERM)
    _wait_for(lambda: component_processes.last_lines(tmp_path / "log", 1) == ["set"])
    component_processes.end([record], grace_seconds=0.2)
    assert not component_processes.is_alive(record)


def test_a_recycled_number_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as somebody:
        record = ProcessRecord(somebody.pid, "another start")
        assert not component_processes.is_alive(record)
        component_processes.end([record], grace_seconds=0)
        assert somebody.poll() is None
        somebody.kill()


def test_a_process_that_ended_and_was_not_waited_for_is_not_alive(tmp_path: Path) -> None:
    record = _start(tmp_path, "true")
    _wait_for(lambda: not component_processes.is_alive(record))


def test_a_process_starts_in_a_session_of_its_own(tmp_path: Path) -> None:
    record = _start(tmp_path, "sleep", "60")
    assert os.getsid(record.pid) == record.pid
    component_processes.end([record], grace_seconds=0)


def test_output_is_added_to_the_log_and_read_from_its_end(tmp_path: Path) -> None:
    for word in ("one", "two", "three"):
        record = _start(tmp_path, "echo", word)
        _wait_for(lambda record=record: not component_processes.is_alive(record))  # type: ignore[misc]
    assert component_processes.last_lines(tmp_path / "log", 2) == ["two", "three"]
    assert component_processes.last_lines(tmp_path / "missing", 2) == []


def test_processes_are_found_by_their_directory_and_name(tmp_path: Path) -> None:
    record = _start(tmp_path, "sleep", "60")
    name = Path(f"/proc/{record.pid}/exe").resolve().name
    try:
        assert component_processes.find_in_directory(tmp_path, [name]) == [record]
        assert component_processes.find_in_directory(tmp_path, ["etcd"]) == []
        assert component_processes.find_in_directory(tmp_path / "other", [name]) == []
    finally:
        component_processes.end([record], grace_seconds=0)


def test_a_program_that_does_not_exist_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing-of-that-name"):
        _start(tmp_path, str(tmp_path / "nothing-of-that-name"))


def test_the_second_waits_and_hears_of_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waits, has_it = threading.Event(), threading.Event()

    def second() -> None:
        with locked(path, when_waiting=waits.set):
            has_it.set()

    thread = threading.Thread(target=second)
    with locked(path):
        thread.start()
        assert waits.wait(DEADLINE_SECONDS)
        assert not has_it.is_set()
    assert has_it.wait(DEADLINE_SECONDS)
    thread.join(DEADLINE_SECONDS)


def test_a_lock_that_removes_its_file_still_keeps_the_next_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    inside: list[int] = []
    most: list[int] = []

    def enter(number: int) -> None:
        for _ in range(50):
            with locked(path, remove=True):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert set(most) == {1}
    assert len(most) == 200
    assert not path.exists()


def test_missing_directories_are_made(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b" / "lock"):
        assert (tmp_path / "a" / "b" / "lock").exists()
