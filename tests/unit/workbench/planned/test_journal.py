"""The clock of a replayed run shows the times of the first run."""

import json
import subprocess
import sys
import time
from pathlib import Path

from rolecall.workbench.planned.journal import TaskStart, write_times

SHOW = """
import datetime, json, os, time
from rolecall.workbench.planned.journal import set_clock
installed = set_clock(os.environ)
def shown():
    return [time.time(), datetime.datetime.now(datetime.timezone.utc).timestamp()]
shows = [shown()]
for name, host in json.loads(os.environ["TASKS"]):
    installed.begin(name, host)
    shows.append(shown())
print(json.dumps(shows))
"""
HOUR = 3600.0


def shown(environment: dict[str, str], *tasks: tuple[str, str]) -> list[list[float]]:
    """Return the times of two clocks of Python at first, and at the start of each task."""
    variables = {**environment, "TASKS": json.dumps(tasks)}
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, env=variables)
    shows: list[list[float]] = json.loads(done.stdout)
    return shows


def are_near(clocks: list[float], expected: float) -> bool:
    return all(abs(expected - each) < 30.0 for each in clocks)


def test_clocks_of_python_are_set_back_and_continue(tmp_path: Path) -> None:
    variables = write_times(tmp_path / "times", time.time() - HOUR, [])
    [clocks] = shown(variables)
    assert are_near(clocks, time.time() - HOUR)


def test_each_start_of_a_task_has_its_time_of_the_first_run(tmp_path: Path) -> None:
    starts = [TaskStart("one", "a", 1000.0), TaskStart("one", "b", 5000.0), TaskStart("one", "a", 9000.0)]
    variables = write_times(tmp_path / "times", time.time() - HOUR, starts)
    _, *found = shown(variables, ("one", "a"), ("one", "a"), ("one", "b"))
    for clocks, expected in zip(found, (1000.0, 9000.0, 5000.0), strict=True):
        assert are_near(clocks, expected)


def test_task_that_the_first_run_did_not_have_does_not_set_the_clock(tmp_path: Path) -> None:
    variables = write_times(tmp_path / "times", time.time() - HOUR, [TaskStart("one", "a", 1000.0)])
    _, first, second = shown(variables, ("one", "a"), ("two", "a"))
    assert first[0] <= second[0]
    assert are_near(second, 1000.0)


def test_clock_is_unchanged_without_the_variable() -> None:
    _, clocks = shown({}, ("one", "a"))
    assert are_near(clocks, time.time())
