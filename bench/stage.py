"""What every measurement stands on: a cluster, a directory, and words for waiting and for progress.

Waiting is always for a condition with a deadline; how often a condition is looked at never decides a number of the
report, because reported times are recorded when something happens.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from rolecall.kube.client import Client

PROJECT = Path(__file__).resolve().parents[1]
REPEATS = 5
LOOK_EVERY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Stage:
    """A directory for files, a client and two kubeconfig files: the administrator's and the operator's own account."""

    directory: Path
    client: Client
    kubeconfig: Path
    account: Path

    async def namespace(self, name: str) -> str:
        """Create a namespace and return its name."""
        await self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def subdirectory(self, name: str) -> Path:
        """Make a directory and return it."""
        directory = self.directory / name
        directory.mkdir(parents=True)
        return directory


def progress(text: str) -> None:
    """Print progress."""
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")


async def until(holds: Callable[[], Awaitable[object]], within_seconds: float, what: str) -> None:
    """Wait until something holds. Raises TimeoutError that names it."""
    deadline = time.monotonic() + within_seconds
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_seconds:g} s: {what}")
        await asyncio.sleep(LOOK_EVERY_SECONDS)
