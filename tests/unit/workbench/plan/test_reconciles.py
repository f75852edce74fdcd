"""What the operator's side tells a planned run, and reads from it."""

from pathlib import Path

import pytest

from rolecall.runner.runs.planned.journal import Journal
from rolecall.workbench.plan.reconciles import EndedAt, NotWithheldError, PlannedOutcome, PlannedRun, WithheldTask

ASK = WithheldTask("id-1", "Ask", "/r/tasks/main.yml:1", "ansible.builtin.command", "runs a program", "localhost")
USE = EndedAt("id-2", "Use", "/r/tasks/main.yml:5", 2, ASK, "uses the result of 'Ask'")


def test_the_outcome_is_what_the_run_noted_each_task_and_the_first_end_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.start()
    for task in (ASK, ASK):
        journal.withhold(task)
    assert not journal.has_ended
    journal.end(USE)
    journal.end(EndedAt("id-3", "Other", "", 3, ASK, "uses it too"))
    assert journal.has_ended
    assert PlannedRun(tmp_path).outcome() == PlannedOutcome((ASK,), USE)


def test_a_run_that_did_not_begin_to_withhold_has_no_outcome(tmp_path: Path) -> None:
    with pytest.raises(NotWithheldError, match="it did not start"):
        PlannedRun(tmp_path).outcome()
    Journal(tmp_path).withhold(ASK)
    with pytest.raises(NotWithheldError):
        PlannedRun(tmp_path).outcome()


def test_the_environment_names_the_folder_and_says_whether_commands_run(tmp_path: Path) -> None:
    assert PlannedRun(tmp_path).environment() == {"ROLECALL_PLAN_DIRECTORY": str(tmp_path)}
    assert PlannedRun(tmp_path, run_commands=True).environment()["ROLECALL_PLAN_RUN_COMMANDS"] == "1"


def test_the_message_says_how_far_the_plan_is_complete_why_and_what_to_do() -> None:
    assert USE.message == (
        "complete up to task 2: Use: uses the result of 'Ask', which a plan does not run "
        "(ansible.builtin.command: runs a program); --run-commands runs it"
    )


def test_what_never_runs_comes_without_the_advice() -> None:
    final = WithheldTask("id-1", "Ask", "", "kubernetes.core.k8s_exec", "runs a program in a pod", may_run=False)
    assert "--run-commands" not in EndedAt("id-2", "Use", "", 2, final, "uses it").message
