"""Reads records back from their files.

A file that is empty, truncated, edited, of a newer format, or not a record is rejected with one line: no command may
work with a part of a record. Each kind of invalid file has its own exit code, the same for all commands.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

FORMAT: Final = 1
"""The version of the format. A reader rejects newer ones."""

MANIFESTS: Final = "manifests"
"""The field of ``prune`` in the end of a record with the deleted objects; the other ones have texts."""

Line = dict[str, Any]
_START: Final = '{"type":"head"'
_AGAIN: Final = "copy it again from its origin"
_FIELDS: Final = {
    "head": ("job", "started", "watch", "finalizing", "causes", "object"),
    "exchange": ("task", "host", "verb", "method", "path", "query", "status", "seconds"),
    "task": ("task", "host", "name", "place", "action", "result", "message", "hidden", "seconds"),
    "end": ("outcome", "failures", "status", "requeueAfterSeconds", "seconds", "complete", "exchanges", "tasks"),
}
"""The fields that readers rely on. Others may be missing."""


def digest_of(lines: Iterable[str]) -> str:
    """Return the digest of the lines before the end."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode() + b"\n")
    return f"sha256:{found.hexdigest()}"


def to_line(value: Mapping[str, Any]) -> str:
    """Return one line of a record as text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


class RecordError(Exception):
    """A file is not a whole record; the text names the file, the problem, and the solution.

    ``meaning`` is the problem with the file, for the list of exit codes.
    """

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = ""

    def __init_subclass__(cls, *, exit_code: int, meaning: str) -> None:
        """Set the exit code and the meaning of a kind of error."""
        cls.exit_code, cls.meaning = exit_code, meaning


class TruncatedRecordError(RecordError, exit_code=4, meaning="truncated"):
    """The end of the record is missing."""


class EditedRecordError(RecordError, exit_code=5, meaning="edited"):
    """The lines differ from those that were written."""


class EmptyRecordError(RecordError, exit_code=6, meaning="empty"):
    """The file is empty."""


class NewerRecordError(RecordError, exit_code=7, meaning="of a newer format"):
    """The format is newer than this reader."""


class NotARecordError(RecordError, exit_code=8, meaning="not a record"):
    """The file is something else."""


class UnreadableRecordError(RecordError, exit_code=9, meaning="not readable"):
    """The file doesn't exist, or can't be opened."""


def exit_codes_text() -> str:
    """Return the exit codes for invalid records for a command's help."""
    return ", ".join(f"{kind.exit_code} {kind.meaning}" for kind in RecordError.__subclasses__())


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record read from a file."""

    path: Path
    head: Line
    end: Line
    exchanges: tuple[Line, ...] = ()
    tasks: tuple[Line, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return str(self.head["object"].get("kind", ""))

    @property
    def name(self) -> str:
        """The namespace and the name of the object."""
        metadata = self.head["object"].get("metadata", {})
        return "/".join(part for part in (metadata.get("namespace"), metadata.get("name")) if part)


def read_record(path: Path) -> StoredRecord:
    """Read a record. Raise RecordError."""
    return _stored(path, [_checked(path, line, number) for number, line in enumerate(_whole_lines(path), 1)])


def read_text(text: str, path: Path) -> StoredRecord:
    """Read a new record; ``path`` would be its file."""
    return _stored(path, [json.loads(line) for line in text.split("\n") if line])


def _stored(path: Path, values: list[Line]) -> StoredRecord:
    by_type = {name: tuple(value for value in values if value.get("type") == name) for name in ("exchange", "task")}
    return StoredRecord(path, values[0], values[-1], by_type["exchange"], by_type["task"])


def read_ends(path: Path) -> StoredRecord:
    """Read the head and the end of a record, which is several times faster. Raise RecordError."""
    lines = _whole_lines(path)
    return StoredRecord(path, _checked(path, lines[0], 1), _checked(path, lines[-1], len(lines)))


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of a record if none is missing or changed. Raise RecordError."""
    try:
        text = path.read_bytes().decode(errors="replace")  # other encodings fail as JSON or by the digest
    except OSError as error:
        raise UnreadableRecordError(f"{path}: cannot be read: {error.strerror}") from error
    if not text.strip():
        raise EmptyRecordError(f"{path}: the file is empty: expected a record; {_AGAIN}")
    lines = text.split("\n")
    rest = lines.pop()
    if lines or not rest.startswith(_START):
        _check_head(path, lines[0] if lines else rest)
    if not lines:
        raise TruncatedRecordError(f"{path}: the record is truncated: line 1 is incomplete; {_AGAIN}")
    end = _parsed(path, lines[-1], len(lines))
    if rest or end.get("type") != "end":
        raise TruncatedRecordError(f"{path}: the record is truncated: its last complete line is {len(lines)}; {_AGAIN}")
    if end.get("digest") != digest_of(lines[:-1]):
        raise EditedRecordError(f"{path}: the record was edited: its lines don't match its digest; {_AGAIN}")
    return lines


def _check_head(path: Path, line: str) -> None:
    head = _parsed(path, line, 1) if line.startswith(_START) else _value(line) or {}
    found = head.get("format")
    if head.get("type") != "head" or not isinstance(found, int) or found < 1:
        hint = "expected a file written by 'rolecall run --record-dir'"
        raise NotARecordError(f"{path}: line 1 is not the head of a record; {hint}")
    if found > FORMAT:
        hint = f"this rolecall reads formats up to {FORMAT}; use a version at least as new as the one that wrote it"
        raise NewerRecordError(f"{path}: the record has format {found}; {hint}")


def _parsed(path: Path, line: str, number: int) -> Line:
    value = _value(line)
    if value is None:
        raise EditedRecordError(f"{path}: the record was edited: line {number} is not a JSON object; {_AGAIN}")
    return value


def _value(line: str) -> Line | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _checked(path: Path, line: str, number: int) -> Line:
    """Return a line. Reject one with a valid digest that lacks the fields of a record."""
    value = _parsed(path, line, number)
    lacking = [name for name in _FIELDS.get(str(value.get("type")), ()) if name not in value]
    if lacking:
        raise NotARecordError(f"{path}: not a record: line {number} has no field {lacking[0]!r}")
    if not isinstance(value.get("object", {}), dict):
        raise NotARecordError(f"{path}: not a record: `object` in line {number} is not a mapping")
    return value
