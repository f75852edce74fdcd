"""The operator with plays that end at once, as a program: what is left is what rolecall itself costs.

Everything else is the real thing: informers, work queue, workspace, secret and status. Each play's start is one line on
standard output, the monotonic time in nanoseconds and the object. It reads ``watches.yaml`` of the working directory
and is told of cluster and namespaces by the environment, as ``rolecall run`` is.
"""

import asyncio
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rolecall import logs
from rolecall.config.environment import watch_namespaces
from rolecall.config.settings import Settings
from rolecall.config.watches import load_watches
from rolecall.operator import run_operator
from rolecall.runs.events import RunSummary
from rolecall.runs.instant import InstantRunner, succeed
from rolecall.runs.runner import RunSpec

STANDARD_OUTPUT = 1


def told(job: RunSpec) -> RunSummary:
    """Tell of the play's start and return that it has ended well, now."""
    os.write(STANDARD_OUTPUT, f"{time.monotonic_ns()} {job.workspace.key}\n".encode())
    return replace(succeed(job), completion=datetime.now(UTC).isoformat())


def main() -> None:
    """Run until a signal says stop."""
    logs.configure(logs.LogSettings(encoder="json"))
    watches = load_watches(Path("watches.yaml"), os.environ)
    asyncio.run(run_operator(Settings(namespaces=watch_namespaces(os.environ)), watches, InstantRunner(told)))


if __name__ == "__main__":
    main()
