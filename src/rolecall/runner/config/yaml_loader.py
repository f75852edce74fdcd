"""Loads YAML as the Go runner's parser does, with the line of every key.

This is YAML 1.1 with differences that matter for existing files: ``y`` and ``n`` are booleans, ``12:30`` is a string
and not a sexagesimal number, ``1e3`` is a number, dates are strings, an unknown tag is ignored, and a float without a
fraction is an integer. Keys are always strings, as they are written: ``on`` and ``y`` are names, not true. Duplicate
keys are recorded, so that the caller can report them.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_TAG = "tag:yaml.org,2002:"
_FIRST_OF_NUMBERS = list("-+.0123456789")
_WHOLE = re.compile(r"^[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_WHOLE_FLOATS_BELOW = 1e21
"""From here on Go writes whole floats with an exponent."""


class LocatedMapping(dict[str, Any]):
    """A mapping with its line, the lines of its keys, and its duplicate keys (key, first line, line)."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.duplicates: list[tuple[str, int, int]] = []


class _Loader(yaml.SafeLoader):
    """A ``SafeLoader`` with the differences above."""

    bool_values = yaml.SafeLoader.bool_values | {"y": True, "n": False}

    def construct_float(self, node: ScalarNode) -> int | float:
        """Return a number; a float without a fraction is an integer, as in JSON written by Go."""
        number: float = self.construct_yaml_float(node)
        return int(number) if number.is_integer() and abs(number) < _WHOLE_FLOATS_BELOW else number

    def construct_list(self, node: SequenceNode) -> list[Any]:
        """Return a list. Because it is constructed in one step, PyYAML rejects a list that contains itself."""
        found: list[Any] = self.construct_sequence(node, deep=True)
        return found

    def construct_located(self, node: MappingNode) -> LocatedMapping:
        """Return a mapping. PyYAML rejects a mapping that contains itself, as above."""
        found = LocatedMapping(node.start_mark.line + 1)
        found.duplicates = list(self._duplicates(node))
        self.flatten_mapping(node)
        for key, value in node.value:
            name = self._key(key)
            found[name] = self.construct_object(value, deep=True)
            found.lines[name] = key.start_mark.line + 1
        return found

    def _duplicates(self, node: MappingNode) -> Iterator[tuple[str, int, int]]:
        first_lines: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag != f"{_TAG}merge":
                name, line = self._key(key), key.start_mark.line + 1
                if name in first_lines:
                    yield name, first_lines[name], line
                first_lines.setdefault(name, line)

    def construct_untagged(self, _suffix: str, node: Node) -> Any:
        """Return the value of a node with an unknown tag as if it had no tag."""
        if isinstance(node, ScalarNode):
            return self.construct_scalar(node)
        if isinstance(node, SequenceNode):
            return self.construct_sequence(node, deep=True)
        plain = MappingNode(f"{_TAG}map", node.value, node.start_mark, node.end_mark)
        return self.construct_object(plain, deep=True)

    def _key(self, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "the key of a mapping must be a string", node.start_mark
            )
        value = self.construct_object(node)
        return str(node.value) if isinstance(value, bool | str | None) else str(value)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.removeprefix(_TAG) not in ("timestamp", "int", "float")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}int", _WHOLE, _FIRST_OF_NUMBERS)
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, _FIRST_OF_NUMBERS)
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"^[yYnN]$"), list("yYnN"))
_Loader.add_constructor(f"{_TAG}float", _Loader.construct_float)
_Loader.add_constructor(f"{_TAG}seq", _Loader.construct_list)
_Loader.add_constructor(f"{_TAG}map", _Loader.construct_located)
_Loader.add_multi_constructor("!", _Loader.construct_untagged)


def first_document(text: str) -> Any:
    """Return the first document of a YAML text, or None. Raise yaml.YAMLError or ValueError."""
    try:
        return next(iter(yaml.load_all(text, _Loader)), None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def all_documents(text: str) -> list[Any]:
    """Return all documents of a YAML text. Raise yaml.YAMLError or ValueError."""
    try:
        return list(yaml.load_all(text, _Loader))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def describe_error(error: Exception) -> tuple[str, int | None]:
    """Return the message for a text that is not valid YAML, in one line, and the line number if known."""
    mark = getattr(error, "problem_mark", None)
    return f"invalid YAML: {' '.join(str(error).split())}", mark.line + 1 if mark else None


def duplicate_keys(value: object, path: str = "") -> Iterator[tuple[str, int, int]]:
    """Yield each duplicate key, at any depth: its path, the first line and the second line."""
    if isinstance(value, LocatedMapping):
        for name, first, line in value.duplicates:
            yield path + name, first, line
        for name, item in value.items():
            yield from duplicate_keys(item, f"{path}{name}.")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from duplicate_keys(item, f"{path.removesuffix('.')}[{number}].")
