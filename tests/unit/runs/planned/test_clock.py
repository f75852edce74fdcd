"""The clock of a run that is done again shows the time of the first run."""

import subprocess
import sys
import time

from rolecall.runs.planned import clock

SHOW = """
import os, time, datetime
from rolecall.runs.planned import clock
clock.install(os.environ)
print(time.time(), datetime.datetime.now(datetime.timezone.utc).timestamp())
"""


def shown(environment: dict[str, str]) -> list[float]:
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, env=environment)
    return [float(word) for word in done.stdout.split()]


def test_every_clock_of_python_is_set_back_and_goes_on() -> None:
    hour = 3600.0
    assert all(abs(time.time() - hour - each) < 30 for each in shown(clock.environment(hour)))


def test_without_the_variable_the_clock_is_right() -> None:
    assert all(abs(time.time() - each) < 30 for each in shown({}))
