"""``rolecall plan`` as a command in the process of a test, with the sandbox of its file."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rolecall.cli.main import main
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan import planner
from rolecall.workbench.plan.sandbox import Sandbox, sandbox_in
from tests.integration.planned import Project

FAILED = 1
_LOG_LINE = re.compile(r"(\x1b\[\d*m)*\d{4}-\d\d-\d\d ")


class Command:
    """``rolecall plan`` in a project, with the sandbox of the file."""

    def __init__(self, project: Project, kubeconfig: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.project, self.kubeconfig, self._capture = project, kubeconfig, capture

    def plan(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit code, standard output, and standard error."""
        with self.project.entered():
            given = ("--kubeconfig", str(self.kubeconfig), "-n", self.project.namespace)
            code = main(["plan", *arguments, *given])
        found = self._capture.readouterr()
        lines = found.out.splitlines(keepends=True)  # the logs of a test are on standard output too
        return code, "".join(line for line in lines if not _LOG_LINE.match(line)), found.err

    def error(self, *arguments: str) -> str:
        """Return the line with the reason why there is no plan."""
        code, out, err = self.plan(*arguments)
        assert (code, out) == (FAILED, ""), err
        [line] = [line for line in err.splitlines() if line.startswith("rolecall plan: ")]
        return line.removeprefix("rolecall plan: ")


@pytest.fixture
def shared_sandbox(sandbox_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans use the sandbox of the file."""

    @asynccontextmanager
    async def running_sandbox(_report: object) -> AsyncIterator[Sandbox]:
        async with sandbox_in(sandbox_plane) as sandbox:
            yield sandbox
            await sandbox.forget()

    monkeypatch.setattr(planner, "running_sandbox", running_sandbox)
    # The command would log to the current capture, and so would every later test in this process.
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)
