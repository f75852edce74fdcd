"""Reading typed values out of a mapping of ``watches.yaml``, each mistake with its file, entry, key and line.

A mistake stops nothing: it is noted, the value's default is returned, and the reader goes on to find the next one.

Key names match in any case and scalars convert as the Go runner's parser converts them (a number for a text field
becomes text), so a file means the same to both. Each key that is read counts as known, and so the rest is what nobody
knows. Neighbours: ``yaml_reading`` makes the mappings, ``watches`` says which keys there are.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from rolecall.app.errors import ConfigurationError
from rolecall.app.yaml_reading import LocatedMapping
from rolecall.kube.durations import parse_duration

# Quoted spellings are texts, which a boolean may be all the same.
_BOOLEANS = {"y": True, "yes": True, "true": True, "on": True, "n": False, "no": False, "false": False, "off": False}


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping together with the place it was found at, for example ``watches.yaml: entry 2 (Kind=Foo)``.

    ``mistakes`` has what was wrong in it and in the mappings below, in the order in which it was found.
    """

    values: Mapping[str, Any]
    place: str
    prefix: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    line: int | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)
    mistakes: list[ConfigurationError] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict, init=False)
    _children: list["Fields"] = field(default_factory=list, init=False)

    @classmethod
    def of(cls, raw: object, place: str, prefix: str = "", mistakes: list[ConfigurationError] | None = None) -> Self:
        """Wrap a parsed mapping. Raises ConfigurationError when it is something else."""
        if not isinstance(raw, dict):
            raise ConfigurationError(f"expected a mapping, found {_shown(raw)}", place=place)
        lines = raw.lines if isinstance(raw, LocatedMapping) else {}
        spellings: dict[str, str] = {}
        for name in raw:
            spellings.setdefault(name.lower(), name)
        fields = cls(
            {name.lower(): value for name, value in raw.items()},
            place,
            prefix,
            {name.lower(): line for name, line in lines.items()},
            raw.line if isinstance(raw, LocatedMapping) else None,
            spellings,
            [] if mistakes is None else mistakes,
        )
        for name in raw:
            if spellings[name.lower()] != name:
                fields.refuse(name, f"is the same key as {spellings[name.lower()]!r}")
        return fields

    def error(self, key: str, message: str) -> ConfigurationError:
        """Return the error for one key of this mapping, which may be a path into the key's value."""
        return ConfigurationError(message, place=self.place, key=f"{self.prefix}{key}", line=self._line_of(key))

    def refuse(self, key: str, message: str) -> None:
        """Note that one key of this mapping is wrong."""
        self.mistakes.append(self.error(key, message))

    def _line_of(self, key: str) -> int | None:
        name, _, rest = key.partition(".")
        line = self.lines.get(name.partition("[")[0].lower(), self.line)
        value = self.values.get(name.lower())
        return value.lines.get(rest, line) if isinstance(value, LocatedMapping) else line

    def unknown(self) -> Iterator[ConfigurationError]:
        """Yield what can be said of each key, here and below, that nobody has read: its place, and the nearest one."""
        for name, spelling in self.spellings.items():
            if name not in self._known:
                nearest = difflib.get_close_matches(name, self._known, 1)
                hint = f"; did you mean {self._known[nearest[0]]!r}?" if nearest else ""
                yield self.error(spelling, f"unknown key, which has no effect{hint}")
        for child in self._children:
            yield from child.unknown()

    def get(self, key: str) -> Any:
        """Return the value as it was parsed, None when it is absent or null."""
        self._known[key.lower()] = key
        return self.values.get(key.lower())

    def text(self, key: str, default: str = "") -> str:
        """Return a text; numbers and booleans are written out."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (str, int, float)):
            return str(value)
        self.refuse(key, f"expected a text, found {_shown(value)}")
        return default

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return a boolean in any spelling of YAML 1.1."""
        value = self.choice(key)
        return default if value is None else value

    def choice(self, key: str) -> bool | None:
        """Return a boolean in any spelling of YAML 1.1, None when it is absent and somebody else decides."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, str):
            value = _BOOLEANS.get(value.lower(), value)
        if not isinstance(value, bool):
            self.refuse(key, f"expected true or false, found {_shown(value)}")
            return None
        return value

    def integer(self, key: str, default: int) -> int:
        """Return a whole number."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(key, f"expected a whole number, found {_shown(value)}")
            return default
        return value

    def seconds(self, key: str) -> float | None:
        """Return the seconds of a duration, None when it is absent."""
        value = self.get(key)
        if value is None:
            return None
        try:
            return _seconds(value)
        except ValueError as error:
            self.refuse(key, str(error))
            return None

    def mapping(self, key: str) -> dict[str, Any]:
        """Return a mapping whose keys keep their spelling, empty when it is absent."""
        value = self.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(key, f"expected a mapping, found {_shown(value)}")
            return {}
        return {str(name): item for name, item in value.items()}

    def nested(self, key: str) -> "Fields | None":
        """Return a mapping of known keys, None when it is absent."""
        value = self.get(key)
        return None if value is None else self._child(value, f"{key}.")

    def entries(self, key: str) -> Iterator["Fields"]:
        """Yield each mapping of a list; none when it is absent."""
        for number, item in enumerate(self.items(key)):
            child = self._child(item, f"{key}[{number}].")
            if child is not None:
                yield child

    def _child(self, value: object, name: str) -> "Fields | None":
        if not isinstance(value, dict):
            self.refuse(name.removesuffix("."), f"expected a mapping, found {_shown(value)}")
            return None
        child = Fields.of(value, self.place, self.prefix + name, self.mistakes)
        self._children.append(child)
        return child

    def items(self, key: str) -> list[Any]:
        """Return a list, empty when it is absent."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(key, f"expected a list, found {_shown(value)}")
            return []
        return value


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError(f"expected a duration with a unit such as 15s or 1m30s, found {_shown(value)}")  # noqa: TRY004
    found = parse_duration(value)
    if found < 0:
        raise ValueError(f"a duration cannot be negative: {value!r}")
    return found


def _shown(value: object) -> str:
    kinds: dict[type, str] = {dict: "a mapping", list: "a list", type(None): "nothing"}
    kind = next((text for kind, text in kinds.items() if isinstance(value, kind)), "")
    return kind or f"{type(value).__name__} {value!r}"
