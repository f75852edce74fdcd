"""Checks the argument specs of a role, ``meta/argument_specs.yml``.

Ansible itself reads them only in a run, and ignores unknown keys.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rolecall.runner.config.unknown_keys import unknown_key_message

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


def check_arguments(specs: object, types: Types) -> Iterator[Finding]:
    """Yield what is wrong with the value of ``argument_specs``: a mapping from entry points to their arguments."""
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
    if not isinstance(option.get("choices", []), list | dict):
        yield f"choices: expected a list, found {option['choices']!r}"
    yield from _check_default(option, types.get(kind) if isinstance(kind, str) else None)


def _check_default(option: Mapping[str, Any], read: Callable[[Any], Any] | None) -> Iterator[str]:
    default = option.get("default")
    if default is None:
        return
    if option.get("required") is True:
        yield "default: has no effect, because the argument is required"
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
