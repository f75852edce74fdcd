"""Reads records back from their files.

A file that is empty, cut, edited, or of a newer format is refused with one line that says so: whatever stands on a
record must not be built on a part of one.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolecall.record.lines import FORMAT, digest_of

Line = dict[str, Any]


class RecordError(Exception):
    """A file is no whole record; the text says which file, what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record that was read from a file."""

    path: Path
    head: Line
    end: Line
    exchanges: tuple[Line, ...] = field(default_factory=tuple)
    tasks: tuple[Line, ...] = field(default_factory=tuple)

    @property
    def kind(self) -> str:
        """The kind of the object that the run was for."""
        return str(self.head["object"].get("kind", ""))

    @property
    def name(self) -> str:
        """The namespace and the name of that object."""
        metadata = self.head["object"].get("metadata", {})
        return "/".join(part for part in (metadata.get("namespace"), metadata.get("name")) if part)


def read_record(path: Path) -> StoredRecord:
    """Read a record. Raises RecordError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RecordError(f"{path}: cannot be read: {reason}") from error
    lines = text.removesuffix("\n").split("\n") if text.strip() else []
    if not lines:
        raise RecordError(f"{path}: the file is empty: expected a record of a run")
    head = _parsed(path, lines[0], 1)
    _check_head(path, head)
    values = [head, *(_parsed(path, line, number) for number, line in enumerate(lines[1:], 2))]
    end = values[-1]
    if end.get("type") != "end" or not text.endswith("\n"):
        raise RecordError(f"{path}: the record is cut: line {len(lines)} is the last one and not its end")
    if end.get("digest") != digest_of(lines[:-1]):
        raise RecordError(f"{path}: the record was edited: its lines do not have the digest that its end names")
    by_type = {name: tuple(value for value in values if value.get("type") == name) for name in ("exchange", "task")}
    return StoredRecord(path, head, end, by_type["exchange"], by_type["task"])


def _check_head(path: Path, head: Line) -> None:
    found = head.get("format")
    if head.get("type") != "head" or not isinstance(found, int):
        raise RecordError(f"{path}: line 1 is not the head of a record of a run")
    if found > FORMAT:
        hint = f"this rolecall reads formats up to {FORMAT}; use one that is as new as the one that wrote it"
        raise RecordError(f"{path}: the record has format {found}: {hint}")


def _parsed(path: Path, line: str, number: int) -> Line:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        what = "not the head of a record of a run" if number == 1 else "no whole line: the record is cut or was edited"
        raise RecordError(f"{path}: line {number} is {what}")
    return value
