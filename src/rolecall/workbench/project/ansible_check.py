"""The process in which ansible-core loads roles and playbooks without running them.

Standard input is JSON: ``contents``, a list of ``{"role": path}`` or ``{"playbook": path}``, each with ``variables``,
the origins of its extra vars by their names; ``schemas``, a list of API version, kind, and schema; and ``directory``,
that of the project. Standard output is a list of problems: ``file``, ``line`` (or null), ``message``, and ``severity``.
The working directory is an empty directory, as in a run. Every task is loaded separately, so that one error does not
hide the next: Ansible's own check of a playbook stops at the first error, and skips dynamic includes. It is a separate
process because ansible-core keeps settings and search paths for the life of a process.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.parameters import DEFAULT_TYPE_VALIDATORS
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.playbook.block import Block
from ansible.playbook.play import Play
from ansible.playbook.role import Role
from ansible.playbook.role.include import RoleInclude
from ansible.plugins.loader import add_all_plugin_dirs, init_plugin_loader
from ansible.release import __version__ as ansible_version
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.vars.manager import VariableManager
from yaml.error import MarkedYAMLError

from rolecall.runner.warm.ansible_patches.patches import installed_search_path, kubernetes_core_version
from rolecall.workbench.project.argument_specs import check_arguments
from rolecall.workbench.project.collection_imports import IN_PACKAGE, check_imports
from rolecall.workbench.project.core_changes import CoreChanges
from rolecall.workbench.project.definition_types import Definitions
from rolecall.workbench.project.lost_variables import IGNORED, find_lost_variables, is_guarded
from rolecall.workbench.yaml_files import below, listed, yaml_files

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:  # before 2.19
    Origin = None

_YAML_OF_A_ROLE = ("tasks", "handlers", "defaults", "vars", "meta")
_UNRESOLVED = re.compile(r"couldn't resolve module/action '(\w+\.\w+)\.")
_IMAGE_HOME = "/opt/ansible/"
_VAULT = b"$ANSIBLE_VAULT"
_LISTS_OF_A_BLOCK = ("block", "rescue", "always")
_LISTS_OF_A_PLAY = ("pre_tasks", "tasks", "post_tasks")
_LOOP_ITEM = re.compile(r"\{\{\s*item\s*\}\}")
_ROLE_INCLUDES = tuple(f"{prefix}{name}_role" for prefix in ("", "ansible.builtin.") for name in ("include", "import"))
_INCLUDES = tuple(f"{prefix}{name}_tasks" for prefix in ("", "ansible.builtin.") for name in ("include", "import"))


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """The context of tasks: the play, the role if there is one, the directories in which included files are found."""

    play: Any
    role: Any = None
    is_handlers: bool = False
    directories: tuple[Path, ...] = ()


class _ProjectLoader(DataLoader):  # type: ignore[misc]  # ansible-core has no types
    """Reads files in which paths below the home of the image are those of the project, if they exist only there."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def load_from_file(self, *args: Any, **options: Any) -> Any:
        """Return the content of a file."""
        return self._in_project(super().load_from_file(*args, **options))

    def _in_project(self, value: Any) -> Any:
        if isinstance(value, dict):
            for key, each in value.items():
                value[key] = self._in_project(each)
        elif isinstance(value, list):
            value[:] = map(self._in_project, value)
        elif isinstance(value, str) and value.startswith(_IMAGE_HOME) and "{{" not in value:
            own = self._directory / value.removeprefix(_IMAGE_HOME)
            return str(own) if own.exists() and not Path(value).exists() else value
        return value


@dataclass(slots=True)
class Checker:
    """Load contents and collect their problems, each problem once."""

    _loader: Any
    definitions: Definitions
    problems: list[dict[str, Any]] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    """The extra vars of the checked content, with their origins."""
    _variables: Any = None
    _changes: CoreChanges | None = None
    _roles_path: list[str] = field(default_factory=lambda: list(constants.DEFAULT_ROLES_PATH or []))
    _checked: set[Path] = field(default_factory=set)
    _used: dict[str, tuple[Path, Any]] = field(default_factory=dict)
    _imported: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Create the variable manager, with an inventory that has only localhost."""
        inventory = InventoryManager(loader=self._loader, sources="localhost,")
        self._variables = VariableManager(loader=self._loader, inventory=inventory)
        if hasattr(constants, "ALLOW_BROKEN_CONDITIONALS"):  # since ansible-core 2.19
            allows = bool(constants.config.get_config_value("ALLOW_BROKEN_CONDITIONALS"))
            collection = kubernetes_core_version(installed_search_path(os.environ)) or ""
            self._changes = CoreChanges(ansible_version, collection, allows)

    def check(self, content: dict[str, Any]) -> None:
        """Check a role or a playbook with its own extra vars."""
        if content["variables"] != self.origins:
            self.origins = content["variables"]
            self._checked.clear()  # a file can have other problems with other variables
        if "role" in content:
            # As in a run, other roles are found only next to it.
            self._enter(Path.cwd())
            self._read_role(Path(content["role"]), [])
        else:
            self.check_playbook(Path(content["playbook"]))
        self._check_imports()

    @property
    def _errors(self) -> int:
        return sum(problem["severity"] == "error" for problem in self.problems)

    def check_playbook(self, path: Path) -> None:
        """Check every task of a playbook and of its included files, its roles, then the playbook as a whole."""
        if path in self._checked:
            return
        self._checked.add(path)
        before = self._errors
        self._enter(path.parent)
        self._check_templates(path.parent)
        plays = self._read(path)
        for play in plays if isinstance(plays, list) else []:
            if isinstance(play, dict) and "hosts" in play:
                self._check_play(path, play)
        if self._errors == before:
            self._attempt(path, lambda: Playbook.load(str(path), self._variables, self._loader))

    def _read_role(self, path: Path, roles_path: list[str]) -> None:
        """Check every file of a role, then the role as a whole."""
        if path in self._checked:
            return
        self._checked.add(path)
        before = self._errors
        constants.DEFAULT_ROLES_PATH = [str(path.parent), *roles_path]
        add_all_plugin_dirs(str(path))
        files = {file: self._read(file) for directory in _YAML_OF_A_ROLE for file in yaml_files(path / directory)}
        meta = next((value for file, value in files.items() if _is(file, path, "meta", "main")), None)
        has_tasks = any(_is(file, path, "tasks", "main") for file in files)
        if not has_tasks and not below(meta).get("dependencies"):
            self._note(path / "tasks", None, "the role has no tasks: expected tasks/main.yml")
        self._check_arguments(path, files, meta)
        self._check_templates(path)
        role = self._role(path, meta)
        for entry in listed(meta, "dependencies"):
            name = entry.get("role", entry.get("name")) if isinstance(entry, dict) else entry
            self._follow_name(name, role[0])
        for file, tasks in files.items():
            kind = file.relative_to(path).parts[0]
            if kind in ("tasks", "handlers") and (isinstance(tasks, list) or _is(file, path, kind, "main")):
                directories = (file.parent, path / kind, path)
                self._check_tasks(file, tasks, _Surroundings(role[0], role[1], kind == "handlers", directories))
        if self._errors == before:
            self._attempt(path, lambda: Role.load(self._role_include(str(path), role[0]), role[0]))

    def _enter(self, directory: Path) -> None:
        """Add the roles, plugins and collections next to a playbook, as ansible-playbook does."""
        self._loader.set_basedir(str(directory))
        constants.DEFAULT_ROLES_PATH = self._roles_path
        add_all_plugin_dirs(str(directory))
        AnsibleCollectionConfig.playbook_paths = [str(directory)]

    def _check_play(self, path: Path, raw: dict[str, Any]) -> None:
        play = self._play()
        play.collections = raw.get("collections") or play.collections
        for name in (*_LISTS_OF_A_PLAY, "handlers"):
            around = _Surroundings(play, is_handlers=name == "handlers", directories=(path.parent,))
            self._check_tasks(path, raw.get(name) or [], around)
        for role in raw.get("roles") or []:
            if isinstance(role, dict):
                self._check_changes(path, role)
                own = {key: each for key, each in role.items() if key not in RoleInclude.fattributes}
                passed = {"when": role.get("when"), "vars": {**(role.get("vars") or {}), **own}}
                self._warn(path, role, find_lost_variables(passed, self.origins))
            found = self._attempt(path, lambda role=role: self._role_include(role, play))
            if found:
                self._follow(found)

    def _follow(self, include: Any) -> None:
        """Check a role that a play, a role, or a task names."""
        paths = constants.DEFAULT_ROLES_PATH
        self._read_role(Path(include.get_role_path()), paths)
        constants.DEFAULT_ROLES_PATH = paths

    def _follow_name(self, name: Any, play: Any) -> None:
        """Check a role by its name, unless that has a variable or isn't found: the load of its task reports this."""
        if isinstance(name, str) and "{{" not in name:
            with suppress(AnsibleError):
                self._follow(self._role_include(name, play))

    def _check_arguments(self, path: Path, files: dict[Path, Any], meta: Any) -> None:
        own = next(((f, v) for f, v in files.items() if _is(f, path, "meta", "argument_specs")), None)
        file, content = own or (path / "meta" / "main.yml", meta)
        if isinstance(content, dict) and "argument_specs" in content:
            for culprit, message in check_arguments(content["argument_specs"], DEFAULT_TYPE_VALIDATORS):
                self._note(file, culprit, message)
            for name in below(content, "argument_specs", "main", "options"):
                if name in IGNORED:
                    self._note(file, name, f"{name}: Ansible overrides a variable of this name: rename it", "warning")
        elif own and content is not None:
            self._note(file, content, "expected a mapping with the key argument_specs")

    def _check_templates(self, directory: Path) -> None:
        """Check the definitions in the template files of a role, or of the directory of a playbook."""
        for file in sorted(each for each in (directory / "templates").rglob("*") if each.is_file()):
            with suppress(OSError, UnicodeDecodeError):
                for line, message in self.definitions.check_text(file.read_text(encoding="utf-8")):
                    self.problems.append(_problem(str(file), line, message, "warning"))

    def _check_tasks(self, file: Path, tasks: Any, around: _Surroundings) -> None:
        """Check each task of a list separately, including tasks in blocks."""
        if tasks is None:
            return
        if not isinstance(tasks, list):
            self._note(file, tasks, f"expected a list of tasks, found {_shown(tasks)}")
            return
        for task in tasks:
            if not isinstance(task, dict):
                self._note(file, task, f"expected a task (a mapping), found {_shown(task)}")
                continue
            self._check_changes(file, task)
            self._warn(file, task, (*find_lost_variables(task, self.origins), *self.definitions.check_task(task)))
            if Block.is_block(task):
                origins = self.origins
                self.origins = {name: text for name, text in origins.items() if not is_guarded(task, name)}
                for name in _LISTS_OF_A_BLOCK:
                    self._check_tasks(file, task.get(name), around)
                self.origins = origins
                # The block without its tasks shows whether its keywords are valid.
                self._read_task(file, {**task, **{name: [] for name in _LISTS_OF_A_BLOCK if name in task}}, around)
            elif self._check_include(file, task, around):
                self._read_task(file, task, around)
                for name in _included_roles(task):
                    self._follow_name(name, around.play)

    def _check_changes(self, file: Path, task: dict[str, Any]) -> None:
        """Warn about what ansible-core 2.18 accepts in a task, a block, or an entry of ``roles``."""
        self._warn(file, task, self._changes.check(task) if self._changes else ())

    def _warn(self, file: Path, task: dict[str, Any], findings: Iterable[tuple[object, str]]) -> None:
        for culprit, message in findings:
            self._note(file, culprit if _place_of(culprit) else task, message, "warning")

    def _read_task(self, file: Path, task: dict[str, Any], around: _Surroundings) -> None:
        found = self._attempt(
            file,
            lambda: Block.load(
                task if Block.is_block(task) else [task],
                play=around.play,
                role=around.role,
                use_handlers=around.is_handlers and not Block.is_block(task),
                variable_manager=self._variables,
                loader=self._loader,
            ),
            task,
        )
        for each in found.block if found else ():
            self._used.setdefault(getattr(each, "resolved_action", None) or "", (file, task))  # no blocks

    def _check_imports(self) -> None:
        """Report the modules of collections that can't be imported, each at the first task that uses it."""
        used = {name: place for name, place in self._used.items() if name.count(".") > 1 and name not in self._imported}
        self._imported |= used.keys()
        for name, message in check_imports(used):
            self._note(*used[name], message)

    def _check_include(self, file: Path, task: dict[str, Any], around: _Surroundings) -> bool:
        """Check the file that a task includes, unless its name has a variable; return whether to load the task."""
        target = _included(task)
        if not target or "{{" in target:
            return True
        found = [
            directory / target for directory in (file.parent, *around.directories) if (directory / target).is_file()
        ]
        if not found:
            self._note(file, task, f"included file not found: {target!r}")
            return False
        if around.role is None and found[0] not in self._checked:
            self._checked.add(found[0])
            self._check_tasks(found[0], self._read(found[0]), around)
        return around.role is not None

    def _role(self, path: Path, meta: Any) -> tuple[Any, Any]:
        """Return a play with an empty role, in which single tasks can be loaded."""
        play = self._play()
        role = Role(play=play)
        role._role_path, role._role_name = str(path), path.name  # noqa: SLF001 - what loading the role would set
        role._loader, role._variable_manager = self._loader, self._variables  # noqa: SLF001 - as above
        role.collections = _collection_of(path) + listed(meta, "collections")
        return play, role

    def _role_include(self, role: Any, play: Any) -> Any:
        return RoleInclude.load(role, play=play, variable_manager=self._variables, loader=self._loader)

    def _play(self) -> Any:
        return Play.load({"hosts": "localhost"}, variable_manager=self._variables, loader=self._loader)

    def _read(self, file: Path) -> Any:
        if file.read_bytes().startswith(_VAULT):
            return None
        options = {"trusted_as_template": True} if Origin else {}
        return self._attempt(file, lambda: self._loader.load_from_file(str(file), **options))

    def _attempt(self, file: Path, read: Any, culprit: Any = None) -> Any:
        """Return the object that ansible-core loads; on an error, record a problem and return None."""
        try:
            return read()
        except AnsibleError as error:
            self._note(file, _culprit(error) or culprit, _message_of(error))
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # raised by ansible-core for unexpected data
            self._note(file, culprit, f"cannot be read: {type(error).__name__}: {error}")
        return None

    def _note(self, file: Path, culprit: object, message: str, severity: str = "error") -> None:
        path, line = _place_of(culprit) or (None, None)
        problem = _problem(path or str(file), line, message + _missing_collection(message), severity)
        if problem not in self.problems:
            self.problems.append(problem)


def _problem(file: str, line: int | None, message: str, severity: str) -> dict[str, Any]:
    return {"file": file, "line": line, "message": message, "severity": severity}


def _missing_collection(message: str) -> str:
    """Return a hint for a module that was not found because its collection is not installed."""
    found = _UNRESOLVED.match(message)
    name = found[1] if found else ""
    with suppress(ModuleNotFoundError):  # nothing of its namespace is installed
        if not name or find_spec(f"ansible_collections.{name}"):
            return ""
    other = ", or install the Python package 'ansible', which contains it" if name in IN_PACKAGE else ""
    return f" The collection {name} is not installed: run 'ansible-galaxy collection install {name}'{other}."


def _culprit(error: BaseException | None) -> Any:
    """Return the innermost object of an error that has a place in a file."""
    found = None
    while error is not None:
        thing = getattr(error, "obj", None)
        found = thing if _place_of(thing) else found
        error = error.__cause__
    return found


def _place_of(thing: object) -> tuple[str | None, int | None] | None:
    """Return the file and line of what ansible-core has read; None if it does not know them."""
    if Origin is None:
        place = getattr(thing, "ansible_pos", None)
        return place[:2] if place else None
    origin = thing if isinstance(thing, Origin) else Origin.get_tag(thing)
    return (origin.path, origin.line_num) if origin else None


def _message_of(error: AnsibleError) -> str:
    """Return the message of an error in one line, without the lines of the file that 2.18 adds to it."""
    if Origin is None and isinstance(error.orig_exc, MarkedYAMLError):
        return f"YAML parsing failed: {error.orig_exc.problem}."
    error._suppress_extended_error = True  # noqa: SLF001 - an argument of its constructor
    return " ".join(error.message.split())


def _included(task: dict[str, Any]) -> str:
    """Return the name of the file that a task includes, or an empty string."""
    value = next((task[name] for name in _INCLUDES if name in task), None)
    if isinstance(value, dict):
        value = value.get("file")
    elif value is None and any(name in task for name in _INCLUDES):
        value = (task.get("args") or {}).get("file")
    return value.split()[0] if isinstance(value, str) and value.strip() else ""


def _included_roles(task: dict[str, Any]) -> Iterator[Any]:
    """Yield the names of the roles that a task includes, also those of a loop that lists them."""
    key = next((name for name in _ROLE_INCLUDES if isinstance(task.get(name), dict)), None)
    if key is None:
        return
    name = task[key].get("name", task[key].get("role"))
    items = task.get("loop", task.get("with_items"))
    if isinstance(items, list) and isinstance(name, str) and _LOOP_ITEM.fullmatch(name):
        yield from items
    else:
        yield name


def _collection_of(role: Path) -> list[str]:
    """Return the name of the role's collection, in which its short names are searched."""
    parts = role.parts
    if len(parts) >= 5 and parts[-5] == "ansible_collections" and parts[-2] == "roles":  # noqa: PLR2004 - a/n/c/roles/r
        return [f"{parts[-4]}.{parts[-3]}"]
    return []


def _is(file: Path, role: Path, directory: str, stem: str) -> bool:
    return file.parent == role / directory and file.stem == stem


def _shown(value: object) -> str:
    return "a mapping" if isinstance(value, dict) else repr(value)


def main() -> None:
    """Check the contents on standard input, and print the problems."""
    output = os.dup(1)
    os.dup2(2, 1)  # the output of ansible-core must not get into the result
    asked = json.load(sys.stdin)
    init_plugin_loader([])
    schemas = {(version, kind): schema for version, kind, schema in asked["schemas"]}
    definitions = Definitions(schemas, are_native=Origin is not None)
    checker = Checker(_ProjectLoader(Path(asked["directory"])), definitions)
    for content in asked["contents"]:
        checker.check(content)
    with os.fdopen(output, "w", encoding="utf-8") as file:
        json.dump(checker.problems, file)


if __name__ == "__main__":
    main()
