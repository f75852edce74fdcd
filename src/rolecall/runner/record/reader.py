"""Reads records back from their files.

A file that is empty, cut, edited, of a newer format, or no record at all is refused with one line that says so:
whatever stands on a record must not be built on a part of one. Each kind of bad file has its own exit code, the same
for every command that reads records.

The lines of a record as text: how they are encoded, their digest, and the words that masking must not touch.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

FORMAT: Final = 1
"""The version of the format. A reader refuses a newer one."""

_BODIES: Final = frozenset({"request", "sent", "answer"})
_STRUCTURE: Final = frozenset(
    {
        "type",
        "format",
        "started",
        "time",
        "task",
        "job",
        "verb",
        "method",
        "action",
        "result",
        "outcome",
        "resources",
    }
)
"""Fields whose values are words of the format, of Kubernetes or of Ansible."""

_RESOURCE: Final = frozenset({"group", "version", "resource", "subresource"})
"""Fields whose values come from a path: they are words of Kubernetes if the API server serves such a resource."""


def digest_of(lines: Iterable[str]) -> str:
    """Return the digest of the lines before the end."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode() + b"\n")
    return f"sha256:{found.hexdigest()}"


def to_line(value: Mapping[str, Any]) -> str:
    """Return one line of a record."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def time_text(seconds: float) -> str:
    """Return a POSIX time as it stands in a record."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def with_structure(line: Mapping[str, Any], masked: Mapping[str, Any], words: AbstractSet[str]) -> str:
    """Return a masked line with the format's own words, in case that a secret value is one of them.

    ``words`` are the names of resources and their groups that the API server serves. Masking changes texts and numbers,
    not how many there are and their order.
    """
    values = zip(line.items(), masked.values(), strict=True)
    return to_line({name: _restored(name, plain, value, words) for (name, plain), value in values})


def _restored(name: str, plain: Any, masked: Any, words: AbstractSet[str]) -> Any:
    if name in _STRUCTURE or isinstance(plain, int | float) or (name in _RESOURCE and plain in words):
        return plain
    if name in _BODIES:
        values = zip(plain.items(), masked.values(), strict=True)
        return {key: before if key == "contentType" else after for (key, before), after in values}
    if name == "items":
        return [_item(*pair) for pair in zip(plain, masked, strict=True)]
    return masked


def _item(plain: Mapping[str, str], masked: Mapping[str, str]) -> dict[str, str]:
    values = zip(plain.items(), masked.values(), strict=True)
    return {name: before if name == "result" else after for (name, before), after in values}


Line = dict[str, Any]
_BEGINNING: Final = '{"type":"head"'
_AGAIN: Final = "copy it again from where it was written"
_FIELDS: Final = {
    "head": ("job", "started", "watch", "finalizing", "causes", "object"),
    "exchange": ("task", "host", "verb", "method", "path", "query", "status", "seconds"),
    "task": ("task", "host", "name", "place", "action", "result", "message", "hidden", "seconds"),
    "end": ("outcome", "failures", "status", "requeueAfterSeconds", "seconds", "complete", "exchanges", "tasks"),
}
"""What readers rely on. The rest may be missing."""


class RecordError(Exception):
    """A file is no whole record; the text says which file, what is wrong and what to do."""

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = ""
    """What is wrong with the file, for people who look for the exit code."""


class CutRecordError(RecordError):
    """The end of the record is missing."""

    exit_code = 4
    meaning = "truncated"


class EditedRecordError(RecordError):
    """The lines are not those that were written."""

    exit_code = 5
    meaning = "edited"


class EmptyRecordError(RecordError):
    """There is nothing in the file."""

    exit_code = 6
    meaning = "empty"


class NewerRecordError(RecordError):
    """The format is newer than this reader."""

    exit_code = 7
    meaning = "of a newer format"


class NotARecordError(RecordError):
    """The file is something else."""

    exit_code = 8
    meaning = "not a record"


class UnreadableRecordError(RecordError):
    """The file is not there, or cannot be opened."""

    exit_code = 9
    meaning = "not readable"


BAD_RECORDS: Final[tuple[type[RecordError], ...]] = (
    CutRecordError,
    EditedRecordError,
    EmptyRecordError,
    NewerRecordError,
    NotARecordError,
    UnreadableRecordError,
)
"""The kinds of bad files, by their exit codes."""


def exit_codes_text() -> str:
    """Return the exit codes for bad records as a command's help names them."""
    return ", ".join(f"{kind.exit_code} {kind.meaning}" for kind in BAD_RECORDS)


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
    return _stored(path, [_checked(path, line, number) for number, line in enumerate(_whole_lines(path), 1)])


def read_text(text: str, path: Path) -> StoredRecord:
    """Read a record that was just made; ``path`` is what its file would be called."""
    return _stored(path, [json.loads(line) for line in text.split("\n") if line])


def _stored(path: Path, values: list[Line]) -> StoredRecord:
    by_type = {name: tuple(value for value in values if value.get("type") == name) for name in ("exchange", "task")}
    return StoredRecord(path, values[0], values[-1], by_type["exchange"], by_type["task"])


def read_ends(path: Path) -> StoredRecord:
    """Read the head and the end of a record, which is several times faster. Raises RecordError."""
    lines = _whole_lines(path)
    return StoredRecord(path, _checked(path, lines[0], 1), _checked(path, lines[-1], len(lines)))


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of a record of which nothing is missing or changed."""
    try:
        text = path.read_bytes().decode(errors="replace")  # what is no UTF-8 fails as JSON or by the digest
    except OSError as error:
        raise UnreadableRecordError(f"{path}: cannot be read: {error.strerror}") from error
    if not text.strip():
        raise EmptyRecordError(f"{path}: the file is empty: expected a record of a run; {_AGAIN}")
    lines = text.split("\n")
    rest = lines.pop()
    _check_head(path, lines[0] if lines else rest, is_cut=not lines)
    if not lines:
        raise CutRecordError(f"{path}: the record is cut: line 1 is not whole; {_AGAIN}")
    end = _parsed(path, lines[-1], len(lines))
    if rest or end.get("type") != "end":
        raise CutRecordError(f"{path}: the record is cut: line {len(lines)} is its last whole line; {_AGAIN}")
    if end.get("digest") != digest_of(lines[:-1]):
        raise EditedRecordError(f"{path}: the record was edited: its lines do not have the digest of its end; {_AGAIN}")
    return lines


def _check_head(path: Path, line: str, *, is_cut: bool) -> None:
    if is_cut and line.startswith(_BEGINNING):
        raise CutRecordError(f"{path}: the record is cut: line 1 is not whole; {_AGAIN}")
    head = _parsed(path, line, 1) if line.startswith(_BEGINNING) else _value(line) or {}
    found = head.get("format")
    if head.get("type") != "head" or not isinstance(found, int) or found < 1:
        hint = "expected a file that 'rolecall run --record-dir' has written"
        raise NotARecordError(f"{path}: line 1 is not the head of a record of a run; {hint}")
    if found > FORMAT:
        hint = f"this rolecall reads formats up to {FORMAT}; use one that is as new as the one that wrote it"
        raise NewerRecordError(f"{path}: the record has format {found}; {hint}")


def _parsed(path: Path, line: str, number: int) -> Line:
    value = _value(line)
    if value is None:
        raise EditedRecordError(f"{path}: the record was edited: line {number} is no JSON object; {_AGAIN}")
    return value


def _value(line: str) -> Line | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _checked(path: Path, line: str, number: int) -> Line:
    """Return a line. Refuse one that has a right digest and yet was not written as one of a record."""
    value = _parsed(path, line, number)
    lacking = [name for name in _FIELDS.get(str(value.get("type")), ()) if name not in value]
    if lacking:
        raise NotARecordError(f"{path}: not a record of a run: line {number} has no field {lacking[0]!r}")
    if not isinstance(value.get("object", {}), dict):
        raise NotARecordError(f"{path}: not a record of a run: the object in line {number} is no object")
    return value
