"""The writes of a run, and the values that another run of the same role would get differently.

Writes are in the order of each host, the hosts by name: hosts work at the same time, and their order among each other
says nothing.

A run as lines, those of a record: a recorded run has them already, one that has just ended in a sandbox gets them.

The lines of a run that has just ended are not masked: they stay in memory.

Text in base64.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import SECRETS, RawObject
from rolecall.runner.proxy.bodies import MAX_INSPECTED_BYTES, decompress, media_type, objects_in
from rolecall.runner.proxy.request_info import READ_VERBS, WRITE_VERBS
from rolecall.runner.record.document import content_of
from rolecall.runner.record.masking import decode_base64
from rolecall.runner.record.reader import Line, StoredRecord
from rolecall.runner.record.run_record import KeptExchange, RunRecord
from rolecall.runner.runs.planned.clock import TaskStart
from rolecall.workbench.plan.model import TaskName
from rolecall.workbench.replay.recorded_cluster import parse_time

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
        "task": exchange.origin.task,
        "host": exchange.origin.host,
        "verb": info.verb,
        **{name: getattr(info, name) for name in _RESOURCE_FIELDS if info.is_resource},
        "method": exchange.method,
        "path": path,
        "query": parse_qsl(query, keep_blank_values=True),
        "status": exchange.status,
    }
    bodies = (("request", kept.body, exchange.content_type), ("answer", kept.response, exchange.response_type))
    for name, digest, content_type in bodies:
        if digest is not None:
            body = decompress(record.bodies.get(digest), MAX_INSPECTED_BYTES) or b""
            line[name] = {"contentType": content_type, **content_of(body, content_type, is_secret=False)}
    return line


def decoded(text: str) -> str:
    """Return the text that is encoded in another one, empty if there is none."""
    try:
        return (decode_base64(text) or b"").decode()
    except UnicodeDecodeError:
        return ""


UNKNOWN_TASK: Final = TaskName("a task that did not end")
_STREAMS: Final = frozenset({"proxy", "exec", "attach", "portforward", "log"})
_CONTENTS: Final = ("json", "lines", "text", "base64")
_OK: Final = 200
_REDIRECTION: Final = 300


@dataclass(frozen=True, slots=True)
class Write:
    """One write as its task sent it. ``body`` is decoded if it is JSON or YAML.

    ``follows_secret`` tells that the run had read a Secret before, ``is_hidden`` that the record hides the texts, and
    ``is_secret`` that what is written is a Secret.
    """

    number: int
    host: str
    task: TaskName
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    content_type: str = ""
    body: Any = None
    status: int | None = None
    follows_secret: bool = False
    is_hidden: bool = False
    is_secret: bool = False

    @property
    def target(self) -> str:
        """Its path and query, as people read them."""
        query = "&".join(f"{name}={value}" for name, value in self.query)
        return f"{self.path}?{query}" if query else self.path

    @property
    def is_accepted(self) -> bool:
        """Whether the API server did what was asked."""
        return self.status is not None and _OK <= self.status < _REDIRECTION


@dataclass(frozen=True, slots=True)
class RunWrites:
    """The writes of one run.

    ``uids`` tells of each uid in its answers what it belongs to, ``names`` the prefix of each generated name, and
    ``versions`` are the resource versions. ``placeholders`` stand for secret values in a record; those that were read
    from the cluster occur in ``read_text``.
    """

    writes: tuple[Write, ...]
    started: datetime
    seconds: float = 0.0
    uids: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    versions: frozenset[str] = frozenset()
    placeholders: frozenset[str] = frozenset()
    read_text: str = ""


def writes_of(lines: RunLines) -> RunWrites:
    """Return the writes of a run."""
    uids: dict[str, str] = {}
    names: dict[str, str] = {}
    versions: set[str] = set()
    for obj, resource in lines.objects():
        metadata = metadata_of(obj)
        name, prefix = str(metadata.get("name", "")), str(metadata.get("generateName", ""))
        if uid := metadata.get("uid"):
            uids.setdefault(str(uid), f"{resource or 'primary'} {metadata.get('namespace', '')}/{name}")
        if prefix and name.startswith(prefix):
            names[name] = prefix
        versions.add(str(metadata.get("resourceVersion", "")))
    return RunWrites(
        writes=tuple(sorted(_writes(lines), key=lambda write: (write.host, write.number))),
        started=lines.started,
        seconds=lines.seconds,
        uids=uids,
        names=names,
        versions=frozenset(versions - {""}),
        placeholders=lines.placeholders,
        read_text=_text_of_reads(lines.exchanges) if lines.placeholders else "",
    )


def _writes(lines: RunLines) -> Iterator[Write]:
    tasks = {(task["task"], task["host"]): task for task in lines.tasks}
    hidden = {task["task"] for task in lines.tasks if task["hidden"]}
    follows_secret = False
    for exchange in lines.exchanges:
        if exchange["verb"] in WRITE_VERBS and _changes_something(exchange):
            task = tasks.get((exchange["task"], exchange["host"]))
            content = exchange.get("request") or {}
            yield Write(
                number=exchange["number"],
                host=exchange["host"],
                task=TaskName(task["name"], task["place"]) if task else UNKNOWN_TASK,
                method=exchange["method"],
                path=exchange["path"],
                query=tuple((name, value) for name, value in exchange["query"]),
                content_type=media_type(content.get("contentType", "")),
                body=next((content[key] for key in _CONTENTS if key in content), None),
                status=exchange["status"],
                follows_secret=follows_secret,
                is_hidden=exchange["task"] in hidden,
                is_secret=_is_about_secrets(exchange),
            )
        follows_secret = follows_secret or _has_read_secret(exchange)


def _changes_something(exchange: Line) -> bool:
    is_dry_run = any(name == "dryRun" for name, _ in exchange["query"])
    return "resource" in exchange and not is_dry_run and exchange.get("subresource") not in _STREAMS


def _has_read_secret(exchange: Line) -> bool:
    return _is_about_secrets(exchange) and exchange["verb"] in READ_VERBS and exchange["status"] == _OK


def _is_about_secrets(exchange: Line) -> bool:
    return (exchange.get("group"), exchange.get("resource")) == SECRETS


def _text_of_reads(exchanges: Iterable[Line]) -> str:
    """Return all text in the answers to reads, that in base64 also decoded."""
    found = (exchange.get("answer", {}) for exchange in exchanges if exchange["verb"] in READ_VERBS)
    return "\n".join(text for answer in found for text in _texts(answer))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if plain := decoded(value):
            yield plain
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
