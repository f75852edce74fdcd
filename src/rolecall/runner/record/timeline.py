"""A record as people read it: a timeline of tasks with their requests, and each write as a diff.

An object that a task has written is compared with the state that the record showed before. A diff omits the fields that
the API server maintains; a changed line is below the lines of its parents, so that a diff needs no other context. The
timeline has no layout: ``rolecall record`` prints it, and the dashboard draws a waterfall.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import yaml

from rolecall.kube.bodies import objects_in
from rolecall.kube.quantities import parse_time
from rolecall.kube.references import RawObject
from rolecall.runner.proxy.request_info import WRITE_VERBS
from rolecall.runner.record.reader import Line, StoredRecord

SERVER_FIELDS: Final = frozenset(
    {"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"}
)
"""The fields of the metadata that the API server sets."""

UNKNOWN_BEFORE: Final = "written; the record does not show the state before"
_WIDTH: Final = 1000
_WHOLE: Final = 1000
_LONG: Final = 2000
_Line = tuple[str, str]
"""A sign, and a line of YAML."""

_WITH_MESSAGE: Final = ("failed", "ignored", "unreachable")
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Span:
    """A period, in thousandths of the whole run."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class TimelineRequest:
    """One request; ``status`` is None without a response, ``span`` if its start is unknown.

    ``notes`` name the bodies that were not kept, ``request`` or ``answer``, and the reason. ``effects`` are its
    changes: the lines of diffs.
    """

    verb: str
    target: str
    status: int | None
    has_failed: bool
    """Whether it was rejected or has no response."""
    seconds: float
    span: Span | None
    notes: tuple[str, ...]
    effects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimelineTask:
    """One task on one host; ``result`` is empty if it did not end, ``message`` unless it reports a problem."""

    name: str
    host: str
    place: str
    result: str
    seconds: float
    span: Span | None
    is_hidden: bool
    message: str
    items: tuple[tuple[str, str], ...]
    requests: tuple[TimelineRequest, ...]


def timeline_of(record: StoredRecord) -> tuple[tuple[TimelineTask, ...], tuple[TimelineRequest, ...]]:
    """Return the tasks of a record in their order, and the requests of unfinished tasks."""
    known: dict[_Key, Any] = {}
    requests: dict[tuple[str, str], list[TimelineRequest]] = {}
    span_of = _spans(record)
    for exchange in record.exchanges:
        requests.setdefault((exchange["task"], exchange["host"]), []).append(_request(exchange, known, span_of))
    tasks = tuple(
        TimelineTask(
            name=task["name"] or task["action"],
            host="" if task["host"] == "localhost" else task["host"],
            place=task["place"],
            result=task["result"],
            seconds=task["seconds"],
            span=span_of(task),
            is_hidden=task["hidden"],
            message=task["message"] if task["result"] in _WITH_MESSAGE else "",
            items=tuple((item["item"], item["result"]) for item in task.get("items", ())),
            requests=tuple(requests.pop((task["task"], task["host"]), ())),
        )
        for task in record.tasks
    )
    return tasks, tuple(request for each in requests.values() for request in each)


def _spans(record: StoredRecord) -> Callable[[Line], Span | None]:
    """Return a function that returns the position of a task or request, None if its start is unknown."""

    def start_of(line: Line) -> float | None:
        return seconds_of(line.get("time") or line.get("started", ""))

    start = seconds_of(record.head["started"]) or 0.0
    lines = ((start_of(line), line["seconds"]) for line in (*record.exchanges, *record.tasks))
    ends = (begin - start + seconds for begin, seconds in lines if begin is not None)
    whole = max(record.end["seconds"], 0.001, *ends)

    def span_of(line: Line) -> Span | None:
        begin = start_of(line)
        if begin is None:
            return None
        place = min(max(round((begin - start) / whole * _WHOLE), 0), _WHOLE - 1)
        return Span(place, min(max(round(line["seconds"] / whole * _WHOLE), 2), _WHOLE - place))

    return span_of


def _request(exchange: Line, known: dict[_Key, Any], span_of: Callable[[Line], Span | None]) -> TimelineRequest:
    query = "&".join(f"{name}={value}" for name, value in exchange["query"])
    reasons = ((name, exchange.get(name, {}).get("omitted")) for name in ("request", "answer"))
    status = exchange["status"]
    has_failed = status is None or status >= HTTPStatus.BAD_REQUEST
    return TimelineRequest(
        verb=exchange["verb"],
        target=exchange["path"] + (f"?{query}" if query else ""),
        status=status,
        has_failed=has_failed,
        seconds=exchange["seconds"],
        span=span_of(exchange),
        notes=tuple(f"{name} omitted: {reason}" for name, reason in reasons if reason),
        effects=() if has_failed else tuple(_effects(exchange, known)),
    )


def _effects(exchange: Line, known: dict[_Key, Any]) -> Iterator[str]:
    """Yield the diff of a write; update the known objects from the response."""

    def key_of(obj: Mapping[str, Any]) -> _Key:
        metadata = obj.get("metadata") or {}
        namespace, name = (exchange.get(each) or metadata.get(each) or "" for each in ("namespace", "name"))
        return exchange.get("group", ""), exchange.get("resource", ""), namespace, name

    if exchange["verb"] == "delete" and "resource" in exchange:
        known.pop(key_of({}), None)
        return
    is_write = exchange["verb"] in WRITE_VERBS and not exchange.get("subresource")
    is_created = exchange["status"] == HTTPStatus.CREATED
    for obj in objects_in(exchange.get("answer", {}).get("json")):
        key = key_of(obj)
        before = None if is_created else known.get(key)
        if is_write and before is None and not is_created:
            yield UNKNOWN_BEFORE
        elif is_write:
            yield from diff_lines(before and without_server_fields(before), without_server_fields(obj))
        known[key] = obj


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # the fast one, where libyaml is
    """Writes each value in full, and strings of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def without_server_fields(obj: Mapping[str, Any]) -> RawObject:
    """Return an object without the fields of its metadata that the API server maintains."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return dict(obj)
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key not in SERVER_FIELDS}}


def as_yaml(value: Mapping[str, Any]) -> list[str]:
    """Return the lines of a value; a string of several lines becomes a block."""
    text = yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text.removesuffix("...\n").splitlines()  # the end of a document, after a block that ends in empty lines


def diff_lines(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[str]:
    """Return the differences, each line after ``+`` or ``-``, or after a space for a parent of others.

    A changed item of a list is shown with its name or type, which the server's order of fields puts anywhere.
    """
    old, new = as_yaml(_named_first(before)) if before else [], as_yaml(_named_first(after)) if after else []
    is_long = max(len(old), len(new)) > _LONG  # repeated lines would take quadratic time
    lines: list[_Line] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=is_long)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            lines += ((" ", line) for line in old[old_start:old_end])
        else:
            lines += (("-", line) for line in old[old_start:old_end])
            lines += (("+", line) for line in new[new_start:new_end])
    return [f"{lines[index][0]}{lines[index][1]}" for index in sorted(_shown(lines))]


def _named_first(value: Any, *, is_item: bool = False) -> Any:
    """Return a value in which items of lists start with their name or type, so that it is the parent of a change."""
    if isinstance(value, list):
        return [_named_first(each, is_item=True) for each in value]
    if not isinstance(value, Mapping):
        return value
    names = {name: value[name] for name in ("name", "type") if is_item and isinstance(value.get(name), str)}
    return {name: _named_first(each) for name, each in {**names, **value}.items()}


def _shown(lines: list[_Line]) -> set[int]:
    """Return the indexes of the changed lines and of their parents, in the state with the line."""
    shown: set[int] = set()
    above: dict[str, list[tuple[int, int]]] = {"-": [], "+": []}
    for index, (sign, line) in enumerate(lines):
        content = line.lstrip()
        indent = 2 * (len(line) - len(content)) + content.startswith("- ")  # an item is deeper than the key above it
        for state in ("-", "+") if sign == " " else (sign,):
            parents = above[state]
            while line and parents and parents[-1][0] >= indent:
                parents.pop()
            if sign != " ":
                shown |= {index, *(parent for _, parent in parents)}
            if line:
                parents.append((indent, index))
    return shown


def seconds_of(text: str) -> float | None:
    """Return the POSIX time of a text, None if it isn't a time."""
    found = parse_time(text)
    return None if found is None else found.timestamp()
