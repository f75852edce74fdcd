"""The problems that ``rolecall validate`` reports, and their places in files."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from rolecall.runner.config.yaml_reader import LocatedMapping, expand_variables, first_document


class Severity(StrEnum):
    """An error stops the operator, makes runs fail or is a mistake; a warning may be intended."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file; ``line`` counts from 1 and is None for a problem of the whole file.

    ``entry`` (of the watches file, or an object in a manifest) and ``key`` (a path of keys) can be empty.
    """

    file: str
    line: int | None
    message: str
    severity: Severity = Severity.ERROR
    entry: str = ""
    key: str = ""

    @property
    def place(self) -> str:
        """The file and the line, in the format that editors and terminals turn into links."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def text(self) -> str:
        """The entry, the key and the message, in one line."""
        key = f"key {self.key}" if self.key else ""
        where = ", ".join(part for part in (self.entry, key) if part)
        return f"{where}: {self.message}" if where else self.message


def line_of(value: Mapping[str, Any], key: str) -> int | None:
    """Return the line of a key of a mapping, of the mapping if it lacks the key, or None if it has no line."""
    return value.lines.get(key, value.line) if isinstance(value, LocatedMapping) else None


def watch_entries(file: Path, environment: Mapping[str, str]) -> list[LocatedMapping]:
    """Return the entries of a watches file with their lines; none if it can't be parsed."""
    try:
        found = first_document(expand_variables(file.read_text(encoding="utf-8"), environment))
    except (OSError, yaml.YAMLError, ValueError):
        return []
    return [each for each in found if isinstance(each, LocatedMapping)] if isinstance(found, list) else []
