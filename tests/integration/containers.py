"""The operator of a Deployment as its pods start it: the container's command, arguments, variables, and account.

The process runs next to the control plane, so four things replace those of a pod: the programs of these tests those of
the image, free ports the container's ports, a directory the volumes, and a flag the namespace that a pod finds in the
volume of its account. Nothing else differs from the manifest.

As a program, for the shell of a guide: ``python -m tests.integration.containers CONTROL_PLANE NAMESPACE/DEPLOYMENT``
becomes the operator of a Deployment in a running control plane, for the project in the working directory.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.cli.cluster import STATE_VARIABLE
from rolecall.runner.election import supervisor
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.binaries import find_binaries
from tests.integration.operators import EVERY_NAMESPACE, PROJECT, Operator

Document = dict[str, Any]
PROGRAMS = Path(sys.executable).parent
OF_IMAGE = {
    "/tini": (sys.executable, "-I", "-S", supervisor.__file__, "--init"),
    "/usr/local/bin/ansible-operator": (str(PROGRAMS / "ansible-operator"),),
}
"""The programs with a fixed path in the image, and those of these tests; others are found on PATH."""
PORT = re.compile(r"^(--(?:health-probe|metrics|ui)-bind-address=\S*):\d+$")


class ContainerProcess(Operator):
    """An operator whose variables are only those of its container."""

    __slots__ = ()

    def variables(self) -> dict[str, str]:
        """Return the variables of the process."""
        return self.environment


@dataclass(frozen=True, slots=True)
class Container:
    """The container of the operator in a Deployment."""

    deployment: Document

    @classmethod
    def deployed(cls, kubeconfig: Path, namespace: str, name: str) -> "Container":
        """Return the container of a Deployment in a cluster."""
        kubectl = find_binaries(print)["kubectl"]
        words = (kubectl, "--kubeconfig", kubeconfig, "get", "deployment", name, "-n", namespace, "-o", "json")
        return cls(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))

    @property
    def namespace(self) -> str:
        """The namespace of the pods."""
        return str(self.deployment["metadata"]["namespace"])

    @property
    def account(self) -> str:
        """The name of the pods' service account."""
        return str(self.deployment["spec"]["template"]["spec"]["serviceAccountName"])

    @property
    def words(self) -> tuple[str, ...]:
        """The command line in the image: the container's command, or the image's entry point, and the arguments."""
        return (*(self._container.get("command") or entry_point()), *self._container.get("args", ()))

    def command(self, volumes: Path) -> tuple[str, ...]:
        """Return the command line for this machine, with the volumes in a directory."""
        words = [PORT.sub(r"\1:0", word) for word in self.words]
        for mount in self._container.get("volumeMounts", ()):
            if (path := mount["mountPath"]) != tempfile.gettempdir():
                place = volumes / mount["name"]
                place.mkdir(parents=True, exist_ok=True)
                words = [word.replace(f"={path}", f"={place}") for word in words]
        if "--leader-elect" in words:
            words.append(f"--leader-election-namespace={self.namespace}")
        return tuple(part for word in words for part in OF_IMAGE.get(word, (word,)))

    def variables(self, kubeconfig: Path, home: Path) -> dict[str, str]:
        """Return the variables of the process, with the credentials of a kubeconfig."""
        own = dict(self._variables())
        return {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(home), "KUBECONFIG": str(kubeconfig), **own}

    def operator(self, plane: ControlPlane, directory: Path) -> Operator:
        """Return the operator for the project in a directory, with the permissions of its account; not started yet."""
        kubeconfig = plane.service_account_kubeconfig(self.namespace, self.account)
        variables = self.variables(kubeconfig, directory)
        command = self.command(directory / ".volumes")
        return ContainerProcess(directory, kubeconfig, EVERY_NAMESPACE, (), variables, command)

    @property
    def _container(self) -> Document:
        (container,) = self.deployment["spec"]["template"]["spec"]["containers"]
        found: Document = container
        return found

    def _variables(self) -> Iterator[tuple[str, str]]:
        template = self.deployment["spec"]["template"].get("metadata", {})
        annotations = {f"metadata.annotations['{key}']": text for key, text in template.get("annotations", {}).items()}
        fields = annotations | {"metadata.namespace": self.namespace}
        for each in self._container.get("env", ()):
            source = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            yield each["name"], each.get("value", "") if source is None else fields.get(source, "")


def entry_point() -> list[str]:
    """Return the entry point of the images."""
    (words,) = re.findall(r"^ENTRYPOINT (\[.+\])$", (PROJECT / "build/Dockerfile").read_text(), re.MULTILINE)
    found: list[str] = json.loads(words)
    return found


def in_shell(plane: str, namespace: str, name: str) -> str:
    """Return the command that becomes the operator of a Deployment in the shell of a guide."""
    return f"PYTHONPATH={PROJECT} {sys.executable} -m tests.integration.containers {plane} {namespace}/{name}"


def main() -> None:
    """Become the operator of the Deployment in the arguments."""
    name, deployment = sys.argv[1:]
    plane = ControlPlane(name, state_directory=Path(os.environ[STATE_VARIABLE]))
    found = Container.deployed(plane.kubeconfig, *deployment.split("/"))
    kubeconfig = plane.service_account_kubeconfig(found.namespace, found.account)
    command = found.command(Path(tempfile.mkdtemp()))
    os.execvpe(command[0], command, found.variables(kubeconfig, Path.cwd()))  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
