"""Interpreters to compare: each has a worker process with a fork server, which runs roles and reports their cost.

A worker is the comparing script itself, started with ``--worker``. Questions are lines on its standard input, answers
lines of JSON on its standard output.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.process import ProcessRunner, RunSpec, new_ident
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm.starter import ForkserverStarter

PROJECT = Path(__file__).resolve().parents[1]

Worker = subprocess.Popen[str]


class ChildCosts(NamedTuple):
    """What the children of a process have cost that it has waited for, with all that these have waited for."""

    faults: int
    user_seconds: float
    system_seconds: float


@contextlib.contextmanager
def worker(python: str, script: str, arguments: Sequence[str], kubeconfig: str) -> Iterator[Worker]:
    """Start a worker with an interpreter, and end it at the end of the block."""
    environment = os.environ | {"KUBECONFIG": kubeconfig, "K8S_AUTH_KUBECONFIG": kubeconfig}
    set_run_environment(environment)
    command, pipe = [python, script, "--worker", *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True, cwd=PROJECT) as process:
        yield process
        process.stdin and process.stdin.close()


def set_run_environment(environment: MutableMapping[str, str]) -> None:
    """Set what measured runs need, and remove what changes their cost and isn't set in an image."""
    environment.update(ANSIBLE_GATHERING="explicit", PYTHONPATH=f"{PROJECT}/src")
    environment.pop("PYTHONUNBUFFERED", None)  # each event would take five times the writes


def answer(process: Worker, question: str) -> Any:
    """Return a worker's answer to a question. Raises SystemExit if it has ended."""
    if process.stdin:
        process.stdin.write(f"{question}\n")
        process.stdin.flush()
    if not (line := process.stdout.readline() if process.stdout else ""):
        raise SystemExit(f"{process.args!r} ended: its messages are above")
    return json.loads(line)


async def serve(contents: Sequence[Path], respond: Callable[["WarmRuns", str], Awaitable[object]]) -> None:
    """Answer questions with a fork server that is prepared for these roles, until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # where log lines go
    async with ForkserverStarter(contents) as starter:
        if starter.server:
            await starter.server.ready  # without a limit: other work on the machine may delay it
        runs, loop = WarmRuns(starter, ProcessRunner(starter)), asyncio.get_running_loop()
        while question := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            answers.write(json.dumps(await respond(runs, question)) + "\n")
            answers.flush()


@dataclass(frozen=True, slots=True)
class WarmRuns:
    """Runs roles with one fork server, if there is one."""

    starter: ForkserverStarter
    runner: ProcessRunner

    @property
    def server_id(self) -> int | None:
        """The process id of the fork server."""
        return self.starter.server.process.pid if self.starter.server else None

    def costs(self) -> ChildCosts:
        """Return what all runs so far have cost."""
        if self.server_id is None:
            return ChildCosts(0, 0.0, 0.0)
        fields = Path(f"/proc/{self.server_id}/stat").read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return ChildCosts(int(fields[8]), int(fields[13]) / ticks, int(fields[14]) / ticks)

    async def run(self, workspace: Workspace, role: Path, variables: Mapping[str, Any]) -> Outcome:
        """Run a role, and wait until the server has reaped the run. Raises SystemExit if the run fails."""
        ident = new_ident()
        workspace.prepare(ident, variables)
        summary = await self.runner.run(RunSpec(ident, workspace, RoleContent(role)), lambda _event: None)
        if summary.failures:
            sys.exit(f"{role.name}: {summary.message}")
        if self.starter.server:
            await self.starter.server.idle.wait()
        return summary
