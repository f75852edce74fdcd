"""The processes of a run, found by the marks that each carries in its environment: its run, and its operator.

The process of a run ends everything below itself. If it is killed, its descendants become children of the operator, or
of whatever started that; the marks find them wherever they are.
"""

import os
from contextlib import suppress
from pathlib import Path

import psutil

from rolecall.system.processes import KILL_LIMIT_SECONDS, is_alive, kill_all

RUN_VARIABLE = "ROLECALL_JOB"
"""Names the run in the environment of each of its processes."""

OPERATOR_VARIABLE = "ROLECALL_OPERATOR"
"""Names the operator there; see ``operator_mark``."""

RUNNER_MODULE = "rolecall.runner.runs.runner_process"
"""The program in which a run is carried out."""

_START_TIME = 19
"""The place of the start time, in ticks, behind the name of a process in its ``stat``."""


def operator_mark(pid: int | None = None) -> str:
    """Return what tells an operator, by default this process, from every other process that is or was.

    Raises OSError if there is no such process. Numbers of processes are used again, and mean others elsewhere.
    """
    found = pid or os.getpid()
    started = Path(f"/proc/{found}/stat").read_text(errors="replace").rpartition(")")[2].split()[_START_TIME]
    return f"{_namespace()}:{found}:{started}"


def processes_of_run(ident: str) -> list[psutil.Process]:
    """Return all living processes, except this one, that carry the mark of a run."""
    return processes_by_run().get(ident, [])


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
    """Kill this user's runs whose operator is gone, because it was killed. Blocks.

    Return their names.
    """
    abandoned = [ident for ident, found in processes_by_run().items() if all(map(_is_abandoned, found))]
    for ident in abandoned:
        kill_run_processes(ident)
    return abandoned


def processes_by_run() -> dict[str, list[psutil.Process]]:
    """Return all living processes, except this one, that carry the mark of any run, by the name of the run."""
    found: dict[str, list[psutil.Process]] = {}
    for pid in psutil.pids():
        ident = _variable(pid, RUN_VARIABLE)
        with suppress(psutil.NoSuchProcess):
            if ident and pid != os.getpid() and is_alive(process := psutil.Process(pid)):
                found.setdefault(ident, []).append(process)
    return found


def _is_abandoned(process: psutil.Process) -> bool:
    """Return whether the operator of a process was of this namespace, and is gone."""
    namespace, _, rest = (mark := _variable(process.pid, OPERATOR_VARIABLE)).partition(":")
    if namespace != _namespace():
        return False
    try:
        return operator_mark(int(rest.partition(":")[0])) != mark
    except OSError:
        return True


def _namespace() -> str:
    """Return which numbers of processes are meant: a container has its own."""
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _variable(pid: int, name: str) -> str:
    """Return a variable of a process as it was started, empty if it has none or is gone."""
    prefix = f"{name}=".encode()
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((value[len(prefix) :].decode(errors="replace") for value in variables if value.startswith(prefix)), "")
