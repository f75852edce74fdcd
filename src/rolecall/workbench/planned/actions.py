"""What a planned run does with actions and lookups, by their full names: the tables of ``actions.yaml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one, where libyaml is: every planned run loads the tables."""


@dataclass(frozen=True, slots=True)
class PathArguments:
    """Names of arguments: files to read, files to write, and directories needed as a whole."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()


def _by_full_name(by_collection: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by full names; the names of a list have none."""
    found: dict[str, Any] = {}
    for collection, names in by_collection.items():
        values = names if isinstance(names, dict) else dict.fromkeys(names)
        found |= {f"{collection}.{name}": value for name, value in values.items()}
    return found


_TABLES: Final = {
    table: _by_full_name(names)
    for table, names in yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), _LOADER).items()  # noqa: S506 - both are safe
}
COMPUTING: Final = frozenset(_TABLES["computes"])
PURE: Final = frozenset(_TABLES["pure"])
KUBERNETES: Final = frozenset(_TABLES["kubernetes"])
FILE_MODULES: Final = {
    name: PathArguments(**{use: tuple(arguments) for use, arguments in uses.items()})
    for name, uses in _TABLES["files"].items()
}
WITHHELD: Final[Mapping[str, str]] = _TABLES["withheld"]
WITHHELD_ALWAYS: Final[Mapping[str, str]] = _TABLES["withheld_always"]
LOOKUPS: Final = frozenset(_TABLES["lookups"])
WITHHELD_LOOKUPS: Final[Mapping[str, str]] = _TABLES["withheld_lookups"]
