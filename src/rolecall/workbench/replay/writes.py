"""The writes of a run, and the values in it that another run of the same role would get differently.

A recorded run has its exchanges and tasks as the lines of its file; a run that has just ended in a sandbox is converted
to such lines, which are not masked and stay in memory. Writes are in the order of each host, the hosts by name: hosts
work concurrently, so their relative order has no meaning.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from rolecall.kube.bodies import MAX_INSPECTED_BYTES, decompress, media_type, objects_in
from rolecall.kube.json_values import texts_in
from rolecall.kube.metadata import metadata_of
from rolecall.kube.quantities import parse_time
from rolecall.kube.references import SECRETS, RawObject
from rolecall.runner.proxy.request_info import READ_VERBS, WRITE_VERBS
from rolecall.runner.record.document import content_of
from rolecall.runner.record.reader import Line, StoredRecord
from rolecall.runner.record.run_record import KeptExchange, RunRecord
from rolecall.workbench.comparison.objects import text_in_base64
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.planned.journal import TaskStart
from rolecall.workbench.replay.recorded_cluster import is_dry_run

UNKNOWN_TASK: Final = TaskName("a task that did not end")

_RESOURCE_FIELDS: Final = ("group", "version", "resource", "subresource", "namespace", "name")
_STREAMS: Final = frozenset({"proxy", "exec", "attach", "portforward", "log"})
_CONTENTS: Final = ("json", "lines", "text", "base64")
_OK: Final = 200
_SUCCESSES: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class RunLines:
    """The object of a run, its exchanges and tasks, and the placeholders that replace secret values."""

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
        exchanges = tuple(_exchange(number, kept) for number, kept in enumerate(record.exchanges, 1))
        tasks = tuple(
            {"task": each.ident, "host": each.host, "name": each.name, "place": each.path, "hidden": False}
            for each in record.tasks.values()
        )
        return cls(record.obj, exchanges, tasks, record.started, record.ending.run.duration_seconds)

    def task_starts(self) -> list[TaskStart]:
        """Return when the tasks started, in this order; older records don't have these times."""
        found = (
            TaskStart(each["name"], each["host"], time.timestamp())
            for each in self.tasks
            if (time := parse_time(each.get("started")))
        )
        return sorted(found, key=lambda each: each.seconds)

    def task_names(self) -> dict[tuple[str, str], TaskName]:
        """Return the names of the tasks by their idents and hosts."""
        return {(each["task"], each["host"]): TaskName(each["name"], each["place"]) for each in self.tasks}

    def objects(self) -> Iterator[tuple[RawObject, str]]:
        """Yield the primary and every object in a response, each with its plural name."""
        yield self.obj, ""
        for exchange in self.exchanges:
            response = exchange.get("answer", {})
            events = (each.get("object") for each in response.get("lines") or () if isinstance(each, dict))
            watched = (obj for obj in events if isinstance(obj, dict))
            for obj in (*objects_in(response.get("json")), *watched):
                yield obj, exchange.get("resource", "")


def _exchange(number: int, kept: KeptExchange) -> Line:
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
    for name, stored, content_type in bodies:
        if stored is not None:
            body = decompress(stored.content, MAX_INSPECTED_BYTES) or b""
            line[name] = {"contentType": content_type, **content_of(body, content_type, is_secret=False)}
    return line


@dataclass(frozen=True, slots=True)
class Write:
    """One write as its task sent it. ``body`` is decoded if it is JSON or YAML.

    With ``follows_secret`` the run had read a Secret before, with ``is_hidden`` the record hides the texts, and with
    ``is_secret`` the object is a Secret.
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
        """Its path and query, not encoded."""
        query = "&".join(f"{name}={value}" for name, value in self.query)
        return f"{self.path}?{query}" if query else self.path

    @property
    def is_accepted(self) -> bool:
        """Whether the API server accepted the write."""
        return self.status in _SUCCESSES


@dataclass(frozen=True, slots=True)
class RunWrites:
    """The writes of one run.

    ``uids`` has the object for each uid in its responses, ``names`` the prefix of each generated name, and ``versions``
    the resource versions. ``placeholders`` stand for secret values in a record; those that were read from the cluster
    occur in ``read_text``.
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
    reads = [each.get("answer", {}) for each in lines.exchanges if each["verb"] in READ_VERBS]
    texts = [text for response in reads for text in texts_in(response)] if lines.placeholders else []
    return RunWrites(
        writes=tuple(sorted(_writes(lines), key=lambda write: (write.host, write.number))),
        started=lines.started,
        seconds=lines.seconds,
        uids=uids,
        names=names,
        versions=frozenset(versions - {""}),
        placeholders=lines.placeholders,
        read_text="\n".join((*texts, *filter(None, map(text_in_base64, texts)))),
    )


def _writes(lines: RunLines) -> Iterator[Write]:
    tasks = lines.task_names()
    hidden = {task["task"] for task in lines.tasks if task["hidden"]}
    follows_secret = False
    for exchange in lines.exchanges:
        is_secret = (exchange.get("group"), exchange.get("resource")) == SECRETS
        is_stored = "resource" in exchange and exchange.get("subresource") not in _STREAMS
        if exchange["verb"] in WRITE_VERBS and is_stored and not is_dry_run(exchange):
            content = exchange.get("request") or {}
            yield Write(
                number=exchange["number"],
                host=exchange["host"],
                task=tasks.get((exchange["task"], exchange["host"]), UNKNOWN_TASK),
                method=exchange["method"],
                path=exchange["path"],
                query=tuple((name, value) for name, value in exchange["query"]),
                content_type=media_type(content.get("contentType", "")),
                body=next((content[key] for key in _CONTENTS if key in content), None),
                status=exchange["status"],
                follows_secret=follows_secret,
                is_hidden=exchange["task"] in hidden,
                is_secret=is_secret,
            )
        follows_secret |= is_secret and exchange["verb"] in READ_VERBS and exchange["status"] == _OK
