"""Projects of others, made into what their image would be, and operators for them.

A project's Dockerfile is carried out as far as it copies files, sets variables and names the entry point's arguments;
a directory stands for ``/opt/ansible``. Its base is our own image, of which ``/etc/ansible/ansible.cfg`` matters here.
RUN lines install collections from Galaxy, which the tests do without. The files themselves are used as they are.
"""

import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.workbench.controlplane import ControlPlane
from tests.integration.operators import ANSIBLE_OPERATOR, PROJECT, Operator

PROJECTS = Path(__file__).parent / "projects"
IMAGE_HOME = "/opt/ansible"
BASE_ARGUMENTS = ("--watches-file=./watches.yaml",)
"""Of the entry point of the base image, for projects that do not name their own one."""
OWN_PORTS = (
    "--proxy-port=0",
    "--user-metrics-port=0",
    "--metrics-bind-address=127.0.0.1:0",
    "--health-probe-bind-address=0",
)
"""A pod has its own network, and tests share one: no other test uses these ports."""


@dataclass(slots=True)
class Image:
    """The image of a project: a home directory, variables, and arguments for ``ansible-operator run``."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = BASE_ARGUMENTS

    @classmethod
    def build(cls, project: Path, home: Path) -> "Image":
        """Carry out a project's Dockerfile into an empty directory."""
        image = cls(home, {"HOME": str(home)})
        settings = home / "of-the-base-image.cfg"
        settings.write_text(image._placed((PROJECT / "build/etc/ansible/ansible.cfg").read_text()))
        image.environment["ANSIBLE_CONFIG"] = str(settings)
        for instruction, rest in _instructions(project / "Dockerfile"):
            image._carry_out(project, instruction, rest)
        return image

    def _carry_out(self, project: Path, instruction: str, rest: str) -> None:
        words = [self._placed(word) for word in shlex.split(rest)] if instruction in ("COPY", "ENV") else []
        if instruction == "COPY":
            source, target = project / words[0], self.home / words[1]
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy(source, target)
        elif instruction == "ENV":
            self.environment |= dict(word.split("=", 1) for word in words)
        elif instruction == "ENTRYPOINT":
            entry_point = json.loads(rest)
            self.arguments = tuple(map(self._placed, entry_point[entry_point.index("run") + 1 :]))

    def _placed(self, text: str) -> str:
        return text.replace("${HOME}", str(self.home)).replace(IMAGE_HOME, str(self.home))


def _instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    for line in dockerfile.read_text().replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction:
            yield instruction, rest


@dataclass(frozen=True, slots=True)
class Project:
    """One of the projects, by the name of its directory."""

    name: str

    @property
    def path(self) -> Path:
        """The directory of its files."""
        return PROJECTS / self.name

    def sample(self, name: str) -> str:
        """Return the text of one of its samples."""
        return (self.path / "config" / "samples" / f"{name}.yaml").read_text()

    @property
    def definitions(self) -> Path:
        """The directory of its CRDs."""
        return self.path / "config" / "crd" / "bases"

    def operator(self, control_plane: ControlPlane, home: Path, namespaces: str) -> Operator:
        """Return its operator, not started yet, which has an administrator's permissions: the image's entry point."""
        image = Image.build(self.path, home)
        arguments = (*image.arguments, *OWN_PORTS, f"--work-dir={home / 'runner'}")
        return Operator(home, control_plane.kubeconfig, namespaces, arguments, image.environment, ANSIBLE_OPERATOR)


ADVANCED = Project("advanced")
MEMCACHED = Project("memcached")
PATTERNS = Project("patterns")
"""Of the guide with the same name; its CRDs are in ``deploy/crds``, as in a project of ``rolecall init``."""
