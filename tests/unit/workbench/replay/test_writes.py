"""The lines of a record tell when its tasks started, for the clock of a replay."""

from pathlib import Path

from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.planned.clock import TaskStart
from tests.unit.workbench.replay.stories import lines_of, run_of, stored


def test_tasks_are_in_the_order_of_their_starts_whichever_ended_first(tmp_path: Path) -> None:
    run = run_of()
    for name, host, started in (("Wait", "b", "2027-01-15T08:00:02.5+00:00"), ("Ask", "a", "2027-01-15T08:00:01Z")):
        run.on_event(RunEvent(name="playbook_on_task_start", task=name, full_name=f"r : {name}", task_id=name))
        run.on_event(RunEvent(name="runner_on_ok", task=name, task_id=name, host=host, started=started))
    run.on_event(RunEvent(name="runner_on_ok", task="Old", task_id="Old", host="a"))

    assert lines_of(stored(tmp_path, run)).task_starts() == [
        TaskStart("r : Ask", "a", 1800000001.0),
        TaskStart("r : Wait", "b", 1800000002.5),
    ]
