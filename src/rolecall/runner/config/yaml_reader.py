"""Reads ``watches.yaml``: the YAML of the Go runner's parser, and mappings by the declarations of their keys.

This is YAML 1.1 with differences that matter for existing files: ``y`` and ``n`` are booleans, ``12:30`` is a string
and not a sexagesimal number, ``1e3`` is a number, dates are strings, unknown tags are ignored, and a float without a
fraction is an integer. Keys are always strings, as they are written: ``on`` and ``y`` are names, not true. References
to environment variables are replaced before parsing, by the rules of Go's ``os.Expand``.

An error doesn't stop the reader: it records the error, returns the default of the key, and continues, so that all
errors are found in one pass. Each error names file, entry, key, and line. Only declared keys can be read, and a key
that was never read is reported as unknown, so that declarations and code can't diverge unnoticed.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rolecall.kube.bodies import YamlLoader
from rolecall.runner.config.watch_keys import Key, describe_value

_TAG = "tag:yaml.org,2002:"
T = TypeVar("T")

# In this order: ${…}, an unterminated ${, $NAME, one of the shell's special one-character names.
_REFERENCE = re.compile(r"\$(?:\{([^}]*)\}|(\{)|([A-Za-z_][A-Za-z0-9_]*)|([*#$@!?\-0-9]))")


class LocatedMapping(dict[str, Any]):
    """A mapping with its line, the lines of its keys, and its duplicate keys (key, first line, line)."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.duplicates: list[tuple[str, int, int]] = []


class _Loader(YamlLoader):
    """Loads mappings with their lines. Values constructed in one step can't contain themselves."""

    def construct_list(self, node: SequenceNode) -> list[Any]:
        """Return a list."""
        found: list[Any] = self.construct_sequence(node, deep=True)
        return found

    def construct_located(self, node: MappingNode) -> LocatedMapping:
        """Return a mapping."""
        found = LocatedMapping(node.start_mark.line + 1)
        first_lines: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag != f"{_TAG}merge":
                name, line = self._key(key), key.start_mark.line + 1
                if name in first_lines:
                    found.duplicates.append((name, first_lines[name], line))
                first_lines.setdefault(name, line)
        self.flatten_mapping(node)
        for key, value in node.value:
            name = self._key(key)
            found[name] = self.construct_object(value, deep=True)
            found.lines[name] = key.start_mark.line + 1
        return found

    def construct_untagged(self, node: ScalarNode | SequenceNode | MappingNode) -> Any:
        """Return the value of a node with an unknown tag as if it had no tag."""
        if isinstance(node, ScalarNode):
            return self.construct_scalar(node)
        return self.construct_list(node) if isinstance(node, SequenceNode) else self.construct_located(node)

    def _key(self, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "the key of a mapping must be a string", node.start_mark
            )
        value = self.construct_object(node)
        return str(node.value) if isinstance(value, bool | str | None) else str(value)


_Loader.add_constructor(f"{_TAG}seq", _Loader.construct_list)
_Loader.add_constructor(f"{_TAG}map", _Loader.construct_located)
_Loader.add_constructor(None, _Loader.construct_untagged)


def first_document(text: str) -> Any:
    """Return the first document of a YAML text, or None. Raise yaml.YAMLError or ValueError."""
    return next(_documents(text), None)


def all_documents(text: str) -> list[Any]:
    """Return all documents of a YAML text. Raise yaml.YAMLError or ValueError."""
    return list(_documents(text))


def _documents(text: str) -> Iterator[Any]:
    try:
        yield from yaml.load_all(text, _Loader)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def describe_error(error: Exception) -> tuple[str, int | None]:
    """Return the message for invalid YAML, in one line, and the line number if known."""
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


class ConfigurationError(Exception):
    """An error in ``watches.yaml``, a flag, or the environment, which stops the operator before it starts.

    The text is one line with the place and the ``message``; ``place`` (file and entry), ``key``, and ``line`` are set
    if known.
    """

    def __init__(self, message: str, *, place: str = "", key: str = "", line: int | None = None) -> None:
        where = f"{place}, key {key}{f' (line {line})' if line else ''}" if key else place
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.place = place
        self.key = key
        self.line = line


def unknown_key_message(name: str, known: Mapping[str, str]) -> str:
    """Return the message for a key, with the nearest known key; ``known`` maps comparable names to their spelling."""
    nearest = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {known[nearest[0]]!r}?" if nearest else ""
    return f"unknown key (ignored){hint}"


Keys = tuple[Key[Any], ...]


class MappingReader:
    """Reads a mapping by the declarations of its keys. Names match in any case, as in the Go runner's parser.

    ``place`` is for example ``watches.yaml: entry 2 (kind Foo)``. ``errors`` are the errors in the mapping and in
    nested mappings, in the order in which they were found.
    """

    def __init__(
        self, raw: object, keys: Keys, place: str, prefix: str = "", errors: list[ConfigurationError] | None = None
    ) -> None:
        """Raise ConfigurationError if the value is not a mapping."""
        if not isinstance(raw, dict):
            raise ConfigurationError(f"expected a mapping, found {describe_value(raw)}", place=place)
        self.errors: list[ConfigurationError] = [] if errors is None else errors
        self._raw, self._keys, self._place, self._prefix = raw, keys, place, prefix
        self._spellings: dict[str, str] = {}
        self._read: set[str] = set()
        self._children: list[MappingReader] = []
        for name in raw:
            if self._spellings.setdefault(name.lower(), name) != name:
                self.add_error(name, f"is the same key as {self._spellings[name.lower()]!r}")

    def error(self, key: str, message: str) -> ConfigurationError:
        """Return an error for a key of this mapping, or for a path below the key."""
        line = None
        if isinstance(self._raw, LocatedMapping):
            name, _, below = key.partition(".")
            base = name.partition("[")[0]
            lines, spelling = self._raw.lines, self._spellings.get(base.lower(), base)
            line = lines.get(base, lines.get(spelling, self._raw.line))
            value = self._raw.get(spelling) if base == name else None
            line = value.lines.get(below, line) if isinstance(value, LocatedMapping) else line
        return ConfigurationError(message, place=self._place, key=f"{self._prefix}{key}", line=line)

    def add_error(self, key: str, message: str) -> None:
        """Record an error for a key of this mapping."""
        self.errors.append(self.error(key, message))

    def unknown_keys(self) -> Iterator[ConfigurationError]:
        """Yield an error for each key that was never read, nested ones included, with the nearest known key."""
        declared = {key.name.lower(): key.name for key in self._keys}
        for name, spelling in self._spellings.items():
            if name not in self._read:
                yield self.error(spelling, unknown_key_message(name, declared))
        for child in self._children:
            yield from child.unknown_keys()

    def get(self, key: Key[Any]) -> Any:
        """Return the parsed value, None if it is absent or null. Raise LookupError for an undeclared key, a bug."""
        if key not in self._keys:
            raise LookupError(f"{self._prefix}{key.name} is read and not declared")
        name = key.name.lower()
        self._read.add(name)
        return self._raw[self._spellings[name]] if name in self._spellings else None

    def read(self, key: Key[T]) -> T:
        """Return the converted value, or the default of the key if it is absent or invalid."""
        value = self.get(key)
        if value is None:
            return key.default
        try:
            return key.type.read(value)
        except ValueError as error:
            self.add_error(key.name, str(error))
            return key.default

    def nested(self, key: Key[Mapping[str, Any] | None]) -> "MappingReader | None":
        """Return a reader for a nested mapping, None if it is absent or not a mapping."""
        value = self.get(key)
        return None if value is None else self._child(value, key, key.name)

    def entries(self, key: Key[Any]) -> Iterator["MappingReader"]:
        """Yield a reader for each mapping of a list."""
        for number, item in enumerate(self.read(key)):
            if child := self._child(item, key, f"{key.name}[{number}]"):
                yield child

    def _child(self, value: object, key: Key[Any], name: str) -> "MappingReader | None":
        if not isinstance(value, dict):
            self.add_error(name, f"expected a mapping, found {describe_value(value)}")
            return None
        child = MappingReader(value, key.keys, self._place, f"{self._prefix}{name}.", self.errors)
        self._children.append(child)
        return child


def expand_variables(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with each reference replaced by its value, or by ``${NAME}`` if the variable is unset.

    As in the Go runner (since 1.34), references in comments count too, and malformed ones behave as in Go.
    """

    def value_of(match: re.Match[str]) -> str:
        braced, unterminated, plain, special = match.groups()
        name = braced or plain or special
        if unterminated or not name:
            return ""
        return environment.get(name, f"${{{name}}}")

    return _REFERENCE.sub(value_of, text)
