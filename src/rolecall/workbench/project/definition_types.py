"""Finds values in the definitions of objects that the CRD of the project rejects because of their type.

Ansible-core keeps the type of an expression from 2.19 on: ``"{{ x | length }}"`` is an integer, which the API server
rejects for a string, in every run. In a template file or a text, the type is that of the rendered YAML: the quotes
decide. Only certain types count: a variable, or a filter of an unknown collection, can have any type. This module needs
Jinja and PyYAML only, not ansible-core.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml
from jinja2 import TemplateSyntaxError, nodes

from rolecall.workbench.project.core_changes import (
    DICTIONARY,
    ENVIRONMENT,
    FILTERS,
    INTEGER,
    K8S,
    LIST,
    LISTING_FUNCTIONS,
    LOOKUPS,
    METHODS,
    NUMBER,
    STRING,
    without_prefix,
)

Schema = Mapping[str, Any]
Finding = tuple[object, str]
"""The value from which the line is known, and a message."""

BOOLEAN: Final = "a boolean"
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
_DEPENDS_ON_ARGUMENTS: Final = ("sum", "urlsplit", "int", "float", "regex_search")
"""Filters whose arguments can change the type of the result."""
_CAN_RETURN_INPUT: Final = ("combine", "truncate")
"""Filters that can return their input as it is."""

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
    if isinstance(value, str):
        found = _type_of_text(value)
    elif isinstance(value, bool):
        found = BOOLEAN
    else:
        kinds = ((int, INTEGER), (float, NUMBER), (dict, DICTIONARY), (list, LIST))
        found = next((name for kind, name in kinds if isinstance(value, kind)), None)
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


def _type_of_text(text: str) -> str | None:
    """Return the type that ansible-core makes of a string in a task, None if it isn't certain."""
    try:
        body = ENVIRONMENT.parse(text).body
    except TemplateSyntaxError:
        return None
    if not all(isinstance(each, nodes.Output) for each in body):
        return None  # a statement can have any result
    parts = [part for each in body if isinstance(each, nodes.Output) for part in each.nodes]
    if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData):
        return type_of(parts[0])
    return STRING


def type_of(node: nodes.Node) -> str | None:
    """Return the type of an expression's result, None if it isn't certain."""
    infer = next((infer for kind, infer in _INFERENCES if isinstance(node, kind)), None)
    return infer(node) if infer else None


def _of_constant(node: nodes.Const) -> str | None:
    kinds = ((bool, BOOLEAN), (int, INTEGER), (float, NUMBER), (str, STRING))
    return next((name for kind, name in kinds if isinstance(node.value, kind)), None)


def _of_filter(node: nodes.Filter) -> str | None:
    name = without_prefix(node.name)
    arguments: list[nodes.Node] = [*node.args, *(each.value for each in node.kwargs)]
    if name in ("default", "d") and node.args and node.node:
        return _common(node.node, node.args[0])
    if name == "ternary":
        return _common(*node.args[:2])
    if name == "bool":
        return BOOLEAN
    if name == "mandatory" and node.node:
        return type_of(node.node)
    if name in _CAN_RETURN_INPUT or (name in _DEPENDS_ON_ARGUMENTS and arguments):
        return None
    return FILTERS.get(name)


def _of_call(node: nodes.Call) -> str | None:
    called = node.node
    if isinstance(called, nodes.Getattr):
        return METHODS.get(called.attr)
    name = called.name if isinstance(called, nodes.Name) else ""
    if name != "lookup":
        return DICTIONARY if name == "dict" else LIST if name in LISTING_FUNCTIONS else None
    if node.kwargs or not node.args or not isinstance(node.args[0], nodes.Const):
        return None
    found = LOOKUPS.get(without_prefix(str(node.args[0].value)))
    return found if found == STRING else None


def _common(*choices: nodes.Node) -> str | None:
    """Return the type that all of these have; ``omit`` leaves the field out."""
    found = {type_of(each) for each in choices if not (isinstance(each, nodes.Name) and each.name == "omit")}
    return found.pop() if len(found) == 1 else None


_INFERENCES: Final[tuple[tuple[type[nodes.Node] | tuple[type[nodes.Node], ...], Callable[[Any], str | None]], ...]] = (
    (nodes.Const, _of_constant),
    ((nodes.List, nodes.Tuple), lambda _: LIST),
    (nodes.Dict, lambda _: DICTIONARY),
    (nodes.Concat, lambda _: STRING),
    ((nodes.Compare, nodes.Not, nodes.Test), lambda _: BOOLEAN),
    (nodes.Filter, _of_filter),
    (nodes.Call, _of_call),
    ((nodes.And, nodes.Or), lambda node: _common(node.left, node.right)),
    (nodes.CondExpr, lambda node: _common(node.expr1, node.expr2) if node.expr2 else None),
)


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
        found = _type_of_text(f"{{{{{self.expressions[node.value]}}}}}")
        return found if found in _RENDERED else None

    def _line(self, node: yaml.Node) -> int:
        missing = sum(count for position, count in self.cuts if position <= node.start_mark.index)
        return int(node.start_mark.line) + 1 + missing


def _pairs(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """Return the fields of a mapping; those of several branches of a template can have the same name."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return [(str(key.value), value) for key, value in pairs if isinstance(key, yaml.ScalarNode)]
