"""Infers the types of Jinja expressions in roles from their syntax trees, without ansible-core.

Only what is certain counts: a variable, or a filter of an unknown collection, can have any type.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

_ENVIRONMENT: Final = Environment(  # noqa: S701 - it only parses
    extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]
)

Types = tuple[str | None, ...]
"""The types that a result can have, in words; None for any type. The value ``omit`` has none."""

INTEGER, NUMBER, STRING, LIST, DICTIONARY = "an integer", "a number", "a string", "a list", "a dictionary"
BOOLEAN: Final = "a boolean"
MATCH: Final = "a string, a list, or empty"
_EMPTY: Final = "empty"
_ANY: Types = (None,)
_CERTAIN: Final = frozenset({INTEGER, NUMBER, STRING, LIST, DICTIONARY, BOOLEAN})
_CONSTANTS: Final[tuple[tuple[type, str], ...]] = (
    (bool, BOOLEAN),
    (int, INTEGER),
    (float, NUMBER),
    (str, STRING),
    (list, LIST),
    (dict, DICTIONARY),
    (type(None), _EMPTY),
)

_DEPENDS_ON_ARGUMENTS: Final = ("sum", "urlsplit", "int", "float", "regex_search")
"""Filters whose arguments can change the type of the result."""
_CAN_RETURN_INPUT: Final = ("combine", "truncate")
"""Filters that can return their input as it is."""
_BUILTIN: Final = ("ansible.builtin.", "ansible.legacy.")
_LISTING_FUNCTIONS: Final = ("query", "q", "range")

_TABLES: Final = {
    table: {name: found for found, names in by_type.items() for name in names}
    for table, by_type in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items()
}
FILTERS: Final[Mapping[str, str]] = _TABLES["filters"]
_METHODS: Final[Mapping[str, str]] = _TABLES["methods"]
_LOOKUPS: Final[Mapping[str, str]] = _TABLES["lookups"]


def types_of(node: nodes.Node | None) -> Types:
    """Return the types that an expression's result can have."""
    infer = next((infer for kind, infer in _INFERENCES if isinstance(node, kind)), None)
    return infer(node) if infer else _ANY


def types_of_text(text: str) -> Types:
    """Return the types that ansible-core makes of a string in a task: those of its only expression, or a string."""
    try:
        body = _ENVIRONMENT.parse(text).body
    except TemplateSyntaxError:
        return _ANY
    parts = [part for each in body if isinstance(each, nodes.Output) for part in each.nodes]
    if not all(isinstance(each, nodes.Output) for each in body):
        return _ANY  # a statement can have any result
    return types_of(parts[0]) if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData) else (STRING,)


def types_of_expression(text: str) -> Types:
    """Return the types of the result of an expression, as conditions are written."""
    try:
        return types_of(Parser(_ENVIRONMENT, text, state="variable").parse_expression())
    except TemplateSyntaxError:
        return _ANY


def type_of_constant(value: object) -> str | None:
    """Return the type of a value in YAML or in an expression."""
    return next((name for kind, name in _CONSTANTS if isinstance(value, kind)), None)


def certain_type(types: Types) -> str | None:
    """Return the type that a result has in any case, None if it isn't certain."""
    return types[0] if len(set(types)) == 1 and types[0] in _CERTAIN else None


def type_other_than_boolean(types: Types) -> str | None:
    """Return the first type that a result can have and that isn't boolean, None if there is none or it is unknown."""
    return next((each for each in types if each not in (None, BOOLEAN)), None)


def _of_filter(node: nodes.Filter) -> Types:
    name, given = _without_prefix(node.name), types_of(node.node)
    if name in ("default", "d") and node.args:
        default = types_of(node.args[0])
        # It is certain only for what is always defined that the default is never used.
        are_known = given == default or (type_other_than_boolean(given) and type_other_than_boolean(default))
        return given + default if are_known or not default else _ANY
    if name == "ternary":
        return tuple(found for each in node.args for found in types_of(each))
    if name == "mandatory":
        return given
    if name == "bool":
        return (BOOLEAN,)
    depends = name in _CAN_RETURN_INPUT or (name in _DEPENDS_ON_ARGUMENTS and bool(node.args or node.kwargs))
    return (FILTERS.get(name), *(_ANY if depends else ()))


def _of_call(node: nodes.Call) -> Types:
    called = node.node
    if isinstance(called, nodes.Getattr):
        return (_METHODS.get(called.attr),)
    name = called.name if isinstance(called, nodes.Name) else ""
    if name == "lookup":
        return _of_lookup(node)
    return (DICTIONARY if name == "dict" else LIST if name in _LISTING_FUNCTIONS else None,)


def _of_lookup(node: nodes.Call) -> Types:
    options = {each.key: each.value for each in node.kwargs}
    if "default" in options or not node.args or not isinstance(node.args[0], nodes.Const):
        return _ANY
    wants_list = options.get("wantlist")
    if isinstance(wants_list, nodes.Const) and wants_list.value is True:
        return (LIST,)
    return (_LOOKUPS.get(_without_prefix(str(node.args[0].value))), *(_ANY if options else ()))


def _of_choice(node: nodes.And | nodes.Or) -> Types:
    """Return the types of the operands that can be the result: ``and`` and ``or`` return one of their operands."""
    left, right = node.left, types_of(node.right)
    is_never_left = isinstance(left, nodes.Const) and bool(left.value) is isinstance(node, nodes.And)
    return right if is_never_left else types_of(left) + right


def _without_prefix(name: str) -> str:
    """Return the name of a plugin without the prefix of the collections that are part of ansible-core."""
    return next((name.removeprefix(prefix) for prefix in _BUILTIN if name.startswith(prefix)), name)


_INFERENCES: Final[tuple[tuple[type[nodes.Node] | tuple[type[nodes.Node], ...], Callable[[Any], Types]], ...]] = (
    (nodes.Const, lambda node: (type_of_constant(node.value),)),
    ((nodes.List, nodes.Tuple), lambda _: (LIST,)),
    (nodes.Dict, lambda _: (DICTIONARY,)),
    (nodes.Concat, lambda _: (STRING,)),
    ((nodes.Compare, nodes.Not, nodes.Test), lambda _: (BOOLEAN,)),
    (nodes.Filter, _of_filter),
    (nodes.Call, _of_call),
    ((nodes.And, nodes.Or), _of_choice),
    (nodes.CondExpr, lambda node: types_of(node.expr1) + types_of(node.expr2)),
    (nodes.Getitem, lambda node: ("a list or a string",) if isinstance(node.arg, nodes.Slice) else _ANY),
    (nodes.BinExpr, lambda _: ("a number, a string, or a list",)),
    (nodes.Name, lambda node: () if node.name == "omit" else _ANY),
)
