"""A run as lines, those of a record: a recorded run has them already, one that has just ended in a shadow gets them.

The lines of a run that has just ended are not masked: they stay in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from rolecall.kube.references import RawObject
from rolecall.runner.proxy.bodies import decompress, objects_in
from rolecall.runner.proxy.body_worker import MAX_INSPECTED_BYTES
from rolecall.runner.record.contents import content_of
from rolecall.runner.record.reader import Line, StoredRecord
from rolecall.runner.record.run_record import KeptExchange, RunRecord
from rolecall.runner.runs.planned.clock import TaskStart
from rolecall.workbench.replay.recorded_objects import parse_time

_RESOURCE_FIELDS: Final = ("group", "version", "resource", "subresource", "namespace", "name")


@dataclass(frozen=True, slots=True)
class RunLines:
    """The object that a run was for, its exchanges and tasks, and what secret values are replaced by."""

    obj: RawObject
    exchanges: tuple[Line, ...]
    tasks: tuple[Line, ...]
    started: datetime
    seconds: float = 0.0
    placeholders: frozenset[str] = frozenset()

    @classmethod
    def of_record(cls, record: StoredRecord) -> "RunLines":
        """Return the lines of a recorded run."""
        head, end = record.head, record.end
        started = parse_time(head["started"]) or datetime.fromtimestamp(0, UTC)
        masked = frozenset(end.get("masked") or ())
        return cls(head["object"], record.exchanges, record.tasks, started, float(end["seconds"]), masked)

    @classmethod
    def of_run(cls, record: RunRecord) -> "RunLines":
        """Return the lines of a run that has just ended."""
        summary = record.ending.summary if record.ending else None
        exchanges = tuple(_exchange(number, kept, record) for number, kept in enumerate(record.exchanges, 1))
        tasks = tuple(
            {"task": each.ident, "host": each.host, "name": each.name, "place": each.path, "hidden": False}
            for each in record.tasks.values()
        )
        return cls(record.obj, exchanges, tasks, record.started, summary.duration_seconds if summary else 0.0)

    def task_starts(self) -> list[TaskStart]:
        """Return when the tasks started, in this order; records of before this was recorded have no times."""
        found = (
            TaskStart(each["name"], each["host"], time.timestamp())
            for each in self.tasks
            if (time := parse_time(each.get("started")))
        )
        return sorted(found, key=lambda each: each.seconds)

    def objects(self) -> Iterator[tuple[RawObject, str]]:
        """Yield the primary and every object in an answer, with its plural name."""
        yield self.obj, ""
        for exchange in self.exchanges:
            answer = exchange.get("answer", {})
            for obj in (*objects_in(answer.get("json")), *_watched(answer)):
                yield obj, exchange.get("resource", "")


def _watched(answer: Line) -> Iterator[RawObject]:
    for event in answer.get("lines") or ():
        if isinstance(event, dict) and isinstance(event.get("object"), dict):
            yield event["object"]


def _exchange(number: int, kept: KeptExchange, record: RunRecord) -> Line:
    exchange, info = kept.exchange, kept.exchange.info
    path, _, query = exchange.target.partition("?")
    line: dict[str, Any] = {
        "number": number,
        "task": exchange.asker.task,
        "host": exchange.asker.host,
        "verb": info.verb,
        **{name: getattr(info, name) for name in _RESOURCE_FIELDS if info.is_resource},
        "method": exchange.method,
        "path": path,
        "query": parse_qsl(query, keep_blank_values=True),
        "status": exchange.status,
    }
    bodies = (("request", kept.body, exchange.content_type), ("answer", kept.answer, exchange.answer_type))
    for name, digest, content_type in bodies:
        if digest is not None:
            body = decompress(record.bodies.get(digest), MAX_INSPECTED_BYTES) or b""
            line[name] = {"contentType": content_type, **content_of(body, content_type, is_secret=False)}
    return line
