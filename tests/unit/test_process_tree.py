import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from rolecall.process_tree import (
    RUN_VARIABLE,
    RUNNER_MODULE,
    become_subreaper,
    descendants,
    end_descendants,
    kill_abandoned_runs,
    kill_run_processes,
    processes_of_run,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process trees are walked through /proc")

SLEEP = "import time; print('ready', flush=True); time.sleep(300)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP
ABANDON = f"""
import subprocess, sys
command = [sys.executable, '-c', {STUBBORN!r}, {RUNNER_MODULE!r}]
process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
process.stdout.readline()
"""
DETACHED = f"""
import subprocess, sys
process = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)
process.wait()
"""
TREE = """
import subprocess, sys
from rolecall.process_tree import become_subreaper, end_descendants
import os
become_subreaper()
program = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)
program.stdout.readline()
print(end_descendants(os.getpid(), float(sys.argv[2])), program.wait(), flush=True)
"""


def end_a_tree(program: str, grace_seconds: float) -> str:
    """Start a program below a process that ends everything below it; return what it says."""
    command = [sys.executable, "-c", TREE, program, str(grace_seconds)]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=30).stdout.strip()


@contextmanager
def running(program: str, *words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", program, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | environment) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process
        finally:
            end_descendants(process.pid, 0)
            process.kill()


def test_a_program_is_asked_to_end() -> None:
    assert end_a_tree(SLEEP, 10) == f"[] {-signal.SIGTERM}"


def test_a_program_that_ignores_the_request_is_killed_after_the_grace() -> None:
    assert end_a_tree(STUBBORN, 0.1) == f"[] {-signal.SIGKILL}"


def test_a_session_of_its_own_does_not_save_a_program() -> None:
    with running(DETACHED) as process:
        assert len(descendants(process.pid)) == 1
        assert end_descendants(process.pid, 5) == []
        assert descendants(process.pid) == []


def test_a_process_that_is_gone_has_no_descendants() -> None:
    with running("print('ready')") as process:
        process.wait()
        assert descendants(process.pid) == []
    assert descendants(process.pid) == []


def test_processes_of_a_run_are_found_by_their_mark() -> None:
    with (
        running(SLEEP, RUNNER_MODULE, **{RUN_VARIABLE: "41"}) as process,
        running(SLEEP, RUNNER_MODULE, **{RUN_VARIABLE: "410"}),
    ):
        assert [found.pid for found in processes_of_run("41")] == [process.pid]


def test_orphans_of_a_run_are_killed_and_leave_no_zombie() -> None:
    become_subreaper()
    with running(ABANDON, **{RUN_VARIABLE: "42"}) as process:
        process.wait(timeout=10)
    orphan = processes_of_run("42")[0].pid
    assert kill_run_processes("42") == []
    assert not psutil.pid_exists(orphan)


def test_a_run_without_its_play_is_stranded() -> None:
    with running(STUBBORN, **{RUN_VARIABLE: "43"}) as process:
        assert "43" in kill_abandoned_runs()
        assert processes_of_run("43") == []
        assert not psutil.pid_exists(process.pid)


def test_a_run_with_its_play_is_not_stranded() -> None:
    with running(SLEEP, RUNNER_MODULE, **{RUN_VARIABLE: "44"}) as process, running(SLEEP, **{RUN_VARIABLE: "44"}):
        assert "44" not in kill_abandoned_runs()
        assert process.poll() is None
