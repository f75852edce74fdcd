"""The processes of a run, found by the mark that each carries in its environment.

The process of a run ends everything below itself. If it is killed, its descendants become children of the operator, or
of whatever started that; the mark finds them wherever they are.
"""

import os
from contextlib import suppress
from pathlib import Path

import psutil

from rolecall.process_tree import KILL_LIMIT_SECONDS, is_alive, kill_all

RUN_VARIABLE = "ROLECALL_JOB"
"""Names the run in the environment of each of its processes."""

RUNNER_MODULE = "rolecall.runs.runner_process"
"""The program in which a run is carried out."""

_OWN_MODULES = "rolecall."
"""What the name of that program begins with in any version."""


def processes_of_run(ident: str) -> list[psutil.Process]:
    """Return all living processes, except this one, that carry the mark of a run."""
    return _marked_processes().get(ident, [])


def kill_run_processes(ident: str) -> list[int]:
    """Kill every process that carries the mark of a run and return the ids of those that survived. Blocks.

    Call it after the process of the run has ended and was reaped: the processes below it have become children of this
    one, which reaps them too, so that no zombies stay.
    """
    killed, survivors = kill_all(lambda: processes_of_run(ident), KILL_LIMIT_SECONDS)
    for pid in killed:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return survivors


def kill_abandoned_runs() -> list[str]:
    """Kill this user's runs whose own process is gone, because it was killed together with its operator. Blocks.

    Return their names.
    """
    abandoned = [ident for ident, found in _marked_processes().items() if not any(map(_is_runner, found))]
    for ident in abandoned:
        kill_run_processes(ident)
    return abandoned


def _marked_processes() -> dict[str, list[psutil.Process]]:
    found: dict[str, list[psutil.Process]] = {}
    for pid in psutil.pids():
        ident = _mark(pid)
        with suppress(psutil.NoSuchProcess):
            if ident and pid != os.getpid() and is_alive(process := psutil.Process(pid)):
                found.setdefault(ident, []).append(process)
    return found


def _mark(pid: int) -> str:
    prefix = f"{RUN_VARIABLE}=".encode()
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((value[len(prefix) :].decode(errors="replace") for value in variables if value.startswith(prefix)), "")


def _is_runner(process: psutil.Process) -> bool:
    try:
        return any(word.startswith(_OWN_MODULES) for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False
