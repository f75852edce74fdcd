"""What a check finds: where it is, what is wrong there, and whether it must be mended."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """An error stops the operator, makes runs fail or is a slip; a warning may be meant."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; ``line`` counts from 1, None where the whole file is meant.

    ``entry`` (of the watches file) and ``key`` (a path of keys) are empty where there are none.
    """

    file: str
    line: int | None
    message: str
    severity: Severity = Severity.ERROR
    entry: str = ""
    key: str = ""

    @property
    def place(self) -> str:
        """Return the file and the line, in the form that editors and terminals make a link of."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def text(self) -> str:
        """Return everything but the place, in one line."""
        key = f"key {self.key}" if self.key else ""
        where = ", ".join(part for part in (self.entry, key) if part)
        return f"{where}: {self.message}" if where else self.message

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)
