"""Label selectors: ``matchLabels`` and ``matchExpressions``, compiled into one question about a set of labels.

The meaning is that of Kubernetes: all requirements must hold, an empty selector matches everything, and ``NotIn``
holds for an object that lacks the label. Everything that is wrong with a selector is said when it is compiled, so
that a mistake in ``watches.yaml`` is found at the start and not as an object that never gets reconciled.
``predicates`` use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_OPERATORS = _WITH_VALUES + _WITHOUT_VALUES


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one label must be like."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels fulfil it."""
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
    """Requirements that labels must fulfil, all of them."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def compile(cls, raw: Mapping[str, Any] | None) -> Self:
        """Compile the selector of a manifest; None and an empty one match everything.

        Raises ValueError that names the key and the value that is wrong.
        """
        if raw is not None and not isinstance(raw, Mapping):
            raise _wrong("selector", "a mapping", raw)
        raw = raw or {}
        unknown = sorted(set(raw) - {"matchLabels", "matchExpressions"})
        if unknown:
            raise _wrong("selector", "matchLabels and matchExpressions", unknown[0])
        return cls((*_read_labels(raw.get("matchLabels")), *_read_expressions(raw.get("matchExpressions"))))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels fulfil every requirement."""
        return all(requirement.holds(labels) for requirement in self.requirements)


def _read_labels(raw: Any) -> list[Requirement]:
    if raw is None:
        return []
    if not isinstance(raw, Mapping):
        raise _wrong("matchLabels", "a mapping of texts", raw)
    for key, value in raw.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise _wrong("matchLabels", f"a text for {key!r}", value)
    return [Requirement(key, "In", frozenset((value,))) for key, value in raw.items()]


def _read_expressions(raw: Any) -> list[Requirement]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise _wrong("matchExpressions", "a list", raw)
    return [_read_expression(f"matchExpressions[{index}]", item) for index, item in enumerate(raw)]


def _read_expression(where: str, raw: Any) -> Requirement:
    if not isinstance(raw, Mapping):
        raise _wrong(f"{where}", "a mapping", raw)
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values") or []
    if not isinstance(key, str) or not key:
        raise _wrong(f"{where}.key", "a label's key", key)
    if operator not in _OPERATORS:
        raise _wrong(f"{where}.operator", f"one of {', '.join(_OPERATORS)}", operator)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _wrong(f"{where}.values", "a list of texts", values)
    if bool(values) != (operator in _WITH_VALUES):
        expected = "at least one value" if operator in _WITH_VALUES else "no values"
        raise _wrong(f"{where}.values", f"{expected} for {operator}", values)
    return Requirement(key, operator, frozenset(values))


def _wrong(where: str, expected: str, found: object) -> ValueError:
    return ValueError(f"{where}: expected {expected}, found {found!r}")
