"""The measured operator: its own process, watched from outside.

Nothing is measured inside it but the moments at which plays start, which an operator with instant plays writes to its
standard output; the monotonic clock is the same in all processes of a machine. Its log goes to a file as it would in
production. Any other operator can be measured by its command line.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from bench.stage import until

PROGRAM = (sys.executable, "-m", "rolecall")
RUN = (*PROGRAM, "run", "--zap-encoder", "json")
READY_SECONDS, STOP_SECONDS = 60.0, 180.0
"""At its stop an operator removes its workspaces, which are ten thousand in the largest measurements."""


def program(text: str) -> Path:
    """Return the absolute path of a program, for an argument parser. Raises ArgumentTypeError."""
    path = Path(text).absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: expected a program, found none")
    return path


@dataclass(slots=True)
class PlayStarts:
    """When plays started, in monotonic seconds: the first of all, the last of each ``namespace/name``; and how many."""

    first: float = math.inf
    last: dict[str, float] = field(default_factory=dict)
    count: int = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Take lines of nanoseconds and object until the stream ends; other operators may print what they like."""
        async for line in stream:
            nanoseconds, _, name = line.decode(errors="replace").strip().partition(" ")
            if nanoseconds.isdecimal():
                self.last[name] = int(nanoseconds) / 1e9
                self.first = min(self.first, self.last[name])
                self.count += 1


@dataclass(frozen=True, slots=True)
class Operator:
    """A running operator."""

    process: asyncio.subprocess.Process
    log_file: Path
    started_at: float
    """When its process was requested, in seconds since the epoch."""
    plays: PlayStarts

    @property
    def memory_bytes(self) -> int:
        """Its proportional set size: its own pages, and its share of those that other processes use too."""
        memory: int = psutil.Process(self.process.pid).memory_full_info().pss
        return memory

    @property
    def cpu_seconds(self) -> float:
        """The CPU time that it has used, without the plays that it started."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    @property
    def log(self) -> str:
        """Its log so far."""
        return self.log_file.read_text(errors="replace")

    async def logged(self, message: str, within_seconds: float) -> float:
        """Wait for a message in its log and return the seconds from the start until then. Raises TimeoutError."""
        found: list[dict[str, Any]] = []

        async def is_logged() -> bool:
            if self.process.returncode is not None:
                raise RuntimeError(f"the operator has ended:\n{self.log[-2000:]}")
            entries = (_decoded(line) for line in self.log.splitlines() if message in line)
            found.extend(entry for entry in entries if entry.get("msg") == message)
            return bool(found)

        await until(is_logged, within_seconds, f"the operator logs {message!r}")
        return datetime.fromisoformat(str(found[0]["ts"])).timestamp() - self.started_at

    async def ready(self) -> float:
        """Wait until its workers have started and return how many seconds that took, by the time in its log.

        Raises RuntimeError if there are warnings: it would measure something else.
        """
        seconds = await self.logged("Workers started", READY_SECONDS)
        complaints = [line for line in self.log.splitlines() if _decoded(line).get("level") not in ("debug", "info")]
        if complaints:
            raise RuntimeError("the operator complains:\n" + "\n".join(complaints))
        return seconds

    async def cpu_percent(self, seconds: float) -> float:
        """Let it run for so long and return the share of one CPU that it used."""
        before, started = self.cpu_seconds, time.monotonic()
        await asyncio.sleep(seconds)
        return 100 * (self.cpu_seconds - before) / (time.monotonic() - started)


@asynccontextmanager
async def running(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> AsyncIterator[Operator]:
    """Start an operator in a directory, with these variables added to the environment, and stop it at the end."""
    log_file = directory / f"operator-{time.monotonic_ns()}.log"
    with log_file.open("wb") as log:
        started_at = time.time()
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout  # noqa: S101 - the process was started with a pipe
    operator = Operator(process, log_file, started_at, PlayStarts())
    reading = asyncio.create_task(operator.plays.read(process.stdout))
    try:
        yield operator
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(STOP_SECONDS):
            await asyncio.gather(process.wait(), reading)


def _decoded(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
