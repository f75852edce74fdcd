"""A record as a person reads it: what started the run, its tasks with their requests below them, writes as diffs.

An object that a task has written is compared with what the record showed of it before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.durations import format_duration
from rolecall.proxy.request_info import WRITE_VERBS
from rolecall.proxy.writes.bodies import objects_in
from rolecall.record.reader import Line, StoredRecord
from rolecall.record.yaml_diff import as_yaml, diff_lines, without_server_fields

_COLOURS: Final = {"+": "32", "-": "31", "failed": "31", "unreachable": "31", "changed": "33", "ok": "32", "head": "1"}
_FIRST_ERROR: Final = 400
_CREATED: Final = 201
_Key = tuple[str, str, str, str]


@dataclass(slots=True)
class Rendering:
    """Renders one record; with ``is_coloured`` for a terminal."""

    record: StoredRecord
    is_coloured: bool = False
    _known: dict[_Key, Any] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the record."""
        yield from self._head()
        requests: dict[tuple[str, str], list[str]] = {}
        for exchange in self.record.exchanges:  # in their order, because each may change what is known of an object
            rendered = list(self._exchange(exchange))
            requests.setdefault((exchange["task"], exchange["host"]), []).extend(rendered)
        for task in self.record.tasks:
            yield ""
            yield from self._task(task)
            yield from requests.pop((task["task"], task["host"]), [])
        for rest in requests.values():
            yield ""
            yield self._coloured("Requests of no task that has ended", "head")
            yield from rest
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

    def _task(self, task: Line) -> Iterator[str]:
        place = "" if task["host"] in ("", "localhost") else f" on {task['host']}"
        result = self._coloured(task["result"] or "did not end", task["result"])
        took = f", {format_duration(task['seconds'])}" if task["seconds"] else ""
        name = self._coloured(f"TASK {task['name'] or task['action']}{place}", "head")
        yield f"{name}: {result}{took}{', no_log' if task['hidden'] else ''}"
        yield f"  {task['place']}"
        if task["message"] and task["result"] in ("failed", "ignored", "unreachable"):
            yield from (f"  {line}" for line in task["message"].splitlines())
        for item in task.get("items", ()):
            yield f"  item {item['item']}: {item['result']}"

    def _exchange(self, exchange: Line) -> Iterator[str]:
        status = exchange["status"]
        shown = self._coloured(str(status), "failed") if status is None or status >= _FIRST_ERROR else str(status)
        query = "&".join(f"{name}={value}" for name, value in exchange["query"])
        target = exchange["path"] + (f"?{query}" if query else "")
        took = format_duration(exchange["seconds"])
        yield f"    {exchange['verb']:<6} {target}  {shown}  {took}"
        for name in ("request", "answer"):
            if reason := exchange.get(name, {}).get("omitted"):
                yield f"      {name} left out: {reason}"
        if status is not None and status < _FIRST_ERROR:
            yield from self._effect(exchange)

    def _effect(self, exchange: Line) -> Iterator[str]:
        """Yield the diff of a write, and take note of what an answer shows."""
        answer = exchange.get("answer", {}).get("json")
        if exchange["verb"] == "delete" and "resource" in exchange:
            self._known.pop(_key_of(exchange, {}), None)
            return
        for obj in objects_in(answer):
            key = _key_of(exchange, obj)
            if exchange["verb"] in WRITE_VERBS and not exchange.get("subresource"):
                before = None if _is_created(exchange) else self._known.get(key)
                yield from self._diff(before, obj, is_new=_is_created(exchange))
            self._known[key] = obj

    def _diff(self, before: Any, after: Any, *, is_new: bool) -> Iterator[str]:
        if before is None and not is_new:
            yield "      written; the record does not show what was there before"
            return
        for line in diff_lines(before and without_server_fields(before), without_server_fields(after)):
            yield f"      {self._coloured(line, line[:1])}"

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


def _is_created(exchange: Line) -> bool:
    """Return whether a request has created an object."""
    return bool(exchange["status"] == _CREATED)


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


def _key_of(exchange: Line, obj: Mapping[str, Any]) -> _Key:
    metadata = obj.get("metadata") or {}
    namespace = exchange.get("namespace") or metadata.get("namespace") or ""
    name = exchange.get("name") or metadata.get("name") or ""
    return exchange.get("group", ""), exchange.get("resource", ""), namespace, name
