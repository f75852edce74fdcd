"""The writes of a run, and the values that another run of the same role would get differently.

Writes are in the order of each host, the hosts by name: hosts work at the same time, and their order among each other
says nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.runner.proxy.bodies import media_type
from rolecall.runner.proxy.request_info import READ_VERBS, WRITE_VERBS
from rolecall.runner.record.reader import Line
from rolecall.workbench.plan.results import TaskName
from rolecall.workbench.replay.base64_text import decoded
from rolecall.workbench.replay.run_lines import RunLines

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
    return (exchange.get("group"), exchange.get("resource")) == ("", "secrets")


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
