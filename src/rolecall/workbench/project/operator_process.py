"""Runs the operator as a child process: starts it with a kubeconfig, writes its log to a file, stops it with its plays.

The demo reads from the log how long the last run of each object took.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

STOP_SECONDS = 30.0
PAGE_MESSAGE = "Serving the live page"


@dataclass(slots=True)
class OperatorProcess:
    """``rolecall run`` in the directory of a project."""

    project: Path
    kubeconfig: Path
    log: Path
    arguments: tuple[str, ...] = ()
    """Further flags of ``rolecall run``."""

    page: str = ""
    """The address of its live page, once the log has told it."""

    last_runs: dict[tuple[str, str], str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _read_to: int = 0

    def start(self) -> None:
        """Start the operator."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        command = [sys.executable, "-m", "rolecall", "run", "--zap-encoder", "json", *self.arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.project, env=environment, stderr=log, stdout=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The process ID. Raise RuntimeError before the start."""
        if self._process is None:
            raise RuntimeError("the operator has not been started")
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the operator has exited by itself."""
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        """Stop the operator and wait until it has exited."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def read_log(self) -> None:
        """Record the runs that ended since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._read_to)
            lines = log.read()
        end = lines.rfind(b"\n") + 1
        self._read_to += end
        for line in lines[:end].splitlines():
            self._note(line)

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _note(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            return
        if not isinstance(entry, dict):
            return
        if entry.get("msg") == PAGE_MESSAGE:
            self.page = str(entry.get("url", ""))
        if "took" in entry:
            name = "/".join(part for part in (entry.get("namespace"), entry.get("name")) if part)
            self.last_runs[(entry.get("kind", ""), name)] = entry["took"]
