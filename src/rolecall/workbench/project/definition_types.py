"""Finds values in the definitions of objects that the CRD of the project rejects because of their type.

Ansible-core keeps the type of an expression from 2.19 on: ``"{{ x | length }}"`` is an integer, which the API server
rejects for a string, in every run. In a template file or a text, the type is that of the rendered YAML: the quotes
decide. Only certain types count: a variable, or a filter of an unknown collection, can have any type. This module needs
Jinja and PyYAML only, not ansible-core.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from rolecall.workbench.project.core_changes import K8S
from rolecall.workbench.project.expression_types import (
    BOOLEAN,
    DICTIONARY,
    INTEGER,
    LIST,
    NUMBER,
    STRING,
    certain_type,
    type_of_constant,
    types_of_text,
)

Schema = Mapping[str, Any]
Finding = tuple[object, str]
"""The value from which the line is known, and a message."""

_ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "string": (STRING,),
    "integer": (INTEGER, NUMBER),  # 3.0 is an integer
    "number": (INTEGER, NUMBER),
    "boolean": (BOOLEAN,),
    "array": (LIST,),
    "object": (DICTIONARY,),
}
_DEFINITIONS: Final = ("definition", "resource_definition", "inline")
_STATUS: Final = tuple(f"{prefix}k8s_status" for prefix in ("", "operator_sdk.util.", "rolecall.util."))
_ADVICE: Final[Mapping[str, str]] = {
    "string": "convert it with '| string', or quote it in a template file",
    "integer": "convert it with '| int', without quotes in a template file",
    "number": "convert it with '| float', without quotes in a template file",
    "boolean": "convert it with '| bool', without quotes in a template file",
    "array": "write a list, or an expression whose result is one",
    "object": "write a mapping, or an expression whose result is one",
}

_PARTS: Final = re.compile(r"\{\{[-+]?(.*?)[-+]?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_MARK: Final = re.compile(r"rolecall\d+expression")
_RENDERED: Final = (INTEGER, NUMBER, BOOLEAN, LIST, DICTIONARY)
"""The types of expressions that keep their type in YAML without quotes; a string can become anything."""
_TAGS: Final = {"int": INTEGER, "float": NUMBER, "bool": BOOLEAN, "str": STRING}


@dataclass(frozen=True, slots=True)
class Definitions:
    """The schemas of the project's kinds, by API version and kind.

    If values ``are_native``, an expression keeps its type (ansible-core from 2.19 on).
    """

    schemas: Mapping[tuple[str, str], Schema]
    are_native: bool

    def check_task(self, task: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield the values in a task's objects that the API server rejects."""
        for name in K8S:
            if isinstance(arguments := task.get(name), dict):
                found = next((arguments[key] for key in _DEFINITIONS if key in arguments), None)
                for each in found if isinstance(found, list) else [found]:
                    yield from self._check_definition(each, arguments)
        for name in _STATUS:
            if isinstance(arguments := task.get(name), dict) and self.are_native:
                schema = self._schema(arguments.get("api_version"), arguments.get("kind"))
                yield from _check(arguments.get("status"), _child(schema, "status"), "status")

    def _check_definition(self, definition: Any, arguments: Mapping[str, Any]) -> Iterator[Finding]:
        if isinstance(definition, str):
            yield from ((definition, message) for _, message in self.check_text(definition))
        elif isinstance(definition, dict) and self.are_native:
            version = definition.get("apiVersion", arguments.get("api_version"))
            schema = self._schema(version, definition.get("kind", arguments.get("kind")))
            for part in ("spec", "status"):
                yield from _check(definition.get(part), _child(schema, part), part)

    def check_text(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the line of each such value in the text of a template, with a message.

        A text that isn't YAML without its statements is skipped.
        """
        if not any(kind in text for _, kind in self.schemas):
            return
        template = _TextTemplate.of(text)
        try:
            documents = list(yaml.compose_all(template.text, Loader=yaml.SafeLoader))
        except (yaml.YAMLError, ValueError, RecursionError):
            return
        for document in documents:
            fields = dict(_pairs(document))
            schema = self._schema(*(getattr(fields.get(key), "value", None) for key in ("apiVersion", "kind")))
            for part in ("spec", "status"):
                yield from template.check(fields.get(part), _child(schema, part), part)

    def _schema(self, version: object, kind: object) -> Schema:
        return self.schemas.get((str(version), str(kind)), {})


def _check(value: Any, schema: Schema, path: str) -> Iterator[Finding]:
    """Yield the parts of a value in a task whose type the schema rejects."""
    found = certain_type(types_of_text(value) if isinstance(value, str) else (type_of_constant(value),))
    if found and (message := _rejection(found, schema, path)):
        yield value, message
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _check(each, _child(schema, str(key)), f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from _check(each, schema.get("items") or {}, f"{path}[]")


def _rejection(found: str, schema: Schema, path: str) -> str:
    """Return the message for a type that the schema rejects, else an empty string."""
    expected = str(schema.get("type") or "")
    if expected not in _ACCEPTED or schema.get("x-kubernetes-int-or-string") or found in _ACCEPTED[expected]:
        return ""
    return f"{path}: the value is {found}, but the CRD of this project expects the type {expected}: {_ADVICE[expected]}"


def _child(schema: Schema, key: str) -> Schema:
    found = (schema.get("properties") or {}).get(key, schema.get("additionalProperties"))
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class _TextTemplate:
    """A template without its statements, with a mark in place of each expression.

    ``expressions`` are the expressions by their marks. ``cuts`` are the positions in the text after which lines of the
    template are missing, with their numbers.
    """

    text: str
    expressions: Mapping[str, str]
    cuts: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, template: str) -> "_TextTemplate":
        """Return the parts of a template."""
        expressions: dict[str, str] = {}
        cuts: list[tuple[int, int]] = []
        text, end = "", 0
        for part in _PARTS.finditer(template):
            text += template[end : part.start()]
            end = part.end()
            if part[1] is not None:
                mark = f"rolecall{len(expressions)}expression"
                expressions[mark] = part[1]
                text += mark
            cuts.append((len(text), part[0].count("\n")))
        return cls(text + template[end:], expressions, cuts)

    def check(self, node: yaml.Node | None, schema: Schema, path: str) -> Iterator[tuple[int, str]]:
        """Yield the lines of the values whose type the schema rejects, with messages."""
        found = self._type(node)
        if node and found and (message := _rejection(found, schema, path)):
            yield self._line(node), message
        elif isinstance(node, yaml.MappingNode):
            for key, each in _pairs(node):
                if not _MARK.search(key):
                    yield from self.check(each, _child(schema, key), f"{path}.{key}")
        elif isinstance(node, yaml.SequenceNode):
            for each in node.value:
                yield from self.check(each, schema.get("items") or {}, f"{path}[]")

    def _type(self, node: yaml.Node | None) -> str | None:
        """Return the type of a value after the template is rendered, None if it isn't certain."""
        if not isinstance(node, yaml.ScalarNode):
            kinds = ((yaml.MappingNode, DICTIONARY), (yaml.SequenceNode, LIST))
            return next((name for kind, name in kinds if isinstance(node, kind)), None)
        if node.style:
            return STRING
        if not _MARK.search(node.value):
            return _TAGS.get(node.tag.rpartition(":")[2])
        if node.value not in self.expressions:
            return None
        found = certain_type(types_of_text(f"{{{{{self.expressions[node.value]}}}}}"))
        return found if found in _RENDERED else None

    def _line(self, node: yaml.Node) -> int:
        missing = sum(count for position, count in self.cuts if position <= node.start_mark.index)
        return int(node.start_mark.line) + 1 + missing


def _pairs(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """Return the fields of a mapping; those of several branches of a template can have the same name."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return [(str(key.value), value) for key, value in pairs if isinstance(key, yaml.ScalarNode)]
