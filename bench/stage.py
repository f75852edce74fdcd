"""The base of every measurement: a cluster, a directory, sizes, waiting, progress, and the exit of the command.

Waits have a condition and a deadline. The interval between two checks never decides a number of the report, because
reported times are recorded when something happens.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError

PROJECT = Path(__file__).resolve().parents[1]
LOOK_EVERY_SECONDS = 0.05
AT_ONCE = 16
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Effort:
    """How often and with how much everything is measured; slow contenders get less where the report states so."""

    rounds: int = 8
    starts: int = 3
    objects: int = 200
    slow_objects: int = 12
    populations: tuple[int, ...] = (1_000, 10_000)
    planned: int = 200
    replays: int = 60
    writes: int = 100
    fleets: tuple[int, ...] = (100, 500, 1_000)
    is_quick: bool = False


QUICK = Effort(3, 1, 40, 8, (1_000,), planned=12, replays=6, writes=10, fleets=(20,), is_quick=True)


@dataclass(frozen=True, slots=True)
class Stage:
    """A directory for files, a client, two kubeconfig files (administrator and operator's account), and the sizes."""

    directory: Path
    client: Client
    kubeconfig: Path
    account: Path
    effort: Effort

    async def namespace(self, name: str) -> str:
        """Create a namespace and return its name."""
        await self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def subdirectory(self, name: str) -> Path:
        """Make a directory and return it."""
        directory = self.directory / name
        directory.mkdir(parents=True)
        return directory


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A control plane's own kubectl, as administrator."""

    plane: ControlPlane

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Run a command with a text as its input and return its output. Raise RuntimeError with its error output."""
        program, home = self.plane.program_directory / "kubectl", self.plane.kubeconfig.parent
        environment = {"KUBECONFIG": str(self.plane.kubeconfig), "HOME": str(home), "PATH": os.defpath}
        command = [str(program), *arguments]
        done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments[:2])}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects. Raise RuntimeError."""
        self.run("apply", "--server-side", "--filename=-", text=yaml.safe_dump_all(objects))

    def wait_for_definitions(self) -> None:
        """Wait until all kinds are served. Raise RuntimeError."""
        # A new definition has no conditions, which is an error for --for=condition.
        established = '--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True'
        self.run("wait", established, "--all", "customresourcedefinitions", "--timeout=60s")


def progress(text: str) -> None:
    """Print progress."""
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")


def print_report(measure: Callable[[], str]) -> int:
    """Print the report that a call returns, and return the exit code: 1 after an error, 130 if interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM also stops the control plane
    try:
        report = measure()
    except (ControlPlaneError, KubeError, RuntimeError, OSError) as error:
        progress(f"The benchmark failed: {error}")
        return 1
    except KeyboardInterrupt:
        progress("Interrupted; everything is stopped")
        return 130
    sys.stdout.write(report)
    return 0


async def until(find: Callable[[], Any], within_seconds: float, what: str) -> Any:
    """Wait until the result of a call, awaited if it must be, is true, and return it. Raises TimeoutError."""
    deadline = time.monotonic() + within_seconds
    while not (found := await result if isawaitable(result := find()) else result):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_seconds:g} s: {what}")
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    return found


async def side_by_side(requests: Iterable[Awaitable[Response]]) -> list[Response]:
    """Send these requests, some at a time, and return the responses in the same order."""
    free = asyncio.Semaphore(AT_ONCE)

    async def send(request: Awaitable[Response]) -> Response:
        async with free:
            return await request

    return await asyncio.gather(*map(send, requests))
