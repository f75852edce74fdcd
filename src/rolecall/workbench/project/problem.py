"""A problem that a check finds: its place, its message and its severity."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """An error stops the operator, makes runs fail or is a mistake; a warning may be intended."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file; ``line`` counts from 1 and is None for a problem of the whole file.

    ``entry`` (of the watches file) and ``key`` (a path of keys) can be empty.
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

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)
