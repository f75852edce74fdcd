import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rolecall.system.processes import descendants, end_descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process trees are walked through /proc")

SLEEP = "import time; print('ready', flush=True); time.sleep(300)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP
DETACHED = f"""
import subprocess, sys
process = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)
process.wait()
"""
TREE = """
import subprocess, sys
from rolecall.system.processes import become_subreaper, end_descendants
import os
become_subreaper()
program = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)
program.stdout.readline()
print(end_descendants(os.getpid(), float(sys.argv[2])), program.wait(), flush=True)
"""


def end_a_tree(program: str, grace_seconds: float) -> str:
    """Start a program below a process that stops all its descendants; return the output."""
    command = [sys.executable, "-c", TREE, program, str(grace_seconds)]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout.strip()


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


def test_program_gets_sigterm() -> None:
    assert end_a_tree(SLEEP, 50) == f"[] {-signal.SIGTERM}"


def test_program_that_ignores_sigterm_is_killed_after_grace() -> None:
    assert end_a_tree(STUBBORN, 0.1) == f"[] {-signal.SIGKILL}"


def test_program_in_separate_session_is_stopped() -> None:
    with running(DETACHED) as process:
        assert len(descendants(process.pid)) == 1
        assert end_descendants(process.pid, 5) == []
        assert descendants(process.pid) == []


def test_exited_process_has_no_descendants() -> None:
    with running("print('ready')") as process:
        process.wait()
        assert descendants(process.pid) == []
    assert descendants(process.pid) == []


def test_tree_is_stopped_with_more_descriptors_than_select_supports() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held = [os.dup(0) for _ in range(1100)]
    try:
        with running(DETACHED) as process:
            assert end_descendants(process.pid, 5) == []
            assert descendants(process.pid) == []
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
