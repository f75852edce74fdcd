import subprocess
import sys

import psutil
import pytest

from rolecall.runner.runs import process_marks
from rolecall.runner.runs.process_marks import (
    OPERATOR_VARIABLE,
    RUN_VARIABLE,
    RUNNER_MODULE,
    kill_abandoned_runs,
    kill_run_processes,
    operator_mark,
    processes_by_run,
    processes_of_run,
)
from rolecall.system.processes import become_subreaper
from tests.processes.system.test_processes import SLEEP, STUBBORN, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")

ABANDON = f"""
import subprocess, sys
command = [sys.executable, '-c', {STUBBORN!r}, {RUNNER_MODULE!r}]
process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
process.stdout.readline()
"""


def test_processes_of_a_run_are_found_by_their_mark() -> None:
    with (
        running(SLEEP, RUNNER_MODULE, **{RUN_VARIABLE: "41"}) as process,
        running(SLEEP, RUNNER_MODULE, **{RUN_VARIABLE: "410"}),
    ):
        assert [found.pid for found in processes_of_run("41")] == [process.pid]


def test_orphans_of_a_run_are_killed_without_zombies() -> None:
    become_subreaper()
    with running(ABANDON, **{RUN_VARIABLE: "42"}) as process:
        process.wait(timeout=60)
    orphan = processes_of_run("42")[0].pid
    assert kill_run_processes("42") == []
    assert not psutil.pid_exists(orphan)


def assert_killed_as_abandoned(ident: str, process: subprocess.Popen[bytes]) -> None:
    """Check that nothing is left of a run. An operator of another test may be the first to kill it."""
    kill_abandoned_runs()
    process.wait(timeout=60)
    assert processes_of_run(ident) == []


def test_run_is_abandoned_after_its_operator_has_ended() -> None:
    with running(SLEEP) as operator:
        gone = operator_mark(operator.pid)
    with running(STUBBORN, **{RUN_VARIABLE: "43", OPERATOR_VARIABLE: gone}) as process:
        assert_killed_as_abandoned("43", process)


def test_reused_process_id_is_not_the_operator() -> None:
    namespace, pid, started = operator_mark().split(":")
    earlier = f"{namespace}:{pid}:{int(started) - 1}"
    with running(SLEEP, **{RUN_VARIABLE: "44", OPERATOR_VARIABLE: earlier}) as process:
        assert_killed_as_abandoned("44", process)


def test_run_is_abandoned_if_one_of_its_processes_ends_during_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a process, which the operator's end often causes, must not save the other processes of its run."""
    with running(SLEEP) as operator:
        marks = {RUN_VARIABLE: "46", OPERATOR_VARIABLE: operator_mark(operator.pid)}
    with running(SLEEP, **marks) as ending, running(STUBBORN, **marks) as other:

        def processes_before_the_end() -> dict[str, list[psutil.Process]]:
            found = processes_by_run()
            ending.kill()
            ending.wait()
            return found

        monkeypatch.setattr(process_marks, "processes_by_run", processes_before_the_end)
        assert_killed_as_abandoned("46", other)


@pytest.mark.parametrize("mark", [operator_mark(), f"1:{2**22}:3", ""], ids=["alive", "in another container", "none"])
def test_run_is_not_abandoned_if_its_operator_might_be_alive(mark: str) -> None:
    with running(SLEEP, **{RUN_VARIABLE: "45", OPERATOR_VARIABLE: mark}) as process:
        assert "45" not in kill_abandoned_runs()
        assert process.poll() is None
