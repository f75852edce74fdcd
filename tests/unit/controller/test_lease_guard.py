import math
import subprocess
import sys
import threading
import time
from pathlib import Path

from rolecall.controller.lease_guard import LeaseGuard


def test_the_guard_strikes_before_the_lease_ends() -> None:
    struck = threading.Event()
    guard = LeaseGuard(0.2, struck.set)
    guard.start()
    guard.renewed(time.monotonic() + 0.3)
    assert struck.wait(5)


def test_the_guard_does_not_strike_while_the_lease_is_renewed_or_was_given_back() -> None:
    struck = threading.Event()
    guard = LeaseGuard(0.1, struck.set)
    guard.start()
    guard.renewed(time.monotonic() + 0.3)
    guard.renewed(math.inf)
    assert not struck.wait(0.6)


STANDING_STILL = """
import subprocess, sys, time
from rolecall.controller.lease_guard import LeaseGuard, _end_everything

child = subprocess.Popen(["sleep", "300"])
print(child.pid, flush=True)
guard = LeaseGuard(0.1, _end_everything)
guard.start()
guard.renewed(time.monotonic() + 0.3)
time.sleep(300)
"""


def test_an_operator_that_stands_still_is_ended_with_all_its_processes() -> None:
    with subprocess.Popen([sys.executable, "-c", STANDING_STILL], stdout=subprocess.PIPE, text=True) as operator:
        assert operator.stdout
        child = int(operator.stdout.readline())
        assert operator.wait(30) == 1
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
