"""CEL rules for the rules between options in argument specs, such as ``mutually_exclusive``.

Each rule means what it means for Ansible: an option counts as set if its field is present, or if it has a default.
Ansible evaluates the rules of nested options, and ignores those of an entry point; the API server evaluates both.
The end of its message identifies a generated rule, so that it can be replaced or removed.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RULE_KEYS = ("mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by")
GENERATED = re.compile(rf" \((?:{'|'.join(RULE_KEYS)})\)$")
"""The end of the message of a generated rule."""

_TRUE, _FALSE = "true", "false"
_RESERVED = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"}
    | {"let", "loop", "package", "namespace", "return", "var", "void", "while"}
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_INT64 = 2**63
_MAX_REPETITIONS = 2**20
"""How many objects, of a few bytes each, the API server expects in an object at most."""
_MAX_COST = 10_000_000
"""The API server's limit for the estimated cost of a rule, with all its repetitions."""

_MAX_SUMMANDS = 4


class InexpressibleError(Exception):
    """A rule that CEL can't express; the message is the reason."""


@dataclass(frozen=True, slots=True)
class RuleScope:
    """What a rule refers to: options with the names and the schemas of their fields.

    ``given`` are variables with their values that are set elsewhere. ``lists`` are the schemas of the lists around.
    """

    options: Mapping[str, Mapping[str, Any]]
    fields: Mapping[str, str]
    schemas: Mapping[str, Any]
    given: Mapping[str, Any]
    lists: Sequence[Mapping[str, Any]] = ()

    def label(self, option: str) -> str:
        """Return the name of the option's field for a message."""
        return self.fields.get(option, option)

    def is_set(self, option: str, *, by_default: bool = True) -> str:
        """Return the condition that an option is set, also by its default."""
        if option in self.given or (by_default and self.options.get(option, {}).get("default") is not None):
            return _TRUE
        return f"has({self.field(option)})" if option in self.options and option in self.fields else _FALSE

    def field(self, option: str) -> str:
        """Return the expression for the field of an option. Raise InexpressibleError."""
        name = self.fields[option]
        text = f"__{name}__" if name in _RESERVED else re.sub("__|[./-]", lambda found: _ESCAPES[found[0]], name)
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", text):
            raise InexpressibleError(f"CEL has no name for the field {name}")
        if not _has_type(self.schemas[name]):
            raise InexpressibleError(
                f"CEL can't read {name}, because it has no type: set the option's type or elements"
            )
        return f"self.{text}"

    def equals(self, option: str, value: Any) -> str:
        """Return the condition that the value of an option, after Ansible's conversion, equals a value."""
        default = self.given.get(option, self.options.get(option, {}).get("default"))
        if any(isinstance(each, str) and "{{" in each for each in (value, default)):
            raise InexpressibleError(f"it depends on the template of {option}")
        if option in self.given:
            return _TRUE if default == value else _FALSE
        if option not in self.options or option not in self.fields:
            return _FALSE
        kind, schema = self.options[option].get("type") or "str", self.schemas[self.fields[option]]
        literal = _literal(kind, schema, value)
        if literal is None:
            return _FALSE
        if default is not None and _literal(kind, schema, default) is None:
            raise InexpressibleError(f"the default of {option} isn't of type {kind}")
        field = self.field(option)
        return (
            f"(!has({field}) || {field} == {literal})"
            if default == value
            else f"(has({field}) && {field} == {literal})"
        )


def _literal(kind: str, schema: Mapping[str, Any], value: Any) -> str | None:
    """Return a value in CEL, None if no value of the option equals it. Raise InexpressibleError."""
    if kind == "str":
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else None
    if kind not in ("int", "float", "bool"):
        raise InexpressibleError(f"CEL can't compare values of type {kind}")
    if not isinstance(value, int | float):
        return None
    if kind == "bool":
        return {0.0: _FALSE, 1.0: _TRUE}.get(value)
    if schema.get("type") == "number":
        return repr(float(value))
    return str(int(value)) if value == int(value) and abs(value) < _INT64 else None


def _has_type(schema: Mapping[str, Any]) -> bool:
    """Return whether CEL has a type for the values of a schema."""
    nested = [each for key in ("items", "additionalProperties") if isinstance(each := schema.get(key), Mapping)]
    return bool(schema.get("type") or schema.get("x-kubernetes-int-or-string")) and all(map(_has_type, nested))


def rules_of(key: str, rules: Any, scope: RuleScope) -> Iterator[tuple[str, str]]:
    """Yield the CEL rules, with their messages, of one of ``RULE_KEYS``. Raise InexpressibleError."""
    if key == "required_by":
        rules = (
            [(name, [needed] if isinstance(needed, str) else needed) for name, needed in rules.items()] if rules else []
        )
    repetitions = math.prod(each.get("maxItems") or _MAX_REPETITIONS for each in scope.lists)
    for rule in rules:
        for expression, message in _RULES[key](rule, scope):
            if _cost(expression) * min(repetitions, _MAX_REPETITIONS) > _MAX_COST:
                raise InexpressibleError(
                    f"the API server rejects a rule of this length in a list without maxItems ({message}): "
                    "set maxItems in the CRD"
                )
            if expression != _TRUE:
                yield expression, f"{message} ({key})"


def _cost(expression: str) -> int:
    """Return the API server's estimate for one evaluation: one for each step, more for comparisons of strings."""
    comparisons = re.findall(r" == (\"(?:[^\"\\]|\\.)*\"|[^\s)]*)", expression)
    return len(re.findall(r"has\(|!|\+|<=", expression)) + sum(2 + len(each) // 10 for each in comparisons)


def _mutually_exclusive(names: list[str], scope: RuleScope) -> Iterator[tuple[str, str]]:
    found = [scope.is_set(name, by_default=False) for name in dict.fromkeys(names)]
    conditions = [each for each in found if each != _FALSE]
    message = f"at most one of {_listed(names, scope)} can be set"
    if len(conditions) <= _MAX_SUMMANDS:
        if len(conditions) > 1:
            yield f"{' + '.join(f'({each} ? 1 : 0)' for each in conditions)} <= 1", message
        return
    for index, condition in enumerate(conditions[:-1], 1):
        yield f"!{condition} || !({' || '.join(conditions[index:])})", message


def _required_together(names: list[str], scope: RuleScope) -> Iterator[tuple[str, str]]:
    first, *others = (scope.is_set(name) for name in names)
    for name, condition in zip(names[1:], others, strict=True):
        if condition != first:
            yield f"{first} == {condition}", f"{_listed([names[0], name], scope)} can only be set together"


def _required_one_of(names: list[str], scope: RuleScope) -> Iterator[tuple[str, str]]:
    yield _any(names, scope), f"one of {_listed(names, scope)} must be set"


def _required_if(rule: list[Any], scope: RuleScope) -> Iterator[tuple[str, str]]:
    name, value, needed, *is_any = rule
    condition = scope.equals(name, value)
    suffix = f"must be set if {scope.label(name)} is {json.dumps(value, ensure_ascii=False)}"
    if any(is_any):
        yield _implied(condition, _any(needed, scope)), f"one of {_listed(needed, scope)} {suffix}"
        return
    for each in needed:
        yield _implied(condition, scope.is_set(each)), f"{scope.label(each)} {suffix}"


def _required_by(rule: tuple[str, list[str]], scope: RuleScope) -> Iterator[tuple[str, str]]:
    name, needed = rule
    for each in needed:
        message = f"{scope.label(each)} must be set if {scope.label(name)} is set"
        yield _implied(scope.is_set(name), scope.is_set(each)), message


_RULES: Mapping[str, Callable[[Any, RuleScope], Iterator[tuple[str, str]]]] = {
    "mutually_exclusive": _mutually_exclusive,
    "required_together": _required_together,
    "required_one_of": _required_one_of,
    "required_if": _required_if,
    "required_by": _required_by,
}


def _listed(names: list[str], scope: RuleScope) -> str:
    return ", ".join(map(scope.label, names))


def _any(names: list[str], scope: RuleScope) -> str:
    conditions = [each for name in names if (each := scope.is_set(name)) != _FALSE]
    return _TRUE if _TRUE in conditions else " || ".join(conditions) or _FALSE


def _implied(condition: str, consequence: str) -> str:
    if condition == _FALSE or consequence == _TRUE:
        return _TRUE
    if condition == _TRUE:
        return consequence
    return f"!{condition}" if consequence == _FALSE else f"!{condition} || {consequence}"
