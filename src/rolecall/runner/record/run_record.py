"""What runs do, collected while they run: requests and results of tasks; and the last records of each object in memory.

The proxy and the runner report to a record in the operator's loop, and it only stores: nothing is decoded here. A run
with more data than fits is recorded without further bodies, and its record reports this.

Bodies in memory are compressed, and each is stored once: roles read the same lists repeatedly. Records stay in memory
within a budget.
"""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from rolecall.kube.bodies import GZIP_MAGIC
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.forward import NewTraceparent
from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.prune.decision import Pruning
from rolecall.runner.runs.events import HIDDEN, RunEvent
from rolecall.runner.runs.outcome import NO_RUN, Outcome
from rolecall.system.clock import SYSTEM_CLOCK

MAX_EXCHANGES: Final = 10_000
MAX_ITEMS: Final = 1000
_LEVEL: Final = 1
_SMALL_BYTES: Final = 256
"""A body of this length isn't worth compressing."""

_ENTRY_BYTES: Final = 1024
"""Approximate size of an exchange or a task, excluding bodies."""

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

_Object = tuple[GVK, ObjectKey]


@dataclass(slots=True, eq=False)
class Body:
    """A body, stored once for all records in memory that refer to it."""

    digest: bytes
    stored: bytes
    is_compressed: bool
    references: int = 0

    @property
    def content(self) -> bytes:
        """The body, which stays even if no record in memory refers to it anymore."""
        return zlib.decompress(self.stored) if self.is_compressed else self.stored


@dataclass(slots=True)
class Bodies:
    """The bodies of all records in memory, by their digests; ``stored_bytes`` is their total size."""

    stored_bytes: int = 0
    _by_digest: dict[bytes, Body] = field(default_factory=dict)

    def add(self, content: bytes) -> Body:
        """Store a body, or add a reference to it, and return it."""
        digest = hashlib.sha256(content).digest()[:16]
        body = self._by_digest.get(digest)
        if body is None:
            is_compressed = len(content) > _SMALL_BYTES
            body = Body(digest, zlib.compress(content, _LEVEL) if is_compressed else content, is_compressed)
            self._by_digest[digest] = body
            self.stored_bytes += len(body.stored)
        body.references += 1
        return body

    def drop(self, body: Body) -> None:
        """Drop a reference; a body without references is removed."""
        body.references -= 1
        if not body.references:
            del self._by_digest[body.digest]
            self.stored_bytes -= len(body.stored)


@dataclass(slots=True)
class KeptExchange:
    """An exchange whose bodies are stored separately; None for a body that wasn't kept."""

    exchange: Exchange
    body: Body | None = None
    sent: Body | None = None
    response: Body | None = None
    is_without_room: bool = False
    may_refer: bool = True
    """Whether the response may have an owner reference to the primary; most have none, and decoding takes time."""

    @property
    def bodies(self) -> list[Body]:
        """Its bodies that were kept."""
        return [body for body in (self.body, self.sent, self.response) if body is not None]


@dataclass(slots=True)
class TaskRecord:
    """A task on one host; ``path`` is its file and line. ``result`` is empty until it has ended."""

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
        """Whether it did something, and wasn't skipped."""
        return self.result not in ("", "skipped")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a reconcile ended, the outcome of its run, and what was pruned; ``status`` is the written one, or None."""

    outcome: str = "unknown"
    run: Outcome = NO_RUN
    status: Mapping[str, Any] | None = None
    requeue_after_seconds: float | None = None
    pruning: Pruning = field(default_factory=Pruning)


@dataclass(slots=True)
class RunRecord:
    """The record of one run. ``room_bytes`` limits the size of its bodies.

    ``new_traceparent`` is set before the run starts, if the run has a trace.
    """

    gvk: GVK
    obj: RawObject
    ident: str
    bodies: Bodies
    room_bytes: int
    causes: tuple[str, ...] = ()
    is_finalizing: bool = False
    started: datetime = field(default_factory=lambda: datetime.fromtimestamp(SYSTEM_CLOCK.now(), UTC))
    exchanges: list[KeptExchange] = field(default_factory=list)
    tasks: dict[tuple[str, str], TaskRecord] = field(default_factory=dict)
    ending: Ending = Ending()
    is_complete: bool = True
    new_traceparent: NewTraceparent | None = None
    _started_tasks: dict[str, TaskRecord] = field(default_factory=dict)
    _used_bytes: int = 0

    @property
    def key(self) -> ObjectKey:
        """The object of the run."""
        return ObjectKey.of_object(self.obj)

    @property
    def size_bytes(self) -> int:
        """Approximate record size, excluding bodies."""
        return _ENTRY_BYTES * (1 + len(self.exchanges) + len(self.tasks))

    @property
    def unfinished_task(self) -> TaskRecord | None:
        """The last started task, if it has no result on any host: a stopped run ends there."""
        last = next(reversed(self._started_tasks.values()), None)
        return None if last is None or any(ident == last.ident for ident, _ in self.tasks) else last

    def on_exchange(self, exchange: Exchange) -> None:
        """Record a request of the run and its response."""
        if len(self.exchanges) >= MAX_EXCHANGES:
            self.is_complete = False
            return
        bare = exchange.without_bodies()
        response = exchange.response or b""
        if self._used_bytes + len(exchange.body) + len(exchange.sent or b"") + len(response) > self.room_bytes:
            self.is_complete = False
            self.exchanges.append(KeptExchange(bare, is_without_room=True))
            return
        before = self.bodies.stored_bytes
        body, sent, kept = (
            None if each is None else self.bodies.add(each)
            for each in (exchange.body or None, exchange.sent, exchange.response)
        )
        may_refer = response.startswith(GZIP_MAGIC) or uid_of(self.obj).encode() in response
        self.exchanges.append(KeptExchange(bare, body, sent, kept, may_refer=may_refer))
        self._used_bytes += self.bodies.stored_bytes - before
        self.is_complete &= not exchange.is_cut

    def on_event(self, event: RunEvent) -> None:
        """Record an event of Ansible."""
        if event.name in _STARTED:
            name = event.full_name or event.task
            task = TaskRecord(event.task_id, name, event.task_path, event.action, started=event.created)
            self._started_tasks[event.task_id] = task
        if event.name not in _RESULTS:
            return
        result = _RESULTS[event.name]
        if result == "failed" and event.ignored:
            result = "ignored"
        elif result == "ok" and event.changed:
            result = "changed"
        found = self.tasks.get((event.task_id, event.host))
        if found is None:
            started = self._started_tasks.get(event.task_id)
            name, path = (started.name, started.path) if started else (event.full_name or event.task, event.task_path)
            found = TaskRecord(event.task_id, name, event.task_path or path, event.action, event.host)
            self.tasks[event.task_id, event.host] = found
        found.is_hidden |= event.censored
        if not event.name.startswith("runner_item_"):
            found.result, found.message = result, event.message
            found.started, found.duration_seconds = event.started, event.duration_seconds
        elif len(found.items) < MAX_ITEMS:
            found.items.append({"item": event.item, "result": result, "message": event.message})
        else:
            self.is_complete = False

    def explain_hidden(self, outcome: Outcome) -> Outcome:
        """Return an outcome whose hidden failures name the last request of their task, if the API server rejected it.

        The verb, the resource, and the status are no secrets; the permission is usually what is missing.
        """
        last = {kept.exchange.origin.task: kept.exchange for kept in self.exchanges}
        failures = []
        for failure in outcome.failures:
            exchange = last.get(failure.task_id) if failure.task_id and HIDDEN in failure.message else None
            if exchange is not None and exchange.info.is_resource and (exchange.status or 0) >= HTTPStatus.BAD_REQUEST:
                info = exchange.info
                resource = "/".join(filter(None, (".".join(filter(None, info.group_resource[::-1])), info.subresource)))
                rejected = f"; the API server rejected its last request with {exchange.status}: {info.verb} {resource}"
                failure = replace(failure, message=failure.message + rejected)  # noqa: PLW2901 - the new version
            failures.append(failure)
        return replace(outcome, failures=tuple(failures))

    def drop(self) -> None:
        """Drop its bodies."""
        for kept in self.exchanges:
            for body in kept.bodies:
                self.bodies.drop(body)
        self.exchanges = []  # a copy of the record, which a thread may read, has the others


@dataclass(slots=True)
class RecordMemory:
    """The last records, at most ``max_runs`` of each object.

    To stay within the budget, it drops the earlier records of objects with a newer one, then the record stored longest
    ago. It doesn't keep a record larger than the budget.
    """

    budget_bytes: int
    bodies: Bodies = field(default_factory=Bodies)
    max_runs: int = 10
    _runs: dict[_Object, list[RunRecord]] = field(default_factory=dict)
    """The records of each object, the oldest first; the object whose last one was stored longest ago comes first."""

    _earlier: dict[tuple[_Object, str], RunRecord] = field(default_factory=dict)
    """The records of objects with a newer one, in the order in which these got it."""

    _entries_bytes: int = 0

    def add(self, record: RunRecord) -> None:
        """Store the record of a run that has ended."""
        obj = record.gvk, record.key
        runs = self._runs[obj] = self._runs.pop(obj, [])
        if runs:
            self._earlier[obj, runs[-1].ident] = runs[-1]
        runs.append(record)
        self._entries_bytes += record.size_bytes
        if len(runs) > self.max_runs:
            self._drop(runs[0])
        while self._runs and self._entries_bytes + self.bodies.stored_bytes > self.budget_bytes:
            self._drop(next(iter(self._earlier.values()), None) or next(iter(self._runs.values()))[0])

    def runs(self, gvk: GVK, key: ObjectKey) -> tuple[RunRecord, ...]:
        """Return the records of an object, the oldest first."""
        return tuple(self._runs.get((gvk, key), ()))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the records of an object."""
        for record in self.runs(gvk, key):
            self._drop(record)

    def _drop(self, record: RunRecord) -> None:
        obj = record.gvk, record.key
        self._earlier.pop((obj, record.ident), None)
        runs = self._runs[obj]
        runs.remove(record)
        if not runs:
            del self._runs[obj]
        self._entries_bytes -= record.size_bytes
        record.drop()
