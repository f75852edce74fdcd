"""What the files of a role or playbook say: its tasks with their places, and the names that it says literally."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rolecall.runner.config.content import Content, RoleContent

_TASK_FOLDERS = ("tasks", "handlers")
_BLOCKS = frozenset({"block", "rescue", "always"})
_KEYWORDS = frozenset({"name", "when", "vars", "register", "tags", "loop", "until", "become", "notify", "no_log"})
_COMPUTING = frozenset(
    {"assert", "debug", "fail", "meta", "pause", "requeue_after", "set_fact", "set_stats", "validate_argument_spec"}
)
"""Actions that ask the API server for nothing, by the last part of their names."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task: its place below the content, such as ``tasks/main.yml:12``, its name, and the keys that it has."""

    place: str
    name: str
    keys: frozenset[str]

    @property
    def may_ask(self) -> bool:
        """Whether it may ask the API server for something."""
        names = {key.rpartition(".")[2] for key in self.keys - _KEYWORDS}
        return not names & _COMPUTING and not any(name.startswith(("include", "import")) for name in names)


@dataclass(frozen=True)
class ContentFiles:
    """The files of one role or playbook."""

    content: Content

    @property
    def base(self) -> Path:
        """The directory of the role, or that of the playbook."""
        path = self.content.path
        return path if isinstance(self.content, RoleContent) else path.parent

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks of the role, with its handlers, or of the playbook itself."""
        if not isinstance(self.content, RoleContent):
            return list(self._tasks_in(self.content.path))
        folders = [self.base / name for name in _TASK_FOLDERS]
        return [task for folder in folders for path in _yaml_files(folder) for task in self._tasks_in(path)]

    def says(self, name: str) -> bool:
        """Return whether a file has the name as a whole value, or a template has it as a word."""
        if name in self._values:
            return True
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
        return any(word.search(text) for text in self._templates)

    @cached_property
    def _values(self) -> set[str]:
        return {value for path in _yaml_files(self.base) for value in _scalars(_composed(path))}

    @cached_property
    def _templates(self) -> list[str]:
        return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(self.base.rglob("*.j2"))]

    def _tasks_in(self, path: Path) -> Iterator[Task]:
        for node in _task_nodes(_composed(path)):
            keys = {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}
            name = keys["name"].value if isinstance(keys.get("name"), ScalarNode) else ""
            yield Task(f"{path.relative_to(self.base)}:{node.start_mark.line + 1}", str(name), frozenset(keys))


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(path for pattern in ("*.yml", "*.yaml") for path in folder.rglob(pattern))


def _composed(path: Path) -> Node | None:
    """Return the nodes of a file; a file that is no YAML has none, and ``rolecall validate`` says why."""
    try:
        node: Node | None = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return None
    return node


def _task_nodes(node: Node | None) -> Iterator[MappingNode]:
    """Yield the tasks in a list of tasks or of plays, at any depth of blocks."""
    for item in node.value if isinstance(node, SequenceNode) else ():
        if not isinstance(item, MappingNode):
            continue
        inner = {key.value: value for key, value in item.value if isinstance(key, ScalarNode)}
        lists = [inner[name] for name in ("pre_tasks", "tasks", "post_tasks", "handlers", *_BLOCKS) if name in inner]
        if not lists and "hosts" not in inner:
            yield item
        for below in lists:
            yield from _task_nodes(below)


def _scalars(node: Node | None) -> Iterator[str]:
    if isinstance(node, ScalarNode):
        yield str(node.value)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _scalars(key)
            yield from _scalars(value)
