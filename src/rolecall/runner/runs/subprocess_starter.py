"""The cold way to start a run: a new interpreter for each.

It needs no preparation and works with any version of ansible-core.
"""

import asyncio
import os
import sys

from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.run_processes import OPERATOR_VARIABLE, RUN_VARIABLE, RUNNER_MODULE, operator_mark
from rolecall.runner.runs.runner import RunProcess, RunSpec
from rolecall.runner.runs.runner_process import RunnerInput

LINE_LIMIT_BYTES = 64 * 1024 * 1024
"""The longest line, which is an event, that is read from a run's process."""


class SubprocessStarter:
    """Starts each run in a new interpreter."""

    async def start(self, spec: RunSpec) -> RunProcess:
        """Start ``runner_process`` and send it the spec; see ``runner.Starter``."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", RUNNER_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT_BYTES,
            env=inherited_environment() | {RUN_VARIABLE: spec.ident},
            start_new_session=True,
        )
        assert process.stdin  # noqa: S101 - just asked for
        process.stdin.write(runner_input(spec).to_line())
        return process


def runner_input(spec: RunSpec) -> RunnerInput:
    """Return the part of a spec that the process of the run needs."""
    is_role = isinstance(spec.content, RoleContent)
    return RunnerInput(
        ident=spec.ident,
        workspace=str(spec.workspace.path),
        role=str(spec.content.path) if is_role else "",
        playbook="" if is_role else str(spec.content.path),
        verbosity=spec.verbosity,
        grace_seconds=spec.grace_seconds,
        memory_limit_bytes=spec.memory_limit_bytes,
        artifact_limit_bytes=spec.artifact_limit_bytes,
        output_in_events=spec.output_in_events,
        environment=dict(spec.environment),
        secrets=dict(spec.secret_environment),
    )


def inherited_environment() -> dict[str, str]:
    """Return the operator's environment and mark, without its own access to the cluster: a run has its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("K8S_AUTH_")}
    return environment | {OPERATOR_VARIABLE: operator_mark()}
