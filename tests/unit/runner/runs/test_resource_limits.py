import subprocess
import sys

PROGRAM = """
import subprocess, sys
from rolecall.runner.runs.resource_limits import PeakMemory, limit_memory
memory = PeakMemory()
limit_memory(int(sys.argv[1]))
eat = "x = bytearray(200 << 20); x[::4096] = b'y' * len(x[::4096])"
print(subprocess.run([sys.executable, "-c", eat], stderr=subprocess.DEVNULL).returncode, memory.most_bytes >> 20)
"""
PEAK = "from rolecall.runner.runs.resource_limits import PeakMemory; print(PeakMemory().most_bytes >> 20)"


def eat(limit_bytes: int) -> tuple[int, int]:
    """Start a program that takes 200 MiB below a process with this limit; return its exit code and the peak in MiB."""
    command = [sys.executable, "-c", PROGRAM, str(limit_bytes)]
    code, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(code), int(peak)


def test_a_limit_holds_for_what_a_process_starts() -> None:
    code, peak = eat(150 << 20)
    assert code == 1
    assert peak < 150


def test_without_a_limit_the_peak_is_that_of_the_largest_process() -> None:
    code, peak = eat(0)
    assert code == 0
    assert 200 < peak < 300


def test_what_the_parent_had_when_it_started_a_program_is_not_its_peak() -> None:
    start = f"""
import subprocess, sys
x = bytearray(200 << 20); x[::4096] = b'y' * len(x[::4096])
subprocess.run([sys.executable, "-c", {PEAK!r}], check=True)
"""
    assert int(subprocess.run([sys.executable, "-c", start], capture_output=True, check=True).stdout) < 100


def test_what_a_forked_process_shares_with_its_parent_is_not_its_peak() -> None:
    program = """
import os
from rolecall.runner.runs.resource_limits import PeakMemory
shared = bytearray(200 << 20); shared[::4096] = b'y' * len(shared[::4096])
if os.fork() == 0:
    memory = PeakMemory()
    before = memory.most_bytes
    own = bytearray(50 << 20); own[::4096] = b'y' * len(own[::4096])
    print((memory.most_bytes - before) >> 20)
else:
    os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert 45 < int(done.stdout) < 60
