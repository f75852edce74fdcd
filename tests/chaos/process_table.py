"""The processes of an operator by role, and all processes with its mark."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import psutil

from rolecall.runner.runs.process_marks import PLAYBOOK_MODULE, RUN_VARIABLE, RUNNER_MODULE
from rolecall.system.processes import is_alive

FORK_SERVER_MODULE = "rolecall.runner.warm.server"
_OPERATOR = ("-m", "rolecall", "run")
MARK = "ROLECALL_CHAOS"
"""In the environment of the operator and therefore of its descendants, even orphaned ones."""


def _is_module(words: list[str]) -> bool:
    return any(word.startswith("AnsiballZ_") for word in words)


def _is_play(words: list[str]) -> bool:
    return PLAYBOOK_MODULE in words or any(word.endswith("ansible-playbook") for word in words)


BELOW: Mapping[str, Callable[[list[str]], bool]] = {
    "fork server": lambda words: FORK_SERVER_MODULE in words,
    "run": lambda words: RUNNER_MODULE in words,
    "play": _is_play,
    "module": _is_module,
}
"""Roles of an operator's descendants, by command line."""


def below(root: int, name: str) -> list[psutil.Process]:
    """Return the running descendants of a process with this role, oldest first."""
    found = []
    for process in _tree(root):
        with suppress(psutil.Error):
            if BELOW[name](process.cmdline()) and is_alive(process):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def operator_of(root: int) -> psutil.Process:
    """Return the operator itself: the started process, or its child if the former is the guard.

    Raises psutil.NoSuchProcess if there is none.
    """
    started = psutil.Process(root)
    for process in (started, *started.children()):
        with suppress(psutil.Error):
            if tuple(process.cmdline()[1:4]) == _OPERATOR:
                return process
    raise psutil.NoSuchProcess(root)


def resting(root: int) -> set[int]:
    """Return the processes of an operator without runs: itself, its guard, its fork server."""
    found = {root, *(server.pid for server in below(root, "fork server"))}
    with suppress(psutil.NoSuchProcess):
        found.add(operator_of(root).pid)
    return found


def marked(mark: str) -> list[psutil.Process]:
    """Return all running processes with this mark."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and is_alive(process):
                found.append(process)
    return found


def described(process: psutil.Process) -> str:
    """Describe a process briefly."""
    with suppress(psutil.Error):
        job = process.environ().get(RUN_VARIABLE, "no run")
        return f"process {process.pid} ({job}, {process.status()}): {' '.join(process.cmdline())[:160]}"
    return f"process {process.pid}, which has exited since"


def _tree(root: int) -> list[psutil.Process]:
    try:
        return psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
