"""``rolecall plan`` as a command in the process of a test, with the sandbox of its file."""

import re
from pathlib import Path

import pytest

from rolecall.cli.main import main
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan import planner
from tests.integration.planned import Project
from tests.integration.sandboxes import use_sandbox

FAILED = 1
_LOG_LINE = re.compile(r"(\x1b\[\d*m)*\d{4}-\d\d-\d\d ")


class Command:
    """``rolecall plan`` in a project, with the sandbox of the file."""

    def __init__(self, project: Project, kubeconfig: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.project, self.kubeconfig, self._capture = project, kubeconfig, capture

    def plan(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit code, standard output, and standard error."""
        return self.run("plan", *arguments)

    def run(self, name: str, *arguments: str) -> tuple[int, str, str]:
        """Return the exit code, standard output, and standard error of another command with this sandbox."""
        with self.project.entered():
            given = ("--kubeconfig", str(self.kubeconfig), "-n", self.project.namespace)
            code = main([name, *arguments, *given])
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
    use_sandbox(sandbox_plane, planner, monkeypatch)
