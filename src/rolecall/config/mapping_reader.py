"""Reading a mapping of ``watches.yaml`` by the declarations of its keys, each mistake with file, entry, key and line.

A mistake stops nothing: it is noted, the key's default is returned, and the reader goes on to find the next one.

Key names match in any case, as in the Go runner's parser. Only declared keys can be read, and a key that nobody has
read is unknown: so what is declared and what is read cannot differ without being seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from rolecall.config.errors import ConfigurationError
from rolecall.config.key_types import Key, describe_value
from rolecall.config.unknown_keys import unknown_key_message
from rolecall.config.yaml_loader import LocatedMapping

T = TypeVar("T")
Keys = tuple[Key[Any], ...]


@dataclass(frozen=True, slots=True)
class MappingReader:
    """A mapping together with the place it was found at, for example ``watches.yaml: entry 2 (Kind=Foo)``.

    ``keys`` are those that it may have. ``mistakes`` has what was wrong in it and in the mappings below, in the order
    in which it was found.
    """

    values: Mapping[str, Any]
    keys: Keys
    place: str
    prefix: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    line: int | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)
    mistakes: list[ConfigurationError] = field(default_factory=list)
    _read: set[str] = field(default_factory=set, init=False)
    _children: list["MappingReader"] = field(default_factory=list, init=False)

    @classmethod
    def of(
        cls, raw: object, keys: Keys, place: str, prefix: str = "", mistakes: list[ConfigurationError] | None = None
    ) -> Self:
        """Wrap a parsed mapping. Raises ConfigurationError when it is something else."""
        if not isinstance(raw, dict):
            raise ConfigurationError(f"expected a mapping, found {describe_value(raw)}", place=place)
        lines = raw.lines if isinstance(raw, LocatedMapping) else {}
        spellings: dict[str, str] = {}
        for name in raw:
            spellings.setdefault(name.lower(), name)
        fields = cls(
            {name.lower(): value for name, value in raw.items()},
            keys,
            place,
            prefix,
            {name.lower(): line for name, line in lines.items()},
            raw.line if isinstance(raw, LocatedMapping) else None,
            spellings,
            [] if mistakes is None else mistakes,
        )
        for name in raw:
            if spellings[name.lower()] != name:
                fields.add_error(name, f"is the same key as {spellings[name.lower()]!r}")
        return fields

    def error(self, key: str, message: str) -> ConfigurationError:
        """Return the error for one key of this mapping, which may be a path into the key's value."""
        return ConfigurationError(message, place=self.place, key=f"{self.prefix}{key}", line=self._line_of(key))

    def add_error(self, key: str, message: str) -> None:
        """Note that one key of this mapping is wrong."""
        self.mistakes.append(self.error(key, message))

    def _line_of(self, key: str) -> int | None:
        name, _, rest = key.partition(".")
        line = self.lines.get(name.partition("[")[0].lower(), self.line)
        value = self.values.get(name.lower())
        return value.lines.get(rest, line) if isinstance(value, LocatedMapping) else line

    def unknown(self) -> Iterator[ConfigurationError]:
        """Yield what can be said of each key, here and below, that nobody has read: its place, and the nearest one."""
        declared = {key.name.lower(): key.name for key in self.keys}
        for name, spelling in self.spellings.items():
            if name not in self._read:
                yield self.error(spelling, unknown_key_message(name, declared))
        for child in self._children:
            yield from child.unknown()

    def get(self, key: Key[Any]) -> Any:
        """Return the value as it was parsed, None when it is absent or null.

        Raises LookupError for a key that is not declared for this mapping, which is a mistake of ours.
        """
        if key not in self.keys:
            raise LookupError(f"{self.prefix}{key.name} is read and not declared")
        self._read.add(key.name.lower())
        return self.values.get(key.name.lower())

    def read(self, key: Key[T]) -> T:
        """Return the value, the key's default when it is absent or wrong."""
        value = self.get(key)
        if value is None:
            return key.default
        try:
            return key.type.read(value)
        except ValueError as error:
            self.add_error(key.name, str(error))
            return key.default

    def nested(self, key: Key[Mapping[str, Any] | None]) -> "MappingReader | None":
        """Return a mapping whose keys are declared, None when it is absent or no mapping."""
        value = self.get(key)
        return None if value is None else self._child(value, key, key.name)

    def entries(self, key: Key[Any]) -> Iterator["MappingReader"]:
        """Yield each mapping of a list; none when it is absent."""
        for number, item in enumerate(self.read(key)):
            child = self._child(item, key, f"{key.name}[{number}]")
            if child is not None:
                yield child

    def _child(self, value: object, key: Key[Any], name: str) -> "MappingReader | None":
        if not isinstance(value, dict):
            self.add_error(name, f"expected a mapping, found {describe_value(value)}")
            return None
        child = MappingReader.of(value, key.keys, self.place, f"{self.prefix}{name}.", self.mistakes)
        self._children.append(child)
        return child
