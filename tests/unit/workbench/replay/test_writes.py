"""The lines of a record have the start times of its tasks, for the clock of a replay."""

from pathlib import Path

from rolecall.runner.runs.events import RunEvent
from rolecall.workbench.planned.journal import TaskStart
from rolecall.workbench.replay.writes import RunLines
from tests.unit.workbench.replay.runs import run_of, stored


def test_task_starts_are_in_their_order(tmp_path: Path) -> None:
    run = run_of()
    for name, host, started in (("Wait", "b", "2027-01-15T08:00:02.5+00:00"), ("Ask", "a", "2027-01-15T08:00:01Z")):
        run.on_event(RunEvent(name="playbook_on_task_start", task=name, full_name=f"r : {name}", task_id=name))
        run.on_event(RunEvent(name="runner_on_ok", task=name, task_id=name, host=host, started=started))
    run.on_event(RunEvent(name="runner_on_ok", task="Old", task_id="Old", host="a"))

    assert RunLines.of_record(stored(tmp_path, run)).task_starts() == [
        TaskStart("r : Ask", "a", 1800000001.0),
        TaskStart("r : Wait", "b", 1800000002.5),
    ]
