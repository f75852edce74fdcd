"""Reads a mapping of ``watches.yaml`` by the declarations of its keys. Every error names file, entry, key and line.

An error does not stop the reader: it records the error, returns the default of the key, and goes on, so that all errors
are found at once. Key names match in any case, as in the Go runner's parser. Only declared keys can be read, and a key
that was never read is reported as unknown, so that declarations and code cannot diverge unnoticed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from rolecall.runner.config.errors import ConfigurationError
from rolecall.runner.config.key_types import Key, describe_value
from rolecall.runner.config.unknown_keys import unknown_key_message
from rolecall.runner.config.yaml_loader import LocatedMapping

T = TypeVar("T")
Keys = tuple[Key[Any], ...]


@dataclass(frozen=True, slots=True)
class MappingReader:
    """A mapping with its place, for example ``watches.yaml: entry 2 (kind Foo)``.

    ``keys`` are the keys that it may have. ``errors`` are the errors in it and in nested mappings, in the order in
    which they were found.
    """

    values: Mapping[str, Any]
    keys: Keys
    place: str
    prefix: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    line: int | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)
    errors: list[ConfigurationError] = field(default_factory=list)
    _read: set[str] = field(default_factory=set, init=False)
    _children: list["MappingReader"] = field(default_factory=list, init=False)

    @classmethod
    def of(
        cls, raw: object, keys: Keys, place: str, prefix: str = "", errors: list[ConfigurationError] | None = None
    ) -> Self:
        """Return a reader for a parsed mapping. Raise ConfigurationError if it is not a mapping."""
        if not isinstance(raw, dict):
            raise ConfigurationError(f"expected a mapping, found {describe_value(raw)}", place=place)
        lines = raw.lines if isinstance(raw, LocatedMapping) else {}
        spellings: dict[str, str] = {}
        for name in raw:
            spellings.setdefault(name.lower(), name)
        reader = cls(
            {name.lower(): value for name, value in raw.items()},
            keys,
            place,
            prefix,
            {name.lower(): line for name, line in lines.items()},
            raw.line if isinstance(raw, LocatedMapping) else None,
            spellings,
            [] if errors is None else errors,
        )
        for name in raw:
            if spellings[name.lower()] != name:
                reader.add_error(name, f"is the same key as {spellings[name.lower()]!r}")
        return reader

    def error(self, key: str, message: str) -> ConfigurationError:
        """Return an error for a key of this mapping, or for a path below the key."""
        return ConfigurationError(message, place=self.place, key=f"{self.prefix}{key}", line=self._line_of(key))

    def add_error(self, key: str, message: str) -> None:
        """Record an error for a key of this mapping."""
        self.errors.append(self.error(key, message))

    def _line_of(self, key: str) -> int | None:
        name, _, rest = key.partition(".")
        line = self.lines.get(name.partition("[")[0].lower(), self.line)
        value = self.values.get(name.lower())
        return value.lines.get(rest, line) if isinstance(value, LocatedMapping) else line

    def unknown_keys(self) -> Iterator[ConfigurationError]:
        """Yield an error for each key that was never read, nested ones included, with the nearest known key."""
        declared = {key.name.lower(): key.name for key in self.keys}
        for name, spelling in self.spellings.items():
            if name not in self._read:
                yield self.error(spelling, unknown_key_message(name, declared))
        for child in self._children:
            yield from child.unknown_keys()

    def get(self, key: Key[Any]) -> Any:
        """Return the parsed value, None if it is absent or null.

        Raise LookupError if the key is not declared for this mapping, which is a bug.
        """
        if key not in self.keys:
            raise LookupError(f"{self.prefix}{key.name} is read and not declared")
        self._read.add(key.name.lower())
        return self.values.get(key.name.lower())

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
            child = self._child(item, key, f"{key.name}[{number}]")
            if child is not None:
                yield child

    def _child(self, value: object, key: Key[Any], name: str) -> "MappingReader | None":
        if not isinstance(value, dict):
            self.add_error(name, f"expected a mapping, found {describe_value(value)}")
            return None
        child = MappingReader.of(value, key.keys, self.place, f"{self.prefix}{name}.", self.errors)
        self._children.append(child)
        return child
