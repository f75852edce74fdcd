"""A reader of a page, who types its commands on the cluster of the tests."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.guides import Guide
from tests.outcomes import Done, done, told


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of one page; ``programs`` is a directory of the test, for the kubectl that reaches the API server."""

    guide: Guide
    cluster: Cluster
    programs: Path
    all_done: list[Done] = field(default_factory=list)

    def do(self, command: str) -> None:
        """Run a command of the page in the root of the repository; exit code and output must match the page."""
        (step,) = [each for each in self.guide.steps if each.command == command]
        self._write_kubectl()
        path = os.pathsep.join([str(self.programs), os.environ["PATH"]])
        ended = self.cluster.run("env", f"PATH={path}", "bash", "-c", command)
        outcome = done(step, ended.returncode, ended.stdout + ended.stderr)
        self.all_done.append(outcome)
        assert outcome.is_as_shown, told(outcome)

    def do_together(self, commands: Sequence[str]) -> str:
        """Run commands of the page, which share variables, in one shell that stops at a failure; return its output."""
        self._write_kubectl()
        path = os.pathsep.join([str(self.programs), os.environ["PATH"]])
        script = f"cd {shlex.quote(str(self.programs))}; {'; '.join(commands)}"
        return self.cluster.do("env", f"PATH={path}", "bash", "-euo", "pipefail", "-c", script)

    def _write_kubectl(self) -> None:
        program = self.programs / "kubectl"
        words = shlex.join(self.cluster.kubectl_words)
        program.write_text(f'#!/bin/sh\nexport PATH={shlex.quote(os.environ["PATH"])}\nexec {words} "$@"\n')
        program.chmod(0o755)
