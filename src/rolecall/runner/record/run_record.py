"""Collects what one run does, while it runs: its requests and the results of its tasks.

It is told by the proxy and the runner, in the operator's loop, and only stores: nothing is decoded here. A run that
does more than fits is recorded without further bodies, and its record says so.

Bodies of requests and answers in memory: compressed, and each one once.

Roles read the same lists again and again. So a body is stored under its digest for as long as a record refers to it.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy import Exchange, NewTraceparent
from rolecall.runner.proxy.bodies import GZIP_MAGIC
from rolecall.runner.runs.events import RunEvent, RunSummary

_LEVEL: Final = 1
_SMALL_BYTES: Final = 256
"""A body of this length is not worth compressing."""


@dataclass(slots=True)
class _Stored:
    content: bytes
    is_compressed: bool
    references: int = 0


@dataclass(slots=True)
class Bodies:
    """The bodies of all records in memory; ``stored_bytes`` is what they take."""

    stored_bytes: int = 0
    _by_digest: dict[bytes, _Stored] = field(default_factory=dict)

    def add(self, body: bytes) -> bytes:
        """Store a body, or refer to it once more, and return its digest."""
        digest = hashlib.sha256(body).digest()[:16]
        stored = self._by_digest.get(digest)
        if stored is None:
            is_compressed = len(body) > _SMALL_BYTES
            stored = _Stored(zlib.compress(body, _LEVEL) if is_compressed else body, is_compressed)
            self._by_digest[digest] = stored
            self.stored_bytes += len(stored.content)
        stored.references += 1
        return digest

    def snapshot(self, digests: Iterable[bytes]) -> "Bodies":
        """Return some of the bodies, which stay whatever is dropped here; nothing is copied."""
        kept = {digest: self._by_digest[digest] for digest in digests}
        return Bodies(sum(len(each.content) for each in kept.values()), kept)

    def get(self, digest: bytes) -> bytes:
        """Return a body. Raises KeyError if no record refers to it any more."""
        stored = self._by_digest[digest]
        return zlib.decompress(stored.content) if stored.is_compressed else stored.content

    def drop(self, digest: bytes) -> None:
        """Give up a reference; a body without references is removed."""
        stored = self._by_digest[digest]
        stored.references -= 1
        if not stored.references:
            del self._by_digest[digest]
            self.stored_bytes -= len(stored.content)


MAX_EXCHANGES: Final = 10_000
MAX_ITEMS: Final = 1000
_ENTRY_BYTES: Final = 1024
"""What an exchange or a task takes beside its bodies, roughly."""

_STARTED: Final = frozenset({"playbook_on_task_start", "playbook_on_handler_task_start"})
_RESULTS: Final = {
    "runner_on_ok": "ok",
    "runner_on_skipped": "skipped",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_item_on_ok": "ok",
    "runner_item_on_skipped": "skipped",
    "runner_item_on_failed": "failed",
}


@dataclass(slots=True)
class KeptExchange:
    """An exchange without its bodies, which are in ``Bodies`` under these digests; None for what was not kept."""

    exchange: Exchange
    body: bytes | None = None
    sent: bytes | None = None
    answer: bytes | None = None
    is_without_room: bool = False
    may_refer: bool = True
    """Whether the answer may have an owner reference to the primary; most have none, and to decode them takes time."""

    @property
    def digests(self) -> list[bytes]:
        """The digests of its bodies."""
        return [digest for digest in (self.body, self.sent, self.answer) if digest is not None]


@dataclass(slots=True)
class TaskRecord:
    """What is known about a task on one host; ``result`` is empty until it has ended."""

    ident: str
    name: str = ""
    path: str = ""
    action: str = ""
    host: str = ""
    result: str = ""
    message: str = ""
    started: str = ""
    is_hidden: bool = False
    duration_seconds: float = 0.0
    items: list[dict[str, str]] = field(default_factory=list)

    @property
    def has_run(self) -> bool:
        """Whether it has done something, and was not skipped."""
        return self.result not in ("", "skipped")


@dataclass(slots=True)
class Ending:
    """How a reconcile ended; ``status`` is the status as it was written, None if none was."""

    outcome: str
    summary: RunSummary | None = None
    status: Mapping[str, Any] | None = None
    requeue_after_seconds: float | None = None


@dataclass(slots=True)
class RunRecord:
    """The record of one run. ``room_bytes`` bounds what its bodies take.

    ``new_traceparent`` is set before the run starts, if the run has a trace.
    """

    gvk: GVK
    obj: RawObject
    ident: str
    bodies: Bodies
    room_bytes: int
    causes: tuple[str, ...] = ()
    is_finalizing: bool = False
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    exchanges: list[KeptExchange] = field(default_factory=list)
    tasks: dict[tuple[str, str], TaskRecord] = field(default_factory=dict)
    ending: Ending | None = None
    is_complete: bool = True
    new_traceparent: NewTraceparent | None = None
    _started_tasks: dict[str, TaskRecord] = field(default_factory=dict)
    _used_bytes: int = 0

    @property
    def key(self) -> ObjectKey:
        """The object that the run is for."""
        return ObjectKey.of_object(self.obj)

    @property
    def size_bytes(self) -> int:
        """What the record takes beside its bodies, roughly."""
        return _ENTRY_BYTES * (1 + len(self.exchanges) + len(self.tasks))

    @property
    def unfinished_task(self) -> TaskRecord | None:
        """The task that started last, if it has no result on any host: a run that is ended is ended there."""
        last = next(reversed(self._started_tasks.values()), None)
        return None if last is None or any(ident == last.ident for ident, _ in self.tasks) else last

    def on_exchange(self, exchange: Exchange) -> None:
        """Take note of a request of the run and its answer."""
        if len(self.exchanges) >= MAX_EXCHANGES:
            self.is_complete = False
            return
        bare = _without_bodies(exchange)
        length = len(exchange.body) + len(exchange.sent or b"") + len(exchange.response or b"")
        if self._used_bytes + length > self.room_bytes:
            self.is_complete = False
            self.exchanges.append(KeptExchange(bare, is_without_room=True))
            return
        before = self.bodies.stored_bytes
        store = self._store
        kept = KeptExchange(bare, store(exchange.body or None), store(exchange.sent), store(exchange.response))
        kept.may_refer = self._may_refer(exchange.response or b"")
        self._used_bytes += self.bodies.stored_bytes - before
        self.is_complete &= not exchange.is_cut
        self.exchanges.append(kept)

    def on_event(self, event: RunEvent) -> None:
        """Take note of an event of Ansible."""
        if event.name in _STARTED:
            name = event.full_name or event.task
            task = TaskRecord(event.task_id, name, event.task_path, event.action, started=event.created)
            self._started_tasks[event.task_id] = task
        elif event.name in _RESULTS:
            task = self._task(event)
            task.is_hidden |= event.censored
            if event.name.startswith("runner_item_"):
                self._add_item(task, event)
            else:
                task.result, task.message = _result_of(event), event.message
                task.started, task.duration_seconds = event.started, event.duration_seconds

    def drop(self) -> None:
        """Give up its bodies."""
        for kept in self.exchanges:
            for digest in kept.digests:
                self.bodies.drop(digest)
        self.exchanges.clear()

    def snapshot(self) -> "RunRecord":
        """Return the record as it is now, for a thread: it stays whole when the record is dropped."""
        bodies = self.bodies.snapshot(digest for kept in self.exchanges for digest in kept.digests)
        return replace(self, bodies=bodies, exchanges=list(self.exchanges))

    def _may_refer(self, answer: bytes) -> bool:
        return answer.startswith(GZIP_MAGIC) or uid_of(self.obj).encode() in answer

    def _store(self, body: bytes | None) -> bytes | None:
        return None if body is None else self.bodies.add(body)

    def _task(self, event: RunEvent) -> TaskRecord:
        found = self.tasks.get((event.task_id, event.host))
        if found is None:
            started = self._started_tasks.get(event.task_id)
            name, path = (started.name, started.path) if started else (event.full_name or event.task, event.task_path)
            found = TaskRecord(event.task_id, name, event.task_path or path, event.action, event.host)
            self.tasks[event.task_id, event.host] = found
        return found

    def _add_item(self, task: TaskRecord, event: RunEvent) -> None:
        if len(task.items) < MAX_ITEMS:
            task.items.append({"item": event.item, "result": _result_of(event), "message": event.message})
        else:
            self.is_complete = False


def _result_of(event: RunEvent) -> str:
    result = _RESULTS[event.name]
    if result == "failed" and event.ignored:
        return "ignored"
    return "changed" if result == "ok" and event.changed else result


def _without_bodies(exchange: Exchange) -> Exchange:
    return replace(exchange, body=b"", sent=None, response=None)
