import os
import subprocess
import sys

from bench import process_tree

BURN = "import os, sys, time\nwhile time.process_time() < 0.3: pass\n"
BURNS_IN_A_CHILD = (
    f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}]); print(flush=True); input()"
)
HAS_A_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(flush=True); input()'])"


def test_the_time_of_a_child_that_has_ended_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", BURNS_IN_A_CHILD], stdin=-1, stdout=-1) as parent:
        assert parent.stdout
        parent.stdout.readline()
        # The kernel counts user and system time of both processes in whole ticks, each rounded down.
        assert process_tree.cpu_seconds(parent.pid) >= 0.3 - 4 / os.sysconf("SC_CLK_TCK")
        parent.communicate(b"\n")


def test_the_memory_of_children_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", HAS_A_CHILD], stdin=-1, stdout=-1) as parent:
        assert parent.stdout
        parent.stdout.readline()
        both = process_tree.memory_bytes(parent.pid)
        [child] = (int(pid) for pid in open(f"/proc/{parent.pid}/task/{parent.pid}/children").read().split())  # noqa: PTH123, SIM115
        assert 0 < process_tree.memory_bytes(child) < both
        parent.communicate(b"\n")


def test_a_process_that_is_gone_uses_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    assert (process_tree.cpu_seconds(ended.pid), process_tree.memory_bytes(ended.pid)) == (0.0, 0)
    assert process_tree.memory_bytes(os.getpid()) > 0
