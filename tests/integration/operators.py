"""Operators under test: real ``rolecall run`` processes, each in a separate project directory.

They run under the service account of ``deploy/rbac``, unless a test brings kinds that this account knows nothing of.
Results are read from the cluster; only the number of runs is read from the log, because no object has it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

PROJECT = Path(__file__).parents[2]
ROLECALL = (sys.executable, "-m", "rolecall", "run", "--zap-encoder", "json")
ANSIBLE_OPERATOR = (str(Path(sys.executable).with_name("ansible-operator")), "run")
STOP_SECONDS = 90.0
EVERY_NAMESPACE = ""


@dataclass(slots=True)
class Operator:
    """One operator process, which may be stopped, killed and started again."""

    directory: Path
    kubeconfig: Path
    namespace: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ROLECALL
    process: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        """The file of its log."""
        return self.directory / "operator.log"

    def start(self) -> None:
        """Start it; ``ready`` waits until it works."""
        command = [*self.command, *self.arguments]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.directory, env=self.variables(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def variables(self) -> dict[str, str]:
        """Return the variables of the process: those of the tests, and its own."""
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "WATCH_NAMESPACE": self.namespace,
            "ANSIBLE_GATHERING": "explicit",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **self.environment,
        }

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, within: float = STOP_SECONDS) -> int:
        """Wait for its end and return its exit code."""
        assert self.process is not None
        return self.process.wait(within)

    def stop(self) -> int:
        """Stop it as Kubernetes does and return its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Kill it as the kernel does when memory runs out."""
        self.signal(signal.SIGKILL)
        self.wait()

    def main_process(self) -> psutil.Process:
        """Return the process of the operator itself; with leader election it is a child of its guard."""
        assert self.process is not None
        guard = psutil.Process(self.process.pid)
        return next((child for child in guard.children() if child.cmdline()[:3] == list(ROLECALL[:3])), guard)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of its log that are JSON objects, whole ones only."""
        text = self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
        found = []
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                found.append(entry)
        return found

    def messages(self, message: str, **fields: str) -> list[dict[str, Any]]:
        """Return the log lines with this message and these fields."""
        return [line for line in self.lines() if line.get("msg") == message and fields.items() <= line.items()]

    def runs(self, kind: str, name: str, **fields: str) -> int:
        """Count the reconciles of an object that were started."""
        return len(self.messages("Reconcile started", kind=kind, name=name, **fields))

    def is_ready(self) -> bool:
        """Return whether its workers have started."""
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the operator ended with {self.process.returncode}:\n{self.tail()}")
        return bool(self.messages("Workers started"))

    def job_processes(self) -> list[psutil.Process]:
        """Return all living processes that belong to this operator's runs, by the mark in their environment."""
        jobs = {line.get("job") for line in self.messages("Reconcile started")}
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("ROLECALL_JOB") in jobs:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def tail(self, lines: int = 40) -> str:
        """Return the end of its log."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


def copy_project(directory: Path, *parts: str) -> None:
    """Copy parts of this repository (``roles``, ``watches.yaml``) into a directory."""
    for part in parts:
        source = PROJECT / part
        if source.is_dir():
            # Files of __pycache__ come and go while other tests import the roles' plugins.
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, directory / part, ignore=ignore, dirs_exist_ok=True)
        else:
            shutil.copy(source, directory / part)
