import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import ObjectKey
from tests.chaos import process_table
from tests.chaos.heartbeats import HEARTBEAT, condition_problems
from tests.chaos.leak_checks import Footprint, surplus_files
from tests.chaos.process_table import MARK
from tests.chaos.shortages import limit_that_leaves

KEY = ObjectKey("default", "one")


def _succeeded(**changes: str) -> dict[str, Any]:
    said = {"Successful": "True", "Failure": "False", "Running": "True"} | changes
    conditions = [{"type": kind, "status": status, "reason": "Successful"} for kind, status in said.items()]
    return {"metadata": {"generation": 3}, "status": {"observedGeneration": 3, "conditions": conditions}}


def test_a_status_that_says_success_of_this_generation_is_true() -> None:
    assert condition_problems(_succeeded()) == []


@pytest.mark.parametrize(("changes", "found"), [({"Successful": "False"}, 1), ({"Failure": "True"}, 1)])
def test_a_status_with_another_outcome_is_not(changes: dict[str, str], found: int) -> None:
    assert len(condition_problems(_succeeded(**changes))) == found


def test_a_status_of_an_older_generation_is_not() -> None:
    assert len(condition_problems({**_succeeded(), "metadata": {"generation": 4}})) == 1


def test_a_stuck_running_is_not() -> None:
    obj = _succeeded()
    obj["status"]["conditions"][2]["reason"] = "Running"
    assert len(condition_problems(obj)) == 1


def test_a_process_is_found_by_its_mark_wherever_it_is() -> None:
    """Its parent has ended, so that nothing else leads to it."""
    sleep = "echo $$ && exec sleep 60 >&- 2>&-"
    command = [sys.executable, "-c", f"import subprocess; subprocess.Popen({sleep!r}, shell=True)"]
    environment = {**os.environ, MARK: "of-this-test"}
    started = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    (found,) = process_table.marked("of-this-test")
    assert found.pid == int(started.stdout)
    assert "sleep 60" in process_table.described(found)
    found.kill()
    found.wait(60)
    assert process_table.marked("of-this-test") == []


def test_files_of_runs_and_of_objects_that_are_gone_are_surplus(tmp_path: Path) -> None:
    base = tmp_path / HEARTBEAT.group / HEARTBEAT.version / HEARTBEAT.kind / KEY.namespace
    for name in ("one", "gone"):
        (base / name / "env").mkdir(parents=True)
        (base / name / "env" / "extravars").write_text("{}")
    assert len(surplus_files(tmp_path, {HEARTBEAT: {KEY}})) == 1
    (tmp_path / "kubeconfig-1234").write_text("")
    assert len(surplus_files(tmp_path, {HEARTBEAT: {KEY}})) == 2
    assert len(surplus_files(tmp_path, {HEARTBEAT: {KEY, ObjectKey("default", "gone")}})) == 1


def test_growth_is_more_than_what_a_restart_explains() -> None:
    before = Footprint(100.0, 100)
    assert before.growth(Footprint(110.0, 105)) == []
    assert len(before.growth(Footprint(150.0, 100))) == 1
    assert len(before.growth(Footprint(100.0, 150))) == 1


@pytest.mark.parametrize(("count", "limit"), [(0, 3), (1, 4), (2, 7)])
def test_a_limit_leaves_so_many_descriptors_free_also_in_gaps(count: int, limit: int) -> None:
    assert limit_that_leaves(count, {0, 1, 2, 5, 6, 90}) == limit
