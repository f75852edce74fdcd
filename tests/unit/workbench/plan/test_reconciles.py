"""A planned run is marked in its environment, and its notes are trusted only if it withheld tasks."""

from pathlib import Path

from rolecall.workbench.plan.reconciles import planned_environment, read_notes
from rolecall.workbench.planned.journal import EndedAt, Journal, WithheldTask

ASK = WithheldTask("id-1", "Ask", "/r/tasks/main.yml:1", "ansible.builtin.command", "runs a program")
USE = EndedAt("id-2", "Use", "/r/tasks/main.yml:5", 2, ASK, "uses the result of 'Ask'")


def test_notes_have_each_withheld_task_and_the_first_end_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.start()
    journal.withhold(ASK)
    journal.withhold(ASK)
    assert not journal.has_ended
    journal.end(USE)
    journal.end(EndedAt("id-3", "Other", "", 3, ASK, "uses it too"))
    assert journal.has_ended
    notes = read_notes(tmp_path)
    assert notes
    assert (notes.withheld, notes.ended) == ((ASK,), USE)


def test_run_that_ended_before_withholding_has_no_notes(tmp_path: Path) -> None:
    assert read_notes(tmp_path) is None
    Journal(tmp_path).withhold(ASK)
    assert read_notes(tmp_path) is None


def test_environment_names_the_directory_and_permits_commands(tmp_path: Path) -> None:
    assert planned_environment(tmp_path) == {"ROLECALL_PLAN_DIRECTORY": str(tmp_path)}
    assert planned_environment(tmp_path, run_commands=True)["ROLECALL_PLAN_RUN_COMMANDS"] == "1"


def test_end_message_has_task_reason_and_advice() -> None:
    assert USE.message == (
        "complete up to task 2: Use: uses the result of 'Ask', which a plan does not run "
        "(ansible.builtin.command: runs a program); --run-commands runs it"
    )
    final = WithheldTask("id-1", "Ask", "", "kubernetes.core.k8s_exec", "runs a program in a pod", may_run=False)
    assert "--run-commands" not in EndedAt("id-2", "Use", "", 2, final, "uses it").message
