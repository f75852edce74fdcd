"""The argument specs of roles: finds and checks them without running anything.

Ansible itself reads them only in a run, and ignores unknown keys. A watch's role is that of its entry, or the only role
that its playbook calls. The specs are those of the entry point ``main``, in ``meta/argument_specs.yml`` or in
``meta/main.yml``.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rolecall.runner.config.ansible_config import roles_path
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.config.yaml_reader import describe_error, unknown_key_message

Finding = tuple[object, str]
"""The key or value that is invalid, from which the line is known, and a message."""

Types = Mapping[str, Callable[[Any], Any]]
"""The conversion for each type of argument; raises TypeError or ValueError."""

_ENTRY_KEYS = {
    *("author", "deprecated", "description", "examples", "mutually_exclusive", "notes", "options", "required_by"),
    *("required_if", "required_one_of", "required_together", "seealso", "short_description", "todo", "version_added"),
}
_OPTION_KEYS = {
    *("aliases", "apply_defaults", "choices", "default", "deprecated_aliases", "description", "elements", "fallback"),
    *("mutually_exclusive", "no_log", "options", "removed_at_date", "removed_from_collection", "removed_in_version"),
    *("required", "required_by", "required_if", "required_one_of", "required_together", "type", "version_added"),
}
COMPARED = ("str", "int", "float", "bool")
"""The types whose values Ansible converts before it compares them with the choices, which it takes as they are."""

_PLAYBOOK_DIRECTORY = ("{{ playbook_dir }}", "{{playbook_dir}}")
_CALLS = frozenset(f"{prefix}{verb}_role" for prefix in ("", "ansible.builtin.") for verb in ("include", "import"))
_LISTS_OF_TASKS = ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always")


def check_arguments(specs: object, types: Types) -> Iterator[Finding]:
    """Yield the mistakes in the value of ``argument_specs``: a mapping from entry points to their arguments."""
    if not isinstance(specs, dict):
        yield specs, f"argument_specs: expected a mapping of entry points, found {specs!r}"
        return
    for name, entry in specs.items():
        if not isinstance(entry, dict):
            yield name, f"argument_specs.{name}: expected a mapping, found {entry!r}"
            continue
        yield from _unknown(entry, _ENTRY_KEYS, f"argument_specs.{name}")
        yield from _check_options(name, entry, f"argument_specs.{name}", types)


def _check_options(key: object, parent: Mapping[str, Any], path: str, types: Types) -> Iterator[Finding]:
    options = parent.get("options")
    if options is None:
        return
    if not isinstance(options, dict):
        yield key, f"{path}.options: expected a mapping, found {options!r}"
        return
    for name, option in options.items():
        where = f"{path}.options.{name}"
        if not isinstance(option, dict):
            yield name, f"{where}: expected a mapping, found {option!r}"
            continue
        yield from _unknown(option, _OPTION_KEYS, where)
        yield from ((name, f"{where}: {text}") for text in _check_option(option, types))
        yield from _check_options(name, option, where, types)
    yield from ((key, f"{path}.{text}") for text in _check_rules(parent))


def _check_rules(parent: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rules between options that Ansible would misread: it takes a name for a list of letters."""
    for key in ("mutually_exclusive", "required_together", "required_one_of"):
        if not _is_names(parent.get(key) or [], _is_names):
            yield f"{key}: expected a list of lists of options, found {parent[key]!r}"
    conditions = parent.get("required_if") or []
    if not _is_names(conditions, _is_condition):
        yield f"required_if: expected a list of lists [option, value, [options]], found {conditions!r}"
    needed = parent.get("required_by") or {}
    if not isinstance(needed, dict) or not all(isinstance(each, str) or _is_names(each) for each in needed.values()):
        yield f"required_by: expected a mapping of options to lists of options, found {needed!r}"


def _is_names(value: object, is_item: Callable[[object], bool] = lambda item: isinstance(item, str)) -> bool:
    return isinstance(value, list) and all(map(is_item, value))


def _is_condition(value: object) -> bool:
    if not isinstance(value, list) or len(value) not in (3, 4):
        return False
    return isinstance(value[0], str) and _is_names(value[2]) and all(isinstance(each, bool) for each in value[3:])


def _unknown(found: Mapping[str, Any], known: set[str], path: str) -> Iterator[Finding]:
    for key in found:
        if key not in known:
            yield key, f"{path}.{key}: {unknown_key_message(str(key), {each: each for each in known})}"


def _check_option(option: Mapping[str, Any], types: Types) -> Iterator[str]:
    kind, elements = option.get("type", "str"), option.get("elements")
    for key, value in (("type", kind), ("elements", elements)):
        if value is not None and value not in types:
            yield f"{key}: expected one of {', '.join(sorted(types))}, found {value!r}"
    if elements is not None and kind != "list":
        yield f"elements: only valid for the type list, found the type {kind!r}"
    if (applies := option.get("apply_defaults")) and str(applies).lower() != "true":
        yield f'apply_defaults: expected "true", found {applies!r}: Ansible takes any other string as true too'
    if option.get("fallback"):
        yield "fallback: only modules can have it: Ansible fails in a role"
    yield from _check_choices(option, elements if kind == "list" else kind, types)
    yield from _check_default(option, types.get(kind) if isinstance(kind, str) else None)


def _check_choices(option: Mapping[str, Any], kind: object, types: Types) -> Iterator[str]:
    choices = option.get("choices")
    if choices is None:
        return
    if not isinstance(choices, list) or not choices:
        yield f"choices: expected a list with values, found {choices!r}"
    elif kind in COMPARED and kind in types:
        for choice in choices:
            if not (isinstance(choice, str) and "{{" in choice) and not _is_converted(choice, types[kind]):
                yield f"choices: expected values of type {kind}, found {choice!r}"


def _is_converted(value: object, read: Callable[[Any], Any]) -> bool:
    try:
        found = read(value)
    except (TypeError, ValueError):
        return False
    return bool(found == value) and isinstance(found, str) == isinstance(value, str)


def _check_default(option: Mapping[str, Any], read: Callable[[Any], Any] | None) -> Iterator[str]:
    default = option.get("default")
    if default is None:
        return
    if option.get("required") is True:
        yield "default: Ansible fails if an argument is required and has a default"
    if isinstance(default, str) and "{{" in default:
        return
    try:
        value = read(default) if read else default
    except (TypeError, ValueError):
        yield f"default: expected a value of type {option.get('type', 'str')}, found {default!r}"
        return
    choices = option.get("choices")
    values = value if isinstance(value, list) else [value]
    if isinstance(choices, list) and any(each not in choices for each in values):
        yield f"default: expected one of {', '.join(map(repr, choices))}, found {default!r}"


class ArgumentSpecError(Exception):
    """A role without usable argument specs; the message is one line with the file and the solution."""


@dataclass(frozen=True, slots=True)
class RoleArguments:
    """The entry point ``main`` of a role's argument specs, checked.

    ``given`` are the variables that the watch or the playbook sets itself, so that no field of the spec can.
    """

    entry: Mapping[str, Any]
    given: Mapping[str, Any]
    role: Path = Path()
    """The directory of the role."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options by name."""
        return self.entry.get("options") or {}


def read_role_arguments(watch: Watch, environment: Mapping[str, str]) -> RoleArguments:
    """Return the arguments of a watch's role. Raise ArgumentSpecError."""
    # Ansible's modules take a while to import, and most commands don't need them.
    from ansible.module_utils.common.parameters import DEFAULT_TYPE_VALIDATORS  # noqa: PLC0415

    given = dict(watch.variables)
    if isinstance(watch.content, RoleContent):
        role = watch.content.path
    else:
        role, variables = _role_of_playbook(watch.content.path, environment)
        given |= variables
    file, specs = _read_specs(role)
    if error := next(check_arguments(specs, DEFAULT_TYPE_VALIDATORS), None):
        raise ArgumentSpecError(f"{file}: {error[1]}")
    if "main" not in specs:
        raise ArgumentSpecError(f"{file}: argument_specs has no entry point main: describe the role's variables there")
    # A required option that only the finalizer sets is a field: without it, every other run fails.
    of_finalizer, options = watch.finalizer.variables if watch.finalizer else {}, specs["main"].get("options") or {}
    cleaning = {name: each for name, each in of_finalizer.items() if not options.get(name, {}).get("required")}
    return RoleArguments(specs["main"], cleaning | given, role)


def _read_specs(role: Path) -> tuple[Path, Any]:
    """Return the argument specs of a role with their file; as for Ansible, the first file is decisive."""
    files = [
        role / "meta" / f"{name}{end}" for name in ("argument_specs", "main") for end in (".yml", ".yaml", ".json")
    ]
    for file in filter(Path.is_file, files):
        try:
            found = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ArgumentSpecError(f"{file}: {describe_error(error)[0]}") from error
        except OSError as error:
            raise ArgumentSpecError(f"{file}: cannot be read: {error.strerror}") from error
        if isinstance(found, dict) and "argument_specs" in found:
            return file, found["argument_specs"]
        if file.stem == "argument_specs":
            break
    raise ArgumentSpecError(
        f"{role}: the role has no argument specs: describe its variables in meta/argument_specs.yml, below "
        "argument_specs.main.options"
    )


def _role_of_playbook(playbook: Path, environment: Mapping[str, str]) -> tuple[Path, Mapping[str, Any]]:
    """Return the only role that a playbook calls itself, and the variables that it passes."""
    try:
        plays = yaml.safe_load(playbook.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ArgumentSpecError(f"{playbook}: {describe_error(error)[0]}") from error
    calls = (
        [call for play in plays if isinstance(play, dict) for call in _calls(play)] if isinstance(plays, list) else []
    )
    if len(calls) != 1:
        found = f"it calls {', '.join(str(name) for name, _ in calls)}" if calls else "it calls none itself"
        raise ArgumentSpecError(f"{playbook}: the playbook has no single role whose arguments are the spec: {found}")
    [(name, variables)] = calls
    text = str(name)
    for each in _PLAYBOOK_DIRECTORY:
        text = text.replace(each, str(playbook.parent))
    found_by_ansible = map(Path, roles_path(Path.cwd(), environment).split(os.pathsep))
    for directory in (playbook.parent / "roles", *found_by_ansible, playbook.parent):
        if "{{" not in text and (role := Path(directory, text)).is_dir():
            return role.resolve(), variables
    raise ArgumentSpecError(f"{playbook}: the role {name!r} is not found without running the playbook")


def _calls(parent: Mapping[str, Any]) -> Iterator[tuple[object, Mapping[str, Any]]]:
    """Yield the roles that a play, or a block of tasks, calls by their entry point main, with the variables."""
    for role in parent.get("roles") or []:
        call = role if isinstance(role, dict) else {"role": role}
        yield call.get("role", call.get("name")), {**call, **(call.get("vars") or {})}
    for tasks in map(parent.get, _LISTS_OF_TASKS):
        for task in tasks if isinstance(tasks, list) else []:
            if isinstance(task, dict):
                yield from _calls({key: task[key] for key in _LISTS_OF_TASKS if key in task})
                for key in _CALLS.intersection(task):
                    arguments = task[key] if isinstance(task[key], dict) else {}
                    if arguments.get("tasks_from", "main") == "main":
                        yield arguments.get("name", arguments.get("role")), task.get("vars") or {}
