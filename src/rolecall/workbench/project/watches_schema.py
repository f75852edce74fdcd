"""The JSON Schema of ``watches.yaml``, for editors: made from the declarations of its keys.

A file that the schema accepts has no error and no unknown key for ``rolecall validate``, and the other way round, but
for the rules that no schema can express: whether roles and playbooks exist, whether two entries have the same kind,
whether a JSONPath can be parsed, whether a group is a domain name, and what a role declares. Keys are known in the
spelling of the reference only. Where a value has a reference to an environment variable, only the operator knows what
it stands for, so it is accepted.

Draft 7, which editors know best.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rolecall.kube.quantities import PART
from rolecall.kube.selectors import WITH_VALUES, WITHOUT_VALUES
from rolecall.runner.config import watch_keys as keys
from rolecall.runner.config.content import DECLARED
from rolecall.runner.config.watch_keys import BOOLEAN, BOOLEANS, DURATION, INTEGER, LIST, MAPPING, PATH, TEXT, Key, Type

Schema = dict[str, Any]
DRAFT: Final = "http://json-schema.org/draft-07/schema#"

_END: Final = r"$(?!\n)"
"""The end of a text: ``$`` alone would allow a line break after it, in some languages."""

_REFERENCE_FORM: Final = r"\$[{A-Za-z_]"
_REFERENCE: Final[Schema] = {"type": "string", "pattern": _REFERENCE_FORM}
_SCALAR: Final[Schema] = {"type": ["string", "number", "boolean", "null"]}
_TRUE: Final = [word for word, value in BOOLEANS.items() if value]
_FALSE: Final = [word for word, value in BOOLEANS.items() if not value]
_ZERO: Final = PART.pattern.replace(r"\d", "0")
_DURATION_FORM: Final = rf"\+?({PART.pattern})+|-({_ZERO})+|[+-]*0"
_FILLED: Final[Schema] = {"not": {"enum": ["", 0, False, None]}}
"""A value that is there, for the Go runner and for us."""

_TEXTS: Final[Schema] = {"items": {"type": "string"}}
_LABELS: Final = {"type": ["string", "boolean"]}
"""The types of texts that start with a letter: not those of numbers."""

_OF_KEYS: Final[Mapping[Key[Any], Schema]] = {
    keys.VERSION: _LABELS | {"pattern": f"^[a-z]([-a-z0-9]{{0,61}}[a-z0-9])?{_END}|{_REFERENCE_FORM}"},
    keys.KIND: _LABELS | {"pattern": f"^[A-Za-z]([-A-Za-z0-9]{{0,61}}[A-Za-z0-9])?{_END}|{_REFERENCE_FORM}"},
    keys.READY_VALUE: {"type": ["string", "null"]},
    keys.REASON: {"type": ["string", "null"]},
    keys.MESSAGE: {"type": ["string", "null"]},
    keys.VARIABLES: {"enum": [keys.VARIABLES.default, DECLARED, None]},
    keys.MATCH_LABELS: {"additionalProperties": {"type": "string"}},
    keys.EXPRESSION_KEY: {"type": "string"},
    keys.EXPRESSION_OPERATOR: {"enum": [*WITH_VALUES, *WITHOUT_VALUES]},
    keys.VALUES: _TEXTS,
    keys.FIELDS: _TEXTS,
    keys.SENSITIVE: _TEXTS,
    keys.STATUS: {"additionalProperties": {"type": "string"}},
}
"""The constraints of a key beyond its type."""


def _spelled(words: Iterable[str]) -> Schema:
    """Return a schema for strings that are one of these words, in any case."""
    letters = ("".join(f"[{letter}{letter.upper()}]" for letter in word) for word in words)
    return {"type": "string", "pattern": f"^({'|'.join(letters)}){_END}"}


_OF_TYPES: Final[Mapping[Type[Any], Schema]] = {
    TEXT: _SCALAR,
    PATH: _SCALAR,
    keys.PATH_OR_MAPPING: {"type": ["string", "object", "null"]},
    BOOLEAN: {
        "anyOf": [
            {"type": ["boolean", "null"]},
            _spelled(BOOLEANS),
            _REFERENCE,
        ]
    },
    INTEGER: {"anyOf": [{"type": ["integer", "null"]}, _REFERENCE]},
    DURATION: {"anyOf": [{"type": "null"}, {"type": "string", "pattern": f"^({_DURATION_FORM}){_END}"}, _REFERENCE]},
    MAPPING: {"type": ["object", "null"]},
    LIST: {"type": ["array", "null"]},
}


def watches_schema() -> Schema:
    """Return the schema, as it is written to JSON."""
    return {
        "$schema": DRAFT,
        "title": "watches.yaml",
        "description": "The kinds that the operator reconciles, and how.",
        "type": ["array", "null"],
        "items": _of_mapping(keys.ENTRY, _any_filled(keys.ROLE, keys.PLAYBOOK) | _rule_of_ready()),
    }


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(watches_schema(), indent=2, ensure_ascii=False) + "\n"


def _of_mapping(declared: Iterable[Key[Any]], rule: Schema | None = None) -> Schema:
    declared = tuple(declared)
    return {
        "type": "object",
        "properties": {key.name: _of_key(key) for key in declared},
        "required": [key.name for key in declared if key.is_required],
        "additionalProperties": False,
        **(rule or {}),
    }


def _of_key(key: Key[Any]) -> Schema:
    described: Schema = {"description": key.help}
    if key.default:
        described["default"] = key.default
    found = described | _OF_TYPES[key.type] | _OF_KEYS.get(key, {})
    if key.is_required:
        found |= {"type": [each for each in _as_list(found["type"]) if each != "null"], "minLength": 1}
    if key.keys and key.type is LIST:
        found["items"] = _of_mapping(key.keys, _rule_of_items(key))
    elif key.keys:
        nested = _of_mapping(key.keys, _rule_of_finalizer() if key is keys.FINALIZER else None)
        found |= {**nested, "type": found["type"]}
    return found


def _as_list(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def _rule_of_items(key: Key[Any]) -> Schema:
    if key is keys.TRIGGERS:
        is_owner = {"anyOf": [{"const": True}, _spelled(_TRUE), _REFERENCE]}
        ways = [_with(keys.OWNER, is_owner), _with(keys.LABELS, _FILLED), _with(keys.NAME, _FILLED)]
        return {"oneOf": ways}
    if key is keys.MATCH_EXPRESSIONS:
        some, none = {"type": "array", "minItems": 1}, {"type": ["array", "null"], "maxItems": 0}
        has_values = {"properties": {keys.EXPRESSION_OPERATOR.name: {"enum": list(WITH_VALUES)}}}
        return {"if": has_values, "then": _with(keys.VALUES, some), "else": {"properties": {keys.VALUES.name: none}}}
    return {}


def _rule_of_finalizer() -> Schema:
    has_variables = _with(keys.VARS, {"type": "object", "minProperties": 1})
    return {"anyOf": [*_any_filled(keys.ROLE, keys.PLAYBOOK)["anyOf"], has_variables]}


def _rule_of_ready() -> Schema:
    is_on: Schema = {"not": {"anyOf": [{"const": False}, _spelled(_FALSE)]}}
    switches = {key.name: is_on for key in (keys.MANAGE_STATUS, keys.READY_CONDITIONS)}
    return {"if": _with(keys.READY, {"type": ["string", "object"]}), "then": {"properties": switches}}


def _any_filled(*declared: Key[Any]) -> Schema:
    return {"anyOf": [_with(key, _FILLED) for key in declared]}


def _with(key: Key[Any], schema: Schema) -> Schema:
    return {"required": [key.name], "properties": {key.name: schema}}
