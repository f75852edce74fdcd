"""An operator that the tests of a file share: one process, with its own kind for each role.

A file names its roles in ``SHARED``. The fixture ``things`` of conftest.py starts the operator with the file's first
test, for every namespace, and gives each test its kinds in the test's own namespace. Starting an operator takes longer
than most of what tests ask of it; a test that stops or kills one brings its own.
"""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rolecall.kube.references import GVK, RawObject
from tests.integration.operators import EVERY_NAMESPACE, ROLECALL, Operator
from tests.support.things import KINDS, write_role
from tests.support.world import TIMEOUT_SECONDS, World, condition, eventually, is_true


@dataclass(frozen=True, slots=True)
class Role:
    """A role, further keys of its entry in watches.yaml, and a playbook that takes its place there.

    ``KIND`` in the tasks stands for the kind.
    """

    tasks: str
    watch: str = ""
    playbook: str = ""


@dataclass(frozen=True, slots=True)
class Shared:
    """The roles of a file by their names, and how its operator is started; ``FOLDER`` stands for its project."""

    roles: Mapping[str, Role]
    arguments: tuple[str, ...] = ("--backoff-max", "20s")
    command: tuple[str, ...] = ROLECALL
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def operator(self, directory: Path, kubeconfig: Path) -> Operator:
        """Write the project into a directory and return its operator, for every namespace and not started yet."""
        self._write(directory)
        arguments = tuple(word.replace("FOLDER", str(directory)) for word in self.arguments)
        environment = {name: value.replace("FOLDER", str(directory)) for name, value in self.environment.items()}
        return Operator(directory, kubeconfig, EVERY_NAMESPACE, arguments, environment, self.command)

    def gvk(self, name: str) -> GVK:
        """Return the kind of a role."""
        return KINDS[list(self.roles).index(name)]

    def _write(self, directory: Path) -> None:
        for name, text in self.files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)
        (directory / "watches.yaml").write_text("".join(self._entry(name) for name in self.roles))
        for name, role in self.roles.items():
            write_role(directory, role.tasks.replace("KIND", self.gvk(name).kind), name)
            if role.playbook:
                (directory / f"{name}.yml").write_text(textwrap.dedent(role.playbook))

    def _entry(self, name: str) -> str:
        gvk, role = self.gvk(name), self.roles[name]
        content = f"playbook: {name}.yml" if role.playbook else f"role: {name}"
        keys = textwrap.indent(textwrap.dedent(role.watch).strip(), "  ")
        return f"- group: {gvk.group}\n  version: {gvk.version}\n  kind: {gvk.kind}\n  {content}\n{keys}\n"


@dataclass(frozen=True, slots=True)
class Thing:
    """An object of one kind of a shared operator, in the namespace of a test."""

    operator: Operator
    world: World
    gvk: GVK
    role: str
    name: str = "one"

    async def create(self, spec: Mapping[str, Any] | None = None, **metadata: Any) -> RawObject:
        """Create it."""
        manifest = {
            "apiVersion": self.gvk.api_version,
            "kind": self.gvk.kind,
            "metadata": {"name": self.name, **metadata},
            "spec": {"size": 1} if spec is None else dict(spec),
        }
        (made,) = await self.world.create(yaml.safe_dump(manifest))
        return made

    async def get(self) -> RawObject:
        """Return it. Raises NotFoundError."""
        return await self.world.get(self.gvk, self.name)

    async def patch(self, patch: dict[str, Any], subresource: str = "") -> None:
        """Change it by a merge patch."""
        await self.world.patch(self.gvk, self.name, patch, subresource)

    async def delete(self) -> None:
        """Request its deletion."""
        await self.world.delete(self.gvk, self.name)

    async def succeeds(self) -> RawObject:
        """Wait until its run has succeeded."""
        return await self.world.wait_for(self.gvk, self.name, lambda obj: is_true(obj, "Successful"))

    async def fails(self, text: str = "") -> RawObject:
        """Wait until it has a condition Failure with this text."""

        def holds(obj: RawObject) -> bool:
            return is_true(obj, "Failure") and text in condition(obj, "Failure")["message"]

        return await self.world.wait_for(self.gvk, self.name, holds)

    async def goes(self, within: float = TIMEOUT_SECONDS) -> None:
        """Wait until it is deleted."""
        await self.world.wait_until_gone(self.gvk, self.name, within)

    async def runs_at_least(self, count: int) -> None:
        """Wait until so many runs of it have started."""
        await self._at_least(count, self.runs, "started")

    async def ends_at_least(self, count: int) -> None:
        """Wait until so many runs of it have ended."""
        await self._at_least(count, self.ended, "ended")

    async def _at_least(self, count: int, counted: Callable[[], int], state: str) -> None:
        async def look() -> int:
            return counted()

        what = f"{count} {state} runs of {self.gvk.kind} {self.name}"
        await eventually(look, lambda runs: runs >= count, TIMEOUT_SECONDS, what)

    def messages(self, message: str) -> list[dict[str, Any]]:
        """Return the lines of the operator's log with this message about it."""
        place = {"namespace": self.world.namespace, "name": self.name}
        return self.operator.messages(message, kind=self.gvk.kind, **place)

    def runs(self) -> int:
        """Count its runs that were started."""
        return len(self.messages("Reconcile started"))

    def ended(self) -> int:
        """Count its runs that have ended."""
        return len(self.messages("Reconcile succeeded")) + len(self.messages("Reconcile failed"))

    def causes(self) -> list[str]:
        """Return why its runs were started."""
        return [text for line in self.messages("Reconcile started") for text in line["causes"]]

    def write_role(self, tasks: str, name: str = "") -> None:
        """Change the role, or another role of the project, while the operator works."""
        write_role(self.operator.directory, tasks.replace("KIND", self.gvk.kind), name or self.role)


@dataclass(frozen=True, slots=True)
class Things:
    """The part of a shared operator that one test uses: an object for each role."""

    shared: Shared
    operator: Operator
    world: World

    def __getitem__(self, role: str) -> Thing:
        """Return the object ``one`` of a role's kind."""
        return self.named(role, "one")

    def named(self, role: str, name: str) -> Thing:
        """Return an object of a role's kind by its name."""
        return Thing(self.operator, self.world, self.shared.gvk(role), role, name)
