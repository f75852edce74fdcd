"""Where a play is started: one small interface.

The reconciler hands a `RunSpec` to a `Runner` and gets a `RunSummary`; it does not know whether a process was started,
forked or spared. Every implementation promises: no process of the run is left when `run` returns or raises, a failing
play is a summary and never an exception, and a cancelled `run` ends the play first.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rolecall.config.content import Content
from rolecall.runs.events import RunEvent, RunSummary
from rolecall.runs.workspace import Workspace

OnEvent = Callable[[RunEvent], None]


async def _revoke_nothing() -> None:
    """Stand for a run without a secret."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that one run of a role or playbook needs; its workspace must be prepared for `ident`.

    `environment` is added to the play's, and so is `secret_environment`, whose values appear in no file, event or
    message of the run. `revoke` makes these values worthless: it is awaited first when a run has to be ended.
    `timeout_seconds` is the longest time that the run may take (None: no limit), `grace_seconds` the time between
    asking its processes to end and killing them. With `unreachable_ok` a host that cannot be reached is no
    failure.
    """

    ident: str
    workspace: Workspace
    content: Content
    verbosity: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    revoke: Callable[[], Awaitable[None]] = _revoke_nothing
    timeout_seconds: float | None = None
    grace_seconds: float = 5.0
    unreachable_ok: bool = False


class Runner(Protocol):
    """Runs one job at a time per call; calls may overlap."""

    async def run(self, job: RunSpec, on_event: OnEvent) -> RunSummary:
        """Run the job to its end, tell `on_event` everything on the way, and return what came of it.

        Cancelling the call ends the play within its grace and then raises `asyncio.CancelledError`.
        """
        ...


def new_ident() -> str:
    """Return a new name for a run: a random number of 63 bits, in decimal, as the Go runner names its runs."""
    return str(secrets.randbits(63))
