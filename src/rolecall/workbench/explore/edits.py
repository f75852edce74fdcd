"""The edits of a spec: pure functions of its schema and its values.

An edit sets or removes one value, or two. Edits are listed in the order in which they most often show faults: booleans,
enums, bounds, absent fields, items of lists, keys of maps, unusual strings, and pairs of fields that one task reads.
**A field gets a value of each type that its schema allows**: one that allows integers and strings gets both, and one
without a type gets every type. If the schema has no fields, the values of the spec stand in for it. An edit may lead to
a spec that the API server rejects, so each is validated before it is made.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from rolecall.workbench.comparison.end_states import path_text
from rolecall.workbench.comparison.variables import Path

Spec = Mapping[str, Any]
Schema = Mapping[str, Any]

ODD_STRINGS: Final = ("yes", "null", "{{ x }}", "007", "", "a b", "é☃", "x" * 200)
"""Strings that YAML, Jinja, or a name often treats differently from the string of the sample."""

ORDER: Final = ("boolean", "enum", "bound", "absent", "list", "map", "string", "pair")
_ABSENT: Final = "(absent)"
_SHOWN: Final = 40
_MIN_CHARACTERS: Final = 3
"""A shorter string isn't searched inside others."""

_MAX_DEPTH: Final = 8
_SAMPLE: Final = "explored"
_PERCENTAGE: Final = "50%"
"""The string that Kubernetes most often accepts instead of an integer."""

_MAX_INNER: Final = 10
"""So many values of an absent object set one of its optional fields."""

_OFF_STRINGS: Final = frozenset({"", "0", "no", "off", "none", "null", "false", "never", "disabled"})

REMOVED: Final = object()
"""The value of an absent field."""


@dataclass(frozen=True, slots=True)
class Change:
    """A new value of a field of the spec, or ``REMOVED``."""

    path: Path
    value: Any

    def apply(self, spec: dict[str, Any]) -> None:
        """Change a spec in place; leave it if the parent of the path doesn't exist."""
        parent: Any = spec
        for key in self.path[:-1]:
            parent = _child(parent, key)
        if isinstance(parent, dict) and self.value is REMOVED:
            parent.pop(self.path[-1], None)
        elif isinstance(parent, dict):
            parent[self.path[-1]] = copy.deepcopy(self.value)


@dataclass(frozen=True, slots=True)
class Edit:
    """One or two changes; ``kind`` is one of ``ORDER``."""

    kind: str
    changes: tuple[Change, ...]

    def apply(self, spec: Spec) -> dict[str, Any]:
        """Return the edited spec."""
        edited = copy.deepcopy(dict(spec))
        for each in self.changes:
            each.apply(edited)
        return edited


def _child(parent: Any, key: str | int) -> Any:
    if isinstance(parent, dict) and isinstance(key, str):
        return parent.setdefault(key, {})
    return parent[key] if isinstance(parent, list) and isinstance(key, int) and key < len(parent) else None


def switches_off(before: Any, after: Any) -> bool:
    """Return whether a value, or one inside it, is switched on before and off after.

    Absent, null, false, zero, empty, and a word such as "none" are off.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        is_emptied = bool(before) and not after
        return is_emptied or any(switches_off(value, after.get(name, REMOVED)) for name, value in before.items())
    if isinstance(before, list) and isinstance(after, list):
        return len(after) < len(before) or any(map(switches_off, before, after))
    return _is_on(before) and (isinstance(before, dict | list) or not _is_on(after))


def _is_on(value: Any) -> bool:
    return value is not REMOVED and bool(value) and not (isinstance(value, str) and value.lower() in _OFF_STRINGS)


def field_of(path: Path) -> str:
    """Return a path as it is displayed, without indexes."""
    return path_text(tuple(part for part in path if isinstance(part, str)))


def is_below(field: str, parent: str) -> bool:
    """Return whether a displayed path is another one, or below it."""
    return field == parent or field.startswith(f"{parent}.")


def edits_of(schema: Schema, spec: Spec, used: frozenset[str] = frozenset(), only: str = "") -> list[Edit]:
    """Return the edits of a spec in their order, without pairs.

    ``used`` are texts that the role uses as names, namespaces, images, or hosts: a string that is part of one isn't
    edited. With ``only`` the edits are those of this field and the fields below it, and ``used`` doesn't count.
    """
    schema = schema if schema.get("properties") else {**schema, **schema_of(dict(spec))}
    found: dict[str, Edit] = {}
    for kind, path, value in _of_fields(schema, spec, (), frozenset() if only else used):
        edit = Edit(kind, (Change(path, value),))
        if (not only or is_below(field_of(path), only)) and edit.apply(spec) != spec:
            found[repr(edit)] = edit
    return sorted(found.values(), key=lambda each: ORDER.index(each.kind))


def pairs_of(edits: Sequence[Edit], reads: Sequence[frozenset[str]]) -> list[Edit]:
    """Return edits of two fields that one task reads: the first edit of each; ``reads`` are the fields of each task."""
    first: dict[str, Edit] = {}
    for each in edits:
        first.setdefault(str(each.changes[0].path[0]), each)
    pairs = dict.fromkeys(pair for fields in reads for pair in combinations(sorted(fields & first.keys()), 2))
    return [Edit("pair", (*first[one].changes, *first[two].changes)) for one, two in pairs]


def _is_used(value: Any, used: frozenset[str]) -> bool:
    is_long = isinstance(value, str) and len(value) >= _MIN_CHARACTERS
    return isinstance(value, str) and (value in used or (is_long and any(value in text for text in used)))


_Found = tuple[str, Path, Any]
"""The kind of an edit, the path, and the new value."""


def _of_fields(schema: Schema, value: Mapping[str, Any], path: Path, used: frozenset[str]) -> Iterator[_Found]:
    """Yield the edits of the fields of an object."""
    fields: dict[str, Schema] = dict(schema.get("properties") or {})
    items = schema.get("additionalProperties")
    rest = {name: items if isinstance(items, dict) else schema_of(value[name]) for name in value if name not in fields}
    required = frozenset(schema.get("required") or ())
    for name, inner in (fields | rest).items():
        here = (*path, name)
        if name not in value:
            yield from (("absent", here, sample) for sample in (*samples_of(inner), *_inner_samples(inner)))
            continue
        if _is_used(value[name], used):
            continue
        if name not in required:
            yield "map" if name in rest else "absent", here, REMOVED
        yield from _of_value(inner, value[name], here, used)
    is_open = isinstance(items, dict) or accepts_any_field(schema)
    if len(path) < _MAX_DEPTH and (path or not fields) and (is_open or (rest and not fields)):
        sample = items if isinstance(items, dict) else next(iter(rest.values()), {})
        yield from (("map", (*path, _SAMPLE), each) for each in samples_of(sample))


def _of_value(schema: Schema, value: Any, path: Path, used: frozenset[str]) -> Iterator[_Found]:
    if schema.get("enum"):
        yield from (("enum", path, each) for each in schema["enum"] if each != value)
        return
    yield from (("bound", path, each) for each in _of_other_types(schema, value))
    if isinstance(value, bool):
        yield "boolean", path, not value
    elif isinstance(value, int | float):
        yield from (("bound", path, each) for each in _numbers(schema, value))
    elif isinstance(value, str):
        yield from (("string", path, each) for each in ODD_STRINGS if each != value)
    elif isinstance(value, list):
        yield from _of_list(schema, value, path, used)
    elif isinstance(value, dict) and len(path) < _MAX_DEPTH:
        is_described = schema.get("properties") or isinstance(schema.get("additionalProperties"), dict)
        yield from _of_fields(schema if is_described else {**schema_of(value), **schema}, value, path, used)


def _numbers(schema: Schema, value: float) -> Iterator[float]:
    """Yield the bounds of a number, and its neighbors; nothing far above: it may be a number of objects."""
    bounds = [schema[name] for name in ("minimum", "maximum") if name in schema]
    low, high = schema.get("minimum", -1), schema.get("maximum", max(2 * value, 10))
    for each in dict.fromkeys((0, *bounds, 1, value + 1, value - 1, -1)):
        if each != value and low <= each <= high and each <= max(100, 2 * value):
            yield each


def _of_list(schema: Schema, value: list[Any], path: Path, used: frozenset[str]) -> Iterator[_Found]:
    """Yield a list without its last, its first, and its middle item, without any, and with another one."""
    items = schema.get("items") or {}
    for index in dict.fromkeys((len(value) - 1, 0, len(value) // 2)) if value else ():
        yield "list", path, value[:index] + value[index + 1 :]
    yield "list", path, []
    yield from (("list", path, [*value, each]) for each in samples_of(items, value[0] if value else None))
    seen: set[str] = set()
    for index, item in enumerate(value):
        if isinstance(item, dict):
            for kind, where, new in _of_fields({**schema_of(item), **items}, item, (*path, index), used):
                if (edit := f"{kind} {where[len(path) + 1 :]} {new!r}") not in seen:  # an equal one of another item
                    seen.add(edit)
                    yield kind, where, new


def samples_of(schema: Schema, like: Any = None) -> list[Any]:
    """Return a value of each type that a schema allows, two of some types, similar to another value if it is given."""
    if isinstance(like, dict):
        return [{**like, **{name: f"{text}-2" for name, text in like.items() if name in ("name", "key")}}]
    if schema.get("enum"):
        return list(schema["enum"])[:2]
    number = min(max(schema.get("minimum", 1), 1), schema.get("maximum", 1))
    items = [[each] for each in samples_of(schema["items"])] if schema.get("items") else []
    samples: dict[str, list[Any]] = {
        "boolean": [True, False],
        "integer": [number],
        "number": [number],
        "string": [_SAMPLE],
        "array": [[], *items],
        "object": [_sample_object(schema), *([{_SAMPLE: _SAMPLE}] if accepts_any_field(schema) else [])],
    }
    if is_int_or_string(schema):
        return [number, _PERCENTAGE, _SAMPLE]
    kind = schema.get("type") or (None if accepts_any_field(schema) else schema_of(like).get("type"))
    return samples.get(kind, []) if kind else [True, number, _SAMPLE, [_SAMPLE], {_SAMPLE: _SAMPLE}]


def is_int_or_string(schema: Schema) -> bool:
    """Return whether a schema allows both integers and strings."""
    types = {each.get("type") for name in ("anyOf", "oneOf") for each in schema.get(name) or ()}
    is_marked = schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string"
    return bool(is_marked) or {"integer", "string"} <= types


def accepts_any_field(schema: Schema) -> bool:
    """Return whether a schema allows fields that it doesn't describe."""
    return schema.get("x-kubernetes-preserve-unknown-fields") is True or schema.get("additionalProperties") is True


def _of_other_types(schema: Schema, value: Any) -> list[Any]:
    """Return values of the other types that the schema of a value allows."""
    if is_int_or_string(schema):
        found = [*([str(value)] if isinstance(value, int) else []), *samples_of(schema)]
    else:
        found = [] if schema.get("type") and value is not None else samples_of(schema)
    return [each for each in found if type(each) is not type(value)]


def _inner_samples(schema: Schema) -> list[Any]:
    """Return objects with one of the optional fields that the schema of an absent object describes, or of its items."""
    if schema.get("type") == "array":
        return [[each] for each in _inner_samples(schema.get("items") or {})]
    if not schema.get("properties"):
        return []
    base = _sample_object(schema)
    found = [(kind, Change(path, value)) for kind, path, value in _of_fields(schema, base, (), frozenset())]
    changes = [each for kind, each in found if kind not in ("bound", "string") and switches_off(each.value, REMOVED)]
    first = {field_of(each.path): each for each in reversed(changes)}.values()
    chosen = [*(each for each in changes if each in first), *(each for each in changes if each not in first)]
    return [Edit("absent", (each,)).apply(base) for each in chosen[:_MAX_INNER]]


def _sample_object(schema: Schema) -> dict[str, Any]:
    fields = schema.get("properties") or {}
    samples = {name: samples_of(fields[name]) for name in schema.get("required") or () if name in fields}
    return {name: found[0] for name, found in samples.items() if found}


def schema_of(value: Any) -> dict[str, Any]:
    """Return a schema that a value suggests, for a field that may have any value."""
    for kind, types in {"boolean": bool, "integer": int, "number": float, "string": str, "array": list}.items():
        if isinstance(value, types):
            return {"type": kind}
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: schema_of(each) for name, each in value.items()}}
    return {}


def described(before: Spec, after: Spec) -> str:
    """Return the changes between two specs as one line, such as ``size: 3 -> 0``."""
    found = list(_changes(before, after, ()))
    more = f", and {len(found) - 2} more" if len(found) > 2 else ""  # noqa: PLR2004 - a pair
    return ", ".join(f"{path_text(path)}: {_shown(old)} -> {_shown(new)}" for path, old, new in found[:2]) + more


def _changes(before: Any, after: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from _changes(before.get(name, REMOVED), after.get(name, REMOVED), (*path, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from _changes(*pair, (*path, index))
    elif type(before) is not type(after) or before != after:
        yield path, before, after


def changed_values(before: Spec, after: Spec) -> dict[str, Any]:
    """Return the new values where two specs differ by their paths without indexes, None for removed ones."""
    return {field_of(path): None if new is REMOVED else new for path, _, new in _changes(before, after, ())}


def _shown(value: Any) -> str:
    text = _ABSENT if value is REMOVED else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
