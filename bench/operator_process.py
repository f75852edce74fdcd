"""The measured operator: its own process tree, watched from outside, with its output in a file.

Any operator can be measured by its command line: rolecall, the Go runner, kopf. The benchmark, the comparison of
existing projects, and the judges start theirs here.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bench import process_tree
from bench.stage import until

PROGRAM = (sys.executable, "-m", "rolecall")
RUN = (*PROGRAM, "run", "--zap-encoder", "json")
STARTED: Final = "Workers started|[Ss]tarting workers"
"""The log line of a ready operator: rolecall's, and the Go runner's."""
_STARTED_SECONDS, _STOP_SECONDS = 120.0, 180.0
"""At its stop an operator removes its workspaces, which are ten thousand in the largest measurements."""
_QUIET_SHARE: Final = 0.06
_LOG_END: Final = 2000


def program(text: str) -> Path:
    """Return the absolute path of a program, for an argument parser. Raises ArgumentTypeError."""
    path = Path(text).absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: expected a program, found none")
    return path


@dataclass(frozen=True, slots=True)
class Operator:
    """A running operator."""

    process: subprocess.Popen[bytes]
    log_file: Path
    started_at: float
    """When its process was requested, in seconds since the epoch."""

    @property
    def cpu_seconds(self) -> float:
        """The CPU time that its whole tree has used so far."""
        return process_tree.cpu_seconds(self.process.pid)

    @property
    def memory_mib(self) -> float:
        """The memory of its whole tree: proportional set size."""
        return process_tree.memory_bytes(self.process.pid) / 1024**2

    @property
    def log(self) -> str:
        """Its output so far."""
        return self.log_file.read_text(errors="replace")

    async def until(self, find: Callable[[], Any], within_seconds: float, what: str) -> Any:
        """Wait as ``until`` does. Raises RuntimeError with the end of the log, also if the operator ends."""

        def found() -> Any:
            if self.process.poll() is not None:
                raise RuntimeError(f"the operator exited with {self.process.returncode}")
            return find()

        try:
            return await until(found, within_seconds, what)
        except (TimeoutError, RuntimeError) as error:
            raise RuntimeError(f"{error}; the end of its log:\n{self.log[-_LOG_END:]}") from error

    async def logged(self, pattern: str, within_seconds: float = _STARTED_SECONDS) -> str:
        """Wait for a line with a pattern and return it. Raises RuntimeError."""

        def line() -> str:
            return next((each for each in self.log.splitlines() if re.search(pattern, each)), "")

        found: str = await self.until(line, within_seconds, f"the operator logs {pattern!r}")
        return found

    async def seconds_to(self, message: str, within_seconds: float = _STARTED_SECONDS) -> float:
        """Return the seconds from the start until rolecall logged a message, by the time in its log."""
        entry = json.loads(await self.logged(f'"msg": ?"{message}"', within_seconds))
        return datetime.fromisoformat(entry["ts"]).timestamp() - self.started_at

    async def ready(self) -> float:
        """Wait until the workers of rolecall have started and return how many seconds that took.

        Raises RuntimeError if there are warnings: it would measure something else.
        """
        seconds = await self.seconds_to("Workers started")
        complaints = [line for line in self.log.splitlines() if not re.search('"level": ?"(debug|info)"', line)]
        if complaints:
            raise RuntimeError("the operator complains:\n" + "\n".join(complaints))
        return seconds

    async def quiet(self, look_seconds: float, within_seconds: float) -> None:
        """Wait until the tree does nothing: late work belongs to the runs before. Raises RuntimeError."""
        last = self.cpu_seconds

        async def is_quiet() -> bool:
            nonlocal last
            await asyncio.sleep(look_seconds)
            before, last = last, self.cpu_seconds
            return last - before < _QUIET_SHARE * look_seconds

        await self.until(is_quiet, within_seconds, "the operator is quiet")

    async def peak_mib(self, working: asyncio.Task[Any], pause_seconds: float) -> float:
        """Return the most memory of the tree, looked at until a task is done or the operator has ended."""
        peak = 0.0
        while not working.done() and self.process.poll() is None:
            peak = max(peak, await asyncio.to_thread(lambda: self.memory_mib))
            await asyncio.wait([working], timeout=pause_seconds)
        return peak


def clean_environment(home: Path, *programs: Path) -> dict[str, str]:
    """Return an environment with this home directory, these directories first in PATH, and no settings of Ansible."""
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "PIP_INDEX_URL") if name in os.environ}
    return {**kept, "HOME": str(home), "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]])}


@contextmanager
def running(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], log_file: Path | None = None
) -> Iterator[Operator]:
    """Start an operator in a directory with an environment. At the end, stop it, and kill what its runs have left."""
    log_file = log_file or directory / f"operator-{time.monotonic_ns()}.log"
    started_at, none = time.time(), subprocess.DEVNULL
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=none, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield Operator(process, log_file, started_at)
    finally:
        process_tree.end(process, _STOP_SECONDS)
