"""A record as a story: what started the run, its tasks with their requests below them, what each write changed.

An object that a task has written is compared with what the record showed of it before. The story has no layout:
``rendering`` makes text of it, the live page a waterfall.

A record as a person reads it: what started the run, its tasks with their requests below them, writes as diffs.

Two states of an object as a diff of YAML that a person reads.

What the API server keeps for itself is left out. A changed line stands below the lines that say what it belongs to, so
that a diff needs no other context.

Times in texts, in the forms in which roles write them.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from rolecall.kube.metadata import metadata_of
from rolecall.kube.quantities import format_duration
from rolecall.kube.references import RawObject
from rolecall.runner.proxy.bodies import objects_in
from rolecall.runner.proxy.request_info import WRITE_VERBS
from rolecall.runner.record.reader import Line, StoredRecord

SERVER_FIELDS: Final = frozenset(
    {"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"}
)
"""The fields of the metadata that the API server sets."""

_WIDTH: Final = 1000
_LONG: Final = 2000
_Line = tuple[str, str]
"""A sign, and a line of YAML."""


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # the fast one, where libyaml is
    """Writes each value in full, and texts of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def without_server_fields(obj: Mapping[str, Any]) -> RawObject:
    """Return an object without what the API server keeps in its metadata."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return dict(obj)
    return {
        **obj,
        "metadata": {key: value for key, value in metadata_of(dict(obj)).items() if key not in SERVER_FIELDS},
    }


def as_yaml(value: Mapping[str, Any]) -> list[str]:
    """Return the lines of a value, a text of several lines as a block of its own."""
    text = yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text.removesuffix("...\n").splitlines()  # the end of a document, after a block that ends in empty lines


def diff_lines(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[str]:
    """Return what differs, each line after ``+`` or ``-``, or after a space if others belong to it."""
    lines = list(_merged([] if not before else as_yaml(before), [] if not after else as_yaml(after)))
    return [f"{lines[index][0]}{lines[index][1]}" for index in sorted(_shown(lines))]


def _merged(old: list[str], new: list[str]) -> Iterator[_Line]:
    is_long = max(len(old), len(new)) > _LONG  # lines that are there many times would take quadratic time
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=is_long)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            yield from ((" ", line) for line in old[old_start:old_end])
        else:
            yield from (("-", line) for line in old[old_start:old_end])
            yield from (("+", line) for line in new[new_start:new_end])


def _shown(lines: list[_Line]) -> set[int]:
    """Return the indexes of the changed lines and of those that they belong to, in the state that has the line."""
    shown: set[int] = set()
    above: dict[str, list[tuple[int, int]]] = {"-": [], "+": []}
    for index, (sign, line) in enumerate(lines):
        indent = _indent(line)
        for state in ("-", "+") if sign == " " else (sign,):
            parents = above[state]
            while line and parents and parents[-1][0] >= indent:
                parents.pop()
            if sign != " ":
                shown |= {index, *(parent for _, parent in parents)}
            if line:
                parents.append((indent, index))
    return shown


def _indent(line: str) -> int:
    """Return how far right a line stands; an item of a list is further right than the key above it."""
    content = line.lstrip()
    return 2 * (len(line) - len(content)) + content.startswith("- ")


UNKNOWN_BEFORE: Final = "written; the record does not show what was there before"
_FIRST_ERROR: Final = 400
_CREATED: Final = 201
_TELLING: Final = ("failed", "ignored", "unreachable")
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class RequestStory:
    """One request; ``status`` is None if there was no answer. ``started`` is a time as it stands in the record."""

    verb: str
    target: str
    status: int | None
    started: str
    seconds: float
    omitted: tuple[tuple[str, str], ...] = ()
    """What was not kept, ``request`` or ``answer``, and why."""
    effects: tuple[str, ...] = ()
    """What it changed: the lines of diffs."""

    @property
    def has_failed(self) -> bool:
        """Whether it was refused or not answered."""
        return self.status is None or self.status >= _FIRST_ERROR


@dataclass(frozen=True, slots=True)
class TaskStory:
    """One task on one host; ``result`` is empty if it did not end, ``message`` if it has nothing to tell."""

    name: str
    host: str
    place: str
    result: str
    started: str
    seconds: float
    is_hidden: bool
    message: str
    items: tuple[tuple[str, str], ...]
    requests: tuple[RequestStory, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """One run: its tasks in their order, and the requests of tasks that have not ended."""

    tasks: tuple[TaskStory, ...]
    rest: tuple[RequestStory, ...]


def story_of(record: StoredRecord) -> Story:
    """Return the story of a record."""
    requests = _requests_by_task(record.exchanges)
    tasks = tuple(_task(task, tuple(requests.pop((task["task"], task["host"]), ()))) for task in record.tasks)
    return Story(tasks, tuple(request for each in requests.values() for request in each))


def _requests_by_task(exchanges: Iterable[Line]) -> dict[tuple[str, str], list[RequestStory]]:
    """Return the requests in their order, because each may change what is known of an object."""
    known, found = _Known(), dict[tuple[str, str], list[RequestStory]]()
    for exchange in exchanges:
        found.setdefault((exchange["task"], exchange["host"]), []).append(_request(exchange, known))
    return found


def _task(task: Line, requests: tuple[RequestStory, ...]) -> TaskStory:
    return TaskStory(
        name=task["name"] or task["action"],
        host="" if task["host"] == "localhost" else task["host"],
        place=task["place"],
        result=task["result"],
        started=task.get("started", ""),
        seconds=task["seconds"],
        is_hidden=task["hidden"],
        message=task["message"] if task["result"] in _TELLING else "",
        items=tuple((item["item"], item["result"]) for item in task.get("items", ())),
        requests=requests,
    )


def _request(exchange: Line, known: "_Known") -> RequestStory:
    query = "&".join(f"{name}={value}" for name, value in exchange["query"])
    reasons = ((name, exchange.get(name, {}).get("omitted")) for name in ("request", "answer"))
    status = exchange["status"]
    is_answered = status is not None and status < _FIRST_ERROR
    return RequestStory(
        verb=exchange["verb"],
        target=exchange["path"] + (f"?{query}" if query else ""),
        status=status,
        started=exchange.get("time", ""),
        seconds=exchange["seconds"],
        omitted=tuple((name, reason) for name, reason in reasons if reason),
        effects=tuple(known.effects_of(exchange)) if is_answered else (),
    )


@dataclass(slots=True)
class _Known:
    """What the answers so far have shown of objects."""

    objects: dict[_Key, Any] = field(default_factory=dict)

    def effects_of(self, exchange: Line) -> list[str]:
        """Return the diff of a write, and take note of what an answer shows."""
        answer = exchange.get("answer", {}).get("json")
        if exchange["verb"] == "delete" and "resource" in exchange:
            self.objects.pop(_key_of(exchange, {}), None)
            return []
        effects: list[str] = []
        is_created = exchange["status"] == _CREATED
        for obj in objects_in(answer):
            key = _key_of(exchange, obj)
            if exchange["verb"] in WRITE_VERBS and not exchange.get("subresource"):
                effects += _diff(None if is_created else self.objects.get(key), obj, is_new=is_created)
            self.objects[key] = obj
        return effects


def _diff(before: Any, after: Any, *, is_new: bool) -> list[str]:
    if before is None and not is_new:
        return [UNKNOWN_BEFORE]
    return diff_lines(before and without_server_fields(before), without_server_fields(after))


def _key_of(exchange: Line, obj: Mapping[str, Any]) -> _Key:
    metadata = obj.get("metadata") or {}
    namespace = exchange.get("namespace") or metadata.get("namespace") or ""
    name = exchange.get("name") or metadata.get("name") or ""
    return exchange.get("group", ""), exchange.get("resource", ""), namespace, name


_COLOURS: Final = {"+": "32", "-": "31", "failed": "31", "unreachable": "31", "changed": "33", "ok": "32", "head": "1"}


@dataclass(slots=True)
class Rendering:
    """Renders one record; with ``is_coloured`` for a terminal."""

    record: StoredRecord
    is_coloured: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the lines of the record."""
        story = story_of(self.record)
        yield from self._head()
        for task in story.tasks:
            yield ""
            yield from self._task(task)
        if story.rest:
            yield ""
            yield self._coloured("Requests of no task that has ended", "head")
            for request in story.rest:
                yield from self._request(request)
        yield ""
        yield from self._end()

    def _head(self) -> Iterator[str]:
        head, end = self.record.head, self.record.end
        took = format_duration(end["seconds"])
        yield self._coloured(f"{self.record.kind} {self.record.name}: {end['outcome']} in {took}", "head")
        yield f"  started  {head['started']}, run {head['job']}{', for the finalizer' if head['finalizing'] else ''}"
        for cause in head["causes"]:
            yield f"  because  {cause}"
        watch = head["watch"]
        yield f"  content  {watch.get('role') or watch.get('playbook', '')}"
        yield f"  with     rolecall {head.get('rolecall')}, ansible-core {head.get('ansible-core')}"
        if not end["complete"]:
            yield "  incomplete: not every body was kept, see the answers that were left out"

    def _task(self, task: TaskStory) -> Iterator[str]:
        place = f" on {task.host}" if task.host else ""
        result = self._coloured(task.result or "did not end", task.result)
        took = f", {format_duration(task.seconds)}" if task.seconds else ""
        name = self._coloured(f"TASK {task.name}{place}", "head")
        yield f"{name}: {result}{took}{', no_log' if task.is_hidden else ''}"
        yield f"  {task.place}"
        yield from (f"  {line}" for line in task.message.splitlines())
        yield from (f"  item {item}: {result}" for item, result in task.items)
        for request in task.requests:
            yield from self._request(request)

    def _request(self, request: RequestStory) -> Iterator[str]:
        status = self._coloured(str(request.status), "failed") if request.has_failed else str(request.status)
        yield f"    {request.verb:<6} {request.target}  {status}  {format_duration(request.seconds)}"
        yield from (f"      {name} left out: {reason}" for name, reason in request.omitted)
        yield from (f"      {self._coloured(line, line[:1])}" for line in request.effects)

    def _end(self) -> Iterator[str]:
        end = self.record.end
        yield self._coloured(f"END {end['outcome']}: {end['tasks']} tasks, {end['exchanges']} requests", "head")
        yield from (f"  {line}" for failure in end["failures"] for line in failure.splitlines())
        if end["requeueAfterSeconds"] is not None:
            yield f"  runs again in {format_duration(end['requeueAfterSeconds'])}"
        if end["status"] is not None:
            yield "  status:"
            yield from (f"    {line}" for line in as_yaml(end["status"]))

    def _coloured(self, text: str, kind: str) -> str:
        colour = _COLOURS.get(kind)
        return f"\x1b[{colour}m{text}\x1b[0m" if self.is_coloured and colour and text else text


def table(records: Iterable[StoredRecord]) -> list[str]:
    """Return one line for each record, below a header."""
    rows = [("STARTED", "KIND", "NAME", "OUTCOME", "TOOK", "TASKS", "REQUESTS", "FILE")]
    for record in records:
        end = record.end
        took = format_duration(end["seconds"])
        counts = (str(end["tasks"]), str(end["exchanges"]))
        rows.append((record.head["started"], record.kind, record.name, end["outcome"], took, *counts, record.path.name))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<!\d)\d{8}T\d{6}\d*Z?"
    r"|(?<![\d.])1\d{9}(?:\d{3})?(?:\.\d+)?(?!\d)"
)
"""RFC 3339 and what Python prints, the short forms of ISO 8601, and POSIX time in seconds or milliseconds."""

FIRST_MILLISECONDS: Final = 1e12
"""From here on a number is a POSIX time in milliseconds."""

_BASIC_CHARACTERS: Final = 15


def seconds_of(text: str) -> float | None:
    """Return the POSIX time of a text that ``TIME`` matches, None if it is no time; without a zone it is in UTC."""
    try:
        if "T" in text[:9] and "-" not in text:
            found = datetime.strptime(text[:_BASIC_CHARACTERS], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        elif "-" in text:
            found = datetime.fromisoformat(text.replace(",", "."))
        else:
            number = float(text)
            return number / 1000 if number >= FIRST_MILLISECONDS else number
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
