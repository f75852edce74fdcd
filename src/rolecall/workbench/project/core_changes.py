"""Finds parts of tasks that ansible-core 2.18 accepts and ansible-core 2.19 rejects, in older roles.

Only certain findings count, because validation runs no role; the migration guide lists the changes that only a run
shows. A condition is reported if its result can't be boolean: its type is inferred from the syntax tree that Jinja
makes of it, and a variable, or a filter of an unknown collection, may be boolean. This module needs Jinja only, not
ansible-core.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from rolecall.runner.config.ansible_config import release_numbers
from rolecall.runner.warm.ansible_patches.patches import TRUSTS_TEMPLATES

Finding = tuple[object, str]
"""The value with the condition, by which its line is found, and a message."""

_KEYS: Final = ("when", "failed_when", "changed_when", "until")
_ASSERTIONS: Final = ("assert", "ansible.builtin.assert", "ansible.legacy.assert")
_SHOWN: Final = 80
ENVIRONMENT: Final = Environment(  # noqa: S701 - it only parses
    extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]
)

INTEGER, NUMBER, STRING, LIST, DICTIONARY, _NONE = (
    "an integer",
    "a number",
    "a string",
    "a list",
    "a dictionary",
    "empty",
)
_MATCH: Final = "a string, a list, or empty"
FILTERS: Final = {
    **dict.fromkeys(("count", "length", "int", "wordcount"), INTEGER),
    **dict.fromkeys(("abs", "float", "log", "pow", "root", "round", "sum"), NUMBER),
    **dict.fromkeys(
        (
            *("b64decode", "b64encode", "basename", "capitalize", "center", "checksum", "comment", "dirname", "escape"),
            *("expanduser", "expandvars", "filesizeformat", "format", "hash", "human_readable", "indent", "join"),
            *("lower", "md5", "password_hash", "quote", "realpath", "regex_escape", "regex_replace", "relpath"),
            *("replace", "sha1", "string", "strftime", "title", "to_json", "to_nice_json", "to_nice_yaml", "to_uuid"),
            *("to_yaml", "tojson", "trim", "truncate", "type_debug", "upper", "urlencode", "wordwrap"),
        ),
        STRING,
    ),
    **dict.fromkeys(
        (
            *("batch", "dict2items", "dictsort", "difference", "flatten", "intersect", "items", "list", "map"),
            *("permutations", "regex_findall", "reject", "rejectattr", "select", "selectattr", "slice", "sort"),
            *("split", "splitext", "subelements", "symmetric_difference", "union", "unique", "zip", "zip_longest"),
        ),
        LIST,
    ),
    **dict.fromkeys(("combine", "items2dict", "urlsplit"), DICTIONARY),
    "regex_search": _MATCH,
}
"""The results of filters of Jinja and ansible-core, if they are never boolean."""

_KEEPING: Final = ("mandatory",)
METHODS: Final = {
    **dict.fromkeys(("count", "find", "rfind"), INTEGER),
    **dict.fromkeys(("join", "lower", "lstrip", "replace", "rstrip", "strip", "upper"), STRING),
    **dict.fromkeys(("items", "keys", "rsplit", "split", "splitlines", "values"), LIST),
}
LOOKUPS: Final = {
    **dict.fromkeys(
        ("csvfile", "env", "file", "fileglob", "first_found", "password", "pipe", "unvault", "url", "varnames"), STRING
    ),
    "kubernetes.core.k8s": f"{LIST} or {DICTIONARY}",
}
_BUILTIN: Final = ("ansible.builtin.", "ansible.legacy.")
LISTING_FUNCTIONS: Final = ("query", "q", "range")
K8S: Final = ("k8s", "kubernetes.core.k8s", "community.kubernetes.k8s", "community.okd.k8s", "redhat.openshift.k8s")
_SET_FACT: Final = ("set_fact", "ansible.builtin.set_fact", "ansible.legacy.set_fact")
_LITERAL: Final = re.compile(r"\s*(\{\s*'[^'{}]*'\s*:|\[\s*'[^'\[\]]*').*[}\]]\s*", re.DOTALL)
"""A text in Python's notation of a dictionary or list, which 2.18 converted; JSON may be meant as text."""


def find_broken_conditions(task: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the conditions of a task, a block, or an entry of ``roles`` whose result can't be boolean."""
    for key in _KEYS:
        for condition in _each(task.get(key)):
            yield from _check(key, condition)
    for key in _ASSERTIONS:
        arguments = task.get(key)
        if isinstance(arguments, dict):
            for condition in _each(arguments.get("that")):
                yield from _check("that", condition)


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _check(key: str, condition: Any) -> Iterator[Finding]:
    found = _result_of_condition(condition)
    if found:
        text = " ".join(str(condition).split())
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        yield condition, f"{key}: the result of {shown!r} can be {found}; {_advice(found)}"


def _advice(found: str) -> str:
    if found in (INTEGER, NUMBER):
        return "compare it, as in '… > 0'"
    if found == _MATCH:
        return "use the test 'is search(…)'"
    return "compare it, as in '… | length > 0', or use '… | bool' for text such as 'true'"


def _result_of_condition(condition: Any) -> str | None:
    """Return the type that a condition's result can have and that isn't boolean, None if there is none or unknown."""
    if isinstance(condition, bool) or condition is None:
        return None
    if not isinstance(condition, str):
        return _of_constant(condition)
    text = condition.strip()
    try:
        if not (text.startswith("{{") and text.endswith("}}")):
            return _result_of(Parser(ENVIRONMENT, text, state="variable").parse_expression())
        body = ENVIRONMENT.parse(text).body
    except TemplateSyntaxError:
        return None
    # Ansible evaluates a template first, and then its result if that is a string.
    output = body[0] if len(body) == 1 else None
    if not isinstance(output, nodes.Output) or len(output.nodes) != 1:
        return None
    found = _result_of(output.nodes[0])
    return None if found in (STRING, _MATCH) else found


def _result_of(node: nodes.Node | None) -> str | None:
    """Return the type of an expression's result if it can't be boolean, else None."""
    infer = next((infer for kind, infer in _INFERENCES if isinstance(node, kind)), None)
    return infer(node) if infer else None


def _of_constant(value: object) -> str | None:
    if isinstance(value, bool):
        return None
    kinds = ((int, INTEGER), (float, NUMBER), (str, STRING), (list, LIST), (dict, DICTIONARY))
    return next((name for kind, name in kinds if isinstance(value, kind)), _NONE if value is None else None)


def _of_filter(node: nodes.Filter) -> str | None:
    name = without_prefix(node.name)
    if name in ("default", "d"):
        return _result_of(node.node) if node.args and _result_of(node.args[0]) else None
    if name == "ternary":
        return next(filter(None, map(_result_of, node.args)), None)
    return _result_of(node.node) if name in _KEEPING else FILTERS.get(name)


def _of_call(node: nodes.Call) -> str | None:
    called = node.node
    if isinstance(called, nodes.Getattr):
        return METHODS.get(called.attr)
    name = called.name if isinstance(called, nodes.Name) else ""
    if name == "lookup":
        return _of_lookup(node)
    if name == "dict":
        return DICTIONARY
    return LIST if name in LISTING_FUNCTIONS else None


def _of_lookup(node: nodes.Call) -> str | None:
    options = {each.key: each.value for each in node.kwargs}
    if "default" in options or not node.args or not isinstance(node.args[0], nodes.Const):
        return None
    wants_list = options.get("wantlist")
    if isinstance(wants_list, nodes.Const) and wants_list.value is True:
        return LIST
    return LOOKUPS.get(without_prefix(str(node.args[0].value)))


def _of_choice(node: nodes.And | nodes.Or) -> str | None:
    """Return the type of an operand that can be the result: ``and`` and ``or`` return one of their operands."""
    left = node.left
    if isinstance(left, nodes.Const) and bool(left.value) is isinstance(node, nodes.And):
        return _result_of(node.right)
    return _result_of(left) or _result_of(node.right)


def _of_branches(node: nodes.CondExpr) -> str | None:
    return _result_of(node.expr1) or _result_of(node.expr2)


def _of_item(node: nodes.Getitem) -> str | None:
    return "a list or a string" if isinstance(node.arg, nodes.Slice) else None


def without_prefix(name: str) -> str:
    """Return the name of a plugin without the prefix of the collections that are part of ansible-core."""
    return next((name.removeprefix(prefix) for prefix in _BUILTIN if name.startswith(prefix)), name)


_INFERENCES: Final[tuple[tuple[type[nodes.Node], Callable[[Any], str | None]], ...]] = (
    (nodes.Const, lambda node: _of_constant(node.value)),
    (nodes.List, lambda _: LIST),
    (nodes.Tuple, lambda _: LIST),
    (nodes.Dict, lambda _: DICTIONARY),
    (nodes.Concat, lambda _: STRING),
    (nodes.Filter, _of_filter),
    (nodes.Call, _of_call),
    (nodes.And, _of_choice),
    (nodes.Or, _of_choice),
    (nodes.CondExpr, _of_branches),
    (nodes.Getitem, _of_item),
    (nodes.BinExpr, lambda _: "a number, a string, or a list"),
)


@dataclass(frozen=True, slots=True)
class CoreChanges:
    """What an ansible-core from 2.19 on does with tasks.

    ``core`` is its release. ``kubernetes_core`` is the release of the collection; it has no number if it is unknown or
    not installed. ``allows_broken_conditions`` is the value of the setting ``ALLOW_BROKEN_CONDITIONALS``.
    """

    core: str
    kubernetes_core: str = ""
    allows_broken_conditions: bool = False

    def check(self, task: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield a task's value and a message for each change that the task meets."""
        for condition, message in find_broken_conditions(task):
            yield condition, f"{message}. {self._consequence}"
        yield from self._check_template(task)
        yield from self._check_literals(task)

    @property
    def _consequence(self) -> str:
        if self.allows_broken_conditions:
            return (
                f"ansible-core {self.core} accepts this because of ALLOW_BROKEN_CONDITIONALS, which ends with 2.23: "
                "there, conditions must be boolean"
            )
        return (
            f"With ansible-core {self.core}, conditions must be boolean, unless "
            "ANSIBLE_ALLOW_BROKEN_CONDITIONALS=true is set, which 'ansible-operator' does, until 2.22"
        )

    def _check_template(self, task: Mapping[str, Any]) -> Iterator[Finding]:
        if not (found := release_numbers(self.kubernetes_core)) or found >= TRUSTS_TEMPLATES:
            return
        for name in K8S:
            arguments = task.get(name)
            if isinstance(arguments, dict) and "template" in arguments:
                message = (
                    f"{name}: with ansible-core {self.core}, kubernetes.core {self.kubernetes_core} renders 'template' "
                    "only in warm runs: install kubernetes.core 5.3.0 or newer"
                )
                yield arguments["template"], message

    def _check_literals(self, task: Mapping[str, Any]) -> Iterator[Finding]:
        mappings = (task.get(name) for name in ("vars", *_SET_FACT))
        values = [item for mapping in mappings if isinstance(mapping, dict) for item in mapping.items()]
        for name, value in values:
            if isinstance(value, str) and "{{" in value and _LITERAL.fullmatch(value):
                message = (
                    f"{name}: ansible-core {self.core} keeps this text as a string and no longer makes a dictionary or "
                    "list of it: write it in YAML, or as one expression, as in \"{{ {'key': value} }}\""
                )
                yield value, message
