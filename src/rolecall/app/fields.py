"""Reading typed values out of a mapping of ``watches.yaml``, each error naming the file, the entry and the key.

Key names match in any case and scalars convert as the Go runner's parser converts them (a number for a text field
becomes text, ``y`` is true), so a file means the same to both. Neighbour: ``watches`` says which keys there are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from rolecall.app.errors import ConfigurationError
from rolecall.kube.durations import parse_duration

# YAML 1.1 knows y and n as booleans, PyYAML leaves them as text.
_BOOLEANS = {"y": True, "yes": True, "true": True, "on": True, "n": False, "no": False, "false": False, "off": False}


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping together with the place it was found at, for example ``watches.yaml: entry 2 (Kind=Foo)``."""

    values: Mapping[str, Any]
    place: str
    prefix: str = ""

    @classmethod
    def of(cls, raw: object, place: str, prefix: str = "") -> Self:
        """Wrap a parsed mapping. Raises ConfigurationError when it is something else."""
        if not isinstance(raw, dict):
            where = f", key {prefix.rstrip('.')}" if prefix else ""
            raise ConfigurationError(f"{place}{where}: expected a mapping, found {_shown(raw)}")
        # YAML 1.1 reads the key `on` as true.
        named = {("on" if key is True else str(key)).lower(): value for key, value in raw.items()}
        return cls(named, place, prefix)

    def error(self, key: str, message: str) -> ConfigurationError:
        """Return the error for one key of this mapping."""
        return ConfigurationError(f"{self.place}, key {self.prefix}{key}: {message}")

    def get(self, key: str) -> Any:
        """Return the value as it was parsed, None when it is absent or null."""
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
        raise self.error(key, f"expected a text, found {_shown(value)}")

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return a boolean in any spelling of YAML 1.1."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, str):
            value = _BOOLEANS.get(value.lower(), value)
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, found {_shown(value)}")
        return value

    def integer(self, key: str, default: int) -> int:
        """Return a whole number."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"expected a whole number, found {_shown(value)}")
        return value

    def seconds(self, key: str) -> float | None:
        """Return the seconds of a duration, None when it is absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.error(key, f"expected a duration with a unit such as 15s or 1m30s, found {_shown(value)}")
        try:
            found = parse_duration(value)
        except ValueError as error:
            raise self.error(key, str(error)) from None
        if found < 0:
            raise self.error(key, f"a duration cannot be negative: {value!r}")
        return found

    def mapping(self, key: str) -> dict[str, Any]:
        """Return a mapping whose keys keep their spelling, empty when it is absent."""
        value = self.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(key, f"expected a mapping, found {_shown(value)}")
        return {str(name): item for name, item in value.items()}

    def nested(self, key: str) -> "Fields | None":
        """Return a mapping of known keys, None when it is absent."""
        value = self.get(key)
        return None if value is None else Fields.of(value, self.place, f"{self.prefix}{key}.")

    def entries(self, key: str) -> Iterator["Fields"]:
        """Yield each mapping of a list; none when it is absent."""
        for number, item in enumerate(self.items(key)):
            yield Fields.of(item, self.place, f"{self.prefix}{key}[{number}].")

    def items(self, key: str) -> list[Any]:
        """Return a list, empty when it is absent."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(key, f"expected a list, found {_shown(value)}")
        return value


def _shown(value: object) -> str:
    kind = {dict: "a mapping", list: "a list", type(None): "nothing"}.get(type(value))
    return kind or f"{type(value).__name__} {value!r}"
