"""Runs roles with one version of ansible-core for ``core_versions.py``: reads names of cases, writes CPU seconds."""

import asyncio
import contextlib
import os
import sys
from importlib.metadata import version
from pathlib import Path

from bench.core_versions import PROJECT, SAMPLES, role_of

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.process import ProcessRunner, RunSpec, new_ident
from rolecall.runner.runs.variables import extra_vars
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm.starter import ForkserverStarter

RUNS = 3
"""How many runs are measured together: the kernel counts hundredths of a second."""


async def main() -> None:
    """Answer until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # where log lines go
    directory = Path(os.environ["BENCH_FOLDER"])
    contents = [directory / "roles", *(PROJECT / "roles" / name for name in SAMPLES)]
    async with ForkserverStarter(contents) as starter:
        if starter.server:
            await starter.server.ready  # without a limit: other work on the machine may delay it
        runner = ProcessRunner(starter)
        loop = asyncio.get_running_loop()
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            answer = version("ansible-core") if line == "version" else await _measured(directory, starter, runner, line)
            answers.write(f"{answer}\n")
            answers.flush()


async def _measured(directory: Path, starter: ForkserverStarter, runner: ProcessRunner, case: str) -> float:
    role = PROJECT / "roles" / case if case in SAMPLES else directory / "roles" / role_of(case)
    gvk, key, variables = GVK("bench.rolecall.dev", "v1", "Version"), ObjectKey("default", role_of(case)), {}
    if case in SAMPLES:
        api_version, kind, name = SAMPLES[case]
        gvk, key = GVK.of_object({"apiVersion": api_version, "kind": kind}), ObjectKey(*name.split("/"))
        async with await Client.connect(os.environ["KUBECONFIG"]) as client:
            variables = extra_vars(await client.get(gvk, key), Watch(gvk, RoleContent(role)), mark_unsafe=True)
    workspace = Workspace(directory / "runs" / version("ansible-core"), gvk, key)
    used = 0.0
    for _ in range(RUNS):
        ident = new_ident()
        workspace.prepare(ident, variables)
        before = _children_seconds(starter)
        summary = await runner.run(RunSpec(ident, workspace, RoleContent(role)), lambda _event: None)
        if summary.failures:
            sys.exit(f"{version('ansible-core')}, {case}: {summary.failures}")
        if starter.server:
            await starter.server.idle.wait()  # the server has reaped the run
        used += _children_seconds(starter) - before
    return used / RUNS


def _children_seconds(starter: ForkserverStarter) -> float:
    """Return the CPU seconds of the children that the fork server has reaped, with all that these have reaped."""
    if not starter.server:
        return 0.0
    fields = Path(f"/proc/{starter.server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
