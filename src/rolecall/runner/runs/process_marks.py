"""The marks in the environment of each process of a run: the run, and its operator. They find processes anywhere.

The process of a run ends everything below itself. If it is killed, its descendants become children of the operator, or
of the operator's parent.
"""

import os
from contextlib import suppress
from pathlib import Path

import psutil

from rolecall.system.processes import KILL_LIMIT_SECONDS, is_alive, kill_all, reap_children

RUN_VARIABLE = "ROLECALL_JOB"
"""Names the run in the environment of each of its processes."""

OPERATOR_VARIABLE = "ROLECALL_OPERATOR"
"""Names the operator there; see ``operator_mark``."""

RUNNER_MODULE = "rolecall.runner.runs.runner_process"
"""The program of the process of a run."""

PLAYBOOK_MODULE = "rolecall.runner.runs.ansible_playbook"
"""The program that runs ansible-playbook in a new interpreter."""

_START_TIME = 19
"""The position of the start time, in ticks, after the name of a process in its ``stat``."""


def operator_mark(pid: int | None = None) -> str:
    """Return a mark that no other process has or had; by default that of this process.

    Raises OSError if there is no such process. Process ids are reused, and each container has its own.
    """
    found = pid or os.getpid()
    started = Path(f"/proc/{found}/stat").read_text(errors="replace").rpartition(")")[2].split()[_START_TIME]
    return f"{_namespace()}:{found}:{started}"


def processes_of_run(ident: str) -> list[psutil.Process]:
    """Return all living processes, except this one, that carry the mark of a run."""
    return processes_by_run().get(ident, [])


def kill_run_processes(ident: str, *, starter_reaps: bool = False) -> list[int]:
    """Kill every process that carries the mark of a run and return the ids of survivors. Blocks.

    When the process of the run has ended, those below it become children of this process, which reaps them, so that no
    zombies remain. With ``starter_reaps``, it leaves the process of the run to the starter, which needs its exit code.
    """
    groups = set[int]()

    def find() -> list[psutil.Process]:
        found = processes_of_run(ident)
        for process in found:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if not (starter_reaps and RUNNER_MODULE in process.cmdline()):
                    groups.add(os.getpgid(process.pid))
        return found

    survivors = kill_all(find, KILL_LIMIT_SECONDS)
    # By their groups, because a process that has ended by itself no longer has its mark.
    for group in groups - {os.getpgrp()}:
        reap_children(-group)
    return survivors


def kill_abandoned_runs() -> list[str]:
    """Kill this user's runs whose operator was killed, and return their names. Blocks."""
    states = {ident: {_is_abandoned(each) for each in found} for ident, found in processes_by_run().items()}
    abandoned = [ident for ident, found in states.items() if True in found and False not in found]
    for ident in abandoned:
        kill_run_processes(ident)
    return abandoned


def processes_by_run() -> dict[str, list[psutil.Process]]:
    """Return all living processes, except this one, that carry the mark of a run, by the name of the run."""
    found: dict[str, list[psutil.Process]] = {}
    for pid in psutil.pids():
        ident = _variable(pid, RUN_VARIABLE)
        with suppress(psutil.NoSuchProcess):
            if ident and pid != os.getpid() and is_alive(process := psutil.Process(pid)):
                found.setdefault(ident, []).append(process)
    return found


def _is_abandoned(process: psutil.Process) -> bool | None:
    """Return whether the operator of a process was in this namespace and has ended; None if the process has ended."""
    namespace, _, rest = (mark := _variable(process.pid, OPERATOR_VARIABLE)).partition(":")
    if namespace != _namespace():
        return False if is_alive(process) else None
    try:
        return operator_mark(int(rest.partition(":")[0])) != mark
    except OSError:
        return True


def _namespace() -> str:
    """Return the id of the PID namespace: a container has its own process ids."""
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _variable(pid: int, name: str) -> str:
    """Return a variable from the start of a process, empty if it isn't set or the process has ended."""
    prefix = f"{name}=".encode()
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((value[len(prefix) :].decode(errors="replace") for value in variables if value.startswith(prefix)), "")
