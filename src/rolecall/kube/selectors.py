"""Label selectors with ``matchLabels`` and ``matchExpressions``, and label and field selectors in the form of a query.

The semantics are those of Kubernetes: all requirements must match, an empty selector matches everything, and ``NotIn``
matches an object without the label. Selectors are validated when they are compiled, so a mistake in ``watches.yaml`` is
reported at startup instead of leaving objects unreconciled.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject

WITH_VALUES = ("In", "NotIn")
WITHOUT_VALUES = ("Exists", "DoesNotExist")
_OPERATORS = WITH_VALUES + WITHOUT_VALUES
_IN: Final = re.compile(r"(?P<key>[^\s!=]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUAL: Final = re.compile(r"(?P<key>[^\s!=]+)\s*(?P<operator>==?|!=)\s*(?P<value>\S*)")
_FIELD: Final = re.compile(r"(?P<field>[^\\=!]+)(?P<operator>==?|!=)(?P<value>(?:[^\\=]|\\[\\,=])*)", re.DOTALL)
_QUOTED: Final = re.compile(r"[\\,=]")
_SEPARATOR: Final = re.compile(r",(?![^(]*\))")
"""A comma that is not in brackets."""


_PART: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAX_PART: Final = 63
_PART_RULE: Final = (
    "expected at most 63 letters, digits, hyphens, underscores, and dots, the first and last one a letter or a digit"
)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_SUBDOMAIN: Final = 253


def is_subdomain(text: str) -> bool:
    """Return whether a text is a lowercase domain name, as the API server requires for the group of a kind."""
    return len(text) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def qualified_name_problem(name: str) -> str:
    """Return why the API server rejects the name of a label, an annotation, or a finalizer; empty if it doesn't.

    The rules are those of ``IsQualifiedName`` in k8s.io/apimachinery.
    """
    prefix, slash, part = name.rpartition("/")
    if not _is_part(part):
        return f"{_PART_RULE}, found {part!r}"
    if slash and not is_subdomain(prefix):
        return f"expected a lowercase domain name before the slash, such as example.com, found {prefix!r}"
    return ""


def _is_part(text: str) -> bool:
    return len(text) <= _MAX_PART and _PART.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement for one label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The requirement as in a query."""
        if self.operator in WITHOUT_VALUES:
            return f"{'!' * (self.operator == 'DoesNotExist')}{self.key}"
        return f"{self.key} {self.operator.lower()} ({','.join(sorted(self.values))})"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the requirement."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements for labels, all of which must match."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def compile(cls, raw: Mapping[str, Any] | None) -> Self:
        """Compile the selector of a manifest; None and an empty selector match everything.

        Raises ValueError with the invalid key and value.
        """
        if raw is not None and not isinstance(raw, Mapping):
            raise _invalid("selector", "a mapping", raw)
        raw = raw or {}
        unknown = sorted(set(raw) - {"matchLabels", "matchExpressions"})
        if unknown:
            raise _invalid("selector", "matchLabels and matchExpressions", unknown[0])
        requirements = (*_read_labels(raw.get("matchLabels")), *_read_expressions(raw.get("matchExpressions")))
        for requirement in requirements:
            if problem := qualified_name_problem(requirement.key):
                raise ValueError(f"label {requirement.key!r}: {problem}")
            if invalid := next((value for value in sorted(requirement.values) if value and not _is_part(value)), None):
                raise ValueError(f"value {invalid!r} of the label {requirement.key!r}: {_PART_RULE}")
        return cls(requirements)

    @property
    def text(self) -> str:
        """The selector as in a query, the same for equal selectors in any order; empty if it matches everything."""
        return ",".join(sorted({requirement.text for requirement in self.requirements}))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def _read_labels(raw: Any) -> list[Requirement]:
    if raw is None:
        return []
    if not isinstance(raw, Mapping):
        raise _invalid("matchLabels", "a mapping of strings", raw)
    for key, value in raw.items():
        if not isinstance(key, str):
            raise _invalid("matchLabels", "strings as keys", key)
        if not isinstance(value, str):
            raise _invalid("matchLabels", f"a string for {key!r}", value)
    return [Requirement(key, "In", frozenset((value,))) for key, value in raw.items()]


def _read_expressions(raw: Any) -> list[Requirement]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise _invalid("matchExpressions", "a list", raw)
    return [_read_expression(f"matchExpressions[{index}]", item) for index, item in enumerate(raw)]


def _read_expression(where: str, raw: Any) -> Requirement:
    if not isinstance(raw, Mapping):
        raise _invalid(f"{where}", "a mapping", raw)
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values") or []
    if not isinstance(key, str) or not key:
        raise _invalid(f"{where}.key", "a label key", key)
    if operator not in _OPERATORS:
        raise _invalid(f"{where}.operator", f"one of {', '.join(_OPERATORS)}", operator)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _invalid(f"{where}.values", "a list of strings", values)
    if bool(values) != (operator in WITH_VALUES):
        expected = "at least one value" if operator in WITH_VALUES else "no values"
        raise _invalid(f"{where}.values", f"{expected} for {operator}", values)
    return Requirement(key, operator, frozenset(values))


def _invalid(where: str, expected: str, found: object) -> ValueError:
    return ValueError(f"{where}: expected {expected}, found {found!r}")


def field_requirement(field: str, value: str) -> str:
    """Return the requirement of a field selector that a field has exactly this value, quoted as the API server does.

    See ``EscapeValue`` in k8s.io/apimachinery/pkg/fields.
    """
    return f"{field}=" + _QUOTED.sub(r"\\\g<0>", value)


def field_requirements(text: str) -> list[tuple[str, str, str]]:
    """Return the field, the operator (``=`` or ``!=``), and the value of each requirement. Raises ValueError."""
    found = []
    for part in filter(None, re.findall(r"(?:[^\\,]|\\.)*", text, re.DOTALL)):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a requirement of a field selector")
        operator = "!=" if match["operator"] == "!=" else "="
        found.append((match["field"], operator, re.sub(r"\\(.)", r"\1", match["value"], flags=re.DOTALL)))
    return found


def selects(obj: RawObject, labels: str, fields: str) -> bool:
    """Return whether selectors match an object; an empty one matches everything. Raises ValueError."""
    if not label_selector(labels).matches(metadata_of(obj).get("labels") or {}):
        return False
    return all(
        (_field(obj, field) == value) == (operator == "=") for field, operator, value in field_requirements(fields)
    )


def label_selector(text: str) -> LabelSelector:
    """Return a label selector, for example ``app=web,tier in (a, b),!old``. Raises ValueError."""
    return LabelSelector(tuple(map(_requirement, _parts(text))))


def _requirement(text: str) -> Requirement:
    if match := _IN.fullmatch(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], "In" if match["operator"] == "in" else "NotIn", values)
    if match := _EQUAL.fullmatch(text):
        operator = "NotIn" if match["operator"] == "!=" else "In"
        return Requirement(match["key"], operator, frozenset((match["value"],)))
    key = text.removeprefix("!").strip()
    if not key or re.search(r"[\s!=()]", key):
        raise ValueError(f"{text!r} is not a requirement of a label selector")
    return Requirement(key, "DoesNotExist" if text.startswith("!") else "Exists")


def _field(obj: RawObject, path: str) -> str:
    """Return the value of a field as a field selector compares it."""
    found: Any = obj
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return "" if found is None else str(found).lower() if isinstance(found, bool) else str(found)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in _SEPARATOR.split(text) if part.strip()]
