"""The interfaces between a reconcile and the processes of its run.

The reconciler hands a ``RunSpec`` to a ``Runner`` and gets a ``RunSummary``. Every runner promises: no process of the
run is left when ``run`` returns or raises, a run that fails is a summary and never an exception, and a cancelled
``run`` ends its processes first. The operator's runner is ``process_runner.ProcessRunner``; a ``Starter`` gives it the
process of each run.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rolecall.runner.config.content import Content
from rolecall.runner.runs.events import RunEvent, RunSummary
from rolecall.runner.runs.shared_discovery import DiscoveryGrant
from rolecall.runner.runs.workspace import Workspace

OnEvent = Callable[[RunEvent], None]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that one run of a role or playbook needs; its workspace must be prepared for ``ident``.

    ``environment`` is added to the run's environment, and so is ``secret_environment``, whose values appear in no file,
    event or message of the run. ``revoke`` invalidates these values: it is awaited before a run is ended.
    ``timeout_seconds`` is the longest time that the run may take (None: no limit), ``grace_seconds`` the time between
    asking its processes to end and killing them. With ``unreachable_ok`` an unreachable host does not fail the run.
    Each of its processes may take ``memory_limit_bytes`` of memory (0: no limit), all
    its artifacts together ``artifact_limit_bytes`` of disk. ``output_in_events`` says
    whether the file of an event repeats what is printed for it in ``stdout``. ``discovery`` tells a warm run what its
    API server serves.
    """

    ident: str
    workspace: Workspace
    content: Content
    verbosity: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    revoke: Callable[[], Awaitable[None]] | None = None
    timeout_seconds: float | None = None
    grace_seconds: float = 5.0
    unreachable_ok: bool = False
    memory_limit_bytes: int = 0
    artifact_limit_bytes: int = 0
    output_in_events: bool = True
    discovery: DiscoveryGrant | None = None


class Runner(Protocol):
    """Runs a role or playbook; calls may overlap."""

    async def run(self, spec: RunSpec, on_event: OnEvent) -> RunSummary:
        """Run to the end, pass every event to ``on_event`` on the way, and return the summary.

        Cancelling the call ends the run within its grace period and then raises ``asyncio.CancelledError``.
        """
        ...


class RunProcess(Protocol):
    """The process of one run, ``python -m rolecall.runner.runs.runner_process``; ``asyncio.subprocess.Process`` is one."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """Events and the result of the run, as lines of JSON."""

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        """Whatever else it prints."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it is running."""

    async def wait(self) -> int:
        """Wait until the process has ended and return its exit code."""

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError if the process has ended."""

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process has ended."""


class Starter(Protocol):
    """Starts the process of a run; calls may overlap."""

    async def start(self, spec: RunSpec) -> RunProcess:
        """Start a process that has been given ``spec``. Raises OSError.

        Cancelling the call leaves no process of the run behind.
        """
        ...


def new_ident() -> str:
    """Return a new name for a run: a random number of 63 bits, in decimal, as the Go runner names its runs."""
    return str(secrets.randbits(63))
