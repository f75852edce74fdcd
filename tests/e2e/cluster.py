"""The cluster as the end-to-end tests see it: kubectl where the API server can be reached, waiting with a deadline."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.e2e.environment import Environment

PROJECT = Path(__file__).parents[2]
NAMESPACE = "rolecall-system"
LOOK_EVERY_SECONDS = 0.3
Observed = TypeVar("Observed")
Document = dict[str, Any]


def eventually(look: Callable[[], Observed], holds: Callable[[Observed], object], within: float, what: str) -> Observed:
    """Look until what is seen holds and return it; fail with what was seen last when the seconds are over."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if holds(seen):
            return seen
        assert time.monotonic() < deadline, f"not within {within} s: {what}; last seen: {str(seen)[:3000]}"
        time.sleep(LOOK_EVERY_SECONDS)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A real cluster, with an administrator's permissions."""

    environment: Environment

    @property
    def kubectl_words(self) -> tuple[str, ...]:
        """The words that call kubectl."""
        return (*self.environment.run_in, "kubectl")

    @property
    def _variables(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": self.environment.kubeconfig}

    def run(self, *command: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command in the repository and return how it ended."""
        return subprocess.run(
            command, cwd=PROJECT, env=self._variables, input=stdin, capture_output=True, text=True, check=False
        )

    def do(self, *command: str, stdin: str = "") -> str:
        """Run a command that must succeed and return what it printed."""
        done = self.run(*command, stdin=stdin)
        assert done.returncode == 0, f"{shlex.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl, which must succeed."""
        return self.do(*self.kubectl_words, *arguments, stdin=stdin)

    def make(self, target: str, *variables: str) -> None:
        """Run a target of the Makefile against this cluster."""
        self.do("make", target, f"KUBECTL={shlex.join(self.kubectl_words)}", *variables)

    def apply(self, manifest: str) -> None:
        """Apply YAML text."""
        self.kubectl("apply", "-f", "-", stdin=manifest)

    def get(self, *what: str) -> Document:
        """Return an object, or a list; empty when it is not there."""
        found: Document = json.loads(self.kubectl("get", *what, "-o", "json", "--ignore-not-found") or "{}")
        return found

    def items(self, kind: str, namespace: str, selector: str = "") -> list[Document]:
        """Return the objects of a kind, those with these labels."""
        found: list[Document] = self.get(kind, "-n", namespace, *(["-l", selector] if selector else [])).get(
            "items", []
        )
        return found

    def namespace(self, name: str) -> str:
        """Make a namespace and return its name."""
        self.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")
        return name

    def load(self, image: str) -> None:
        """Load an image of this machine into the cluster."""
        self.do(*self.environment.load, image)

    @contextmanager
    def port_forward(self, namespace: str, target: str, port: int) -> Iterator[None]:
        """Forward a port while the body runs."""
        command = (*self.kubectl_words, "port-forward", "--namespace", namespace, target, str(port))
        with subprocess.Popen(
            command, cwd=PROJECT, env=self._variables, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("Forwarding from"), f"{shlex.join(command)} has ended"
                yield
            finally:
                os.killpg(process.pid, signal.SIGTERM)

    def wait_for_rollout(self, name: str = "rolecall", namespace: str = NAMESPACE) -> None:
        """Wait until all pods of a Deployment are new ones and ready, and the old ones gone, leases and all."""
        self.kubectl("rollout", "status", f"deployment/{name}", "-n", namespace, "--timeout=600s")
        eventually(lambda: self.items("pods", namespace), _none_is_leaving, 240, "the old pods are gone")


def is_true(obj: Document, kind: str) -> bool:
    """Return whether a condition of an object is true."""
    conditions = obj.get("status", {}).get("conditions", [])
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _none_is_leaving(pods: list[Document]) -> bool:
    return not any("deletionTimestamp" in pod["metadata"] for pod in pods)


def is_running(pod: Document) -> bool:
    """Return whether a pod runs and is not on its way out."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
