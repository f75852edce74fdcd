import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.workbench.controlplane import state as component_processes
from rolecall.workbench.controlplane.state import ProcessRecord

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


def test_who_ignores_the_request_is_killed_after_the_grace(tmp_path: Path) -> None:
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


def test_processes_are_found_by_their_folder_and_name(tmp_path: Path) -> None:
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
