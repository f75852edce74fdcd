"""The operator with plays that end immediately, as a program: what is left is what rolecall itself costs.

Everything else is the real thing: informers, work queue, workspace, secret and status. Each play's start is one line in
the file ``PLAYS``, the monotonic time in nanoseconds and the object; the monotonic clock is the same in all processes
of a machine. It reads ``watches.yaml`` of the working directory
and gets cluster and namespaces from the environment, like ``rolecall run``.
"""

import asyncio
import os
import time
from datetime import UTC, datetime
from pathlib import Path

from rolecall.cli.parsing import watch_namespaces
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import load_watches
from rolecall.runner.operator import run_operator
from rolecall.runner.runs.outcome import Counts, Outcome
from rolecall.runner.runs.process import OnEvent, RunSpec
from rolecall.system import logs


class InstantRunner:
    """Starts no process: every run ends immediately, with one task that changed nothing."""

    def __init__(self, starts: Path) -> None:
        self._starts = starts.open("ab", buffering=0)

    async def run(self, spec: RunSpec, on_event: OnEvent) -> Outcome:  # noqa: ARG002 - the interface
        """Write when the run started and return that it was successful; there are no events."""
        self._starts.write(f"{time.monotonic_ns()} {spec.workspace.key}\n".encode())
        return Outcome("successful", 0, counts=Counts(ok=1), completion=datetime.now(UTC).isoformat())


def main() -> None:
    """Run until a signal stops it."""
    logs.configure(logs.LogSettings(encoder="json"))
    watches = load_watches(Path("watches.yaml"), os.environ)
    runner = InstantRunner(Path(os.environ["PLAYS"]))
    asyncio.run(run_operator(Settings(namespaces=watch_namespaces(os.environ)), watches, runner))


if __name__ == "__main__":
    main()
