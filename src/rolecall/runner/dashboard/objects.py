"""One object: its conditions, its runs over time, and what wakes it.

The kinds, and the objects that a query asks for, a page at a time.

All objects are counted for every list, so that is done in small steps between which the event loop does other work,
once a second at most for the same query: however many look, and however often.

An object in one row: its state, its last run, and what it waits for.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from rolecall.kube.references import GVK
from rolecall.runner.config.watches import ReferenceType, Trigger
from rolecall.runner.controller.work_queue import RequestState
from rolecall.runner.dashboard.sources import Kind, ObjectNote, Sources
from rolecall.runner.dashboard.views import (
    ConditionView,
    KindView,
    ListView,
    ObjectView,
    Query,
    ReplicaView,
    RowView,
    RunLineView,
    State,
    WaitView,
    WakeView,
)
from rolecall.runner.election.shard_member import HeldShards
from rolecall.runner.proxy import Ownership
from rolecall.runner.reads.observed_state import Target
from rolecall.runner.reconcile.status import conditions_of
from rolecall.runner.record.memory import RunLine
from rolecall.runner.record.reader import StoredRecord


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes the rows of the objects of one kind."""

    sources: Sources
    kind: Kind

    def state_of(self, note: ObjectNote) -> State:
        """Return what there is to say first about an object."""
        running = self.kind.watched.controller.running
        if running and note.key in running:  # most often nothing is, and to hash a key takes longer than to look
            return State.RUNNING
        if note.is_deleting:
            return State.DELETING
        if note.is_paused:
            return State.PAUSED
        return note.verdict if self.kind.watched.watch.manage_status else self._verdict_of_last_run(note)

    def row(self, note: ObjectNote) -> RowView:
        """Return the row of an object."""
        line = self.last_line(note)
        return RowView(
            kind=self.kind.id,
            kind_name=self.kind.gvk.kind,
            namespace=note.key.namespace,
            name=note.key.name,
            state=self.state_of(note),
            last_run=None if line is None else self._shown(line, self._idents(note)),
            waits_for=self._wait(note),
        )

    def lines(self, note: ObjectNote) -> tuple[RunLineView, ...]:
        """Return the runs of an object, the newest first."""
        recorder, idents = self.sources.recorder, self._idents(note)
        if recorder is None or recorder.history is None:
            return ()
        return tuple(self._shown(line, idents) for line in recorder.history.of(self.kind.gvk, note.key))

    def last_line(self, note: ObjectNote) -> RunLine | None:
        """Return the line about the last run of an object, None if it had none since the start of the operator."""
        recorder = self.sources.recorder
        if recorder is None or recorder.history is None:
            return None
        return recorder.history.last(self.kind.gvk, note.key)

    def _idents(self, note: ObjectNote) -> frozenset[str]:
        """Return the IDs of the runs that memory has records of."""
        recorder = self.sources.recorder
        if recorder is None:
            return frozenset()
        return frozenset(record.ident for record in recorder.memory.runs(self.kind.gvk, note.key))

    def _shown(self, line: RunLine, recorded: frozenset[str]) -> RunLineView:
        return RunLineView(
            id=line.ident,
            started=line.started,
            seconds=line.seconds,
            outcome=line.outcome,
            because=line.causes,
            tasks=line.tasks,
            requests=line.requests,
            has_record=line.ident in recorded,
        )

    def _verdict_of_last_run(self, note: ObjectNote) -> State:
        """Return the verdict for a kind whose status its role manages: its conditions may mean anything."""
        line = self.last_line(note)
        if line is None or line.outcome == "interrupted":
            return State.PENDING
        return State.SUCCEEDED if line.outcome == "succeeded" else State.FAILED

    def _wait(self, note: ObjectNote) -> WaitView:
        controller = self.kind.watched.controller
        request = controller.queue.look_up(note.key)
        if note.key in controller.running:
            return WaitView("its run")
        if not self.sources.is_mine(self.kind.gvk, note.key):
            return WaitView("the replica that has its shard")
        return self._queue(note, request)

    def _queue(self, note: ObjectNote, request: RequestState) -> WaitView:
        if request.priority is not None:
            return WaitView(f"{self._turn(request)}, {request.priority.label} priority", because=request.causes)
        if note.is_paused:
            return WaitView("the end of its pause")
        return self._timer(request)

    def _timer(self, request: RequestState) -> WaitView:
        if request.due is None:
            return WaitView("a change")
        until = self.sources.wall_time(request.due)
        if request.is_backing_off:
            times = "failure" if request.failures == 1 else "failures in a row"
            return WaitView(f"its back-off after {request.failures} {times}", until, request.causes)
        return WaitView("its next run", until, request.causes)

    def _turn(self, request: RequestState) -> str:
        """Return what a request in the queue waits for."""
        dispatcher, controller = self.sources.manager.dispatcher, self.kind.watched.controller
        if not self.sources.manager.is_leading:
            return "this replica to lead"
        if not dispatcher.has_started:
            return "the informers"
        if request.is_processing:
            return "the end of the run before"
        if not controller.has_free_worker:
            return f"a free worker of {controller.workers} of its kind"
        if not dispatcher.has_free_run:
            return f"a free run of {dispatcher.limit} in all"
        return "its turn"


PAGE_SIZE: Final = 100
FRESH_SECONDS: Final = 1.0
_STEP: Final = 200
"""How many objects are looked at before others have their turn."""

_MOST_LISTS: Final = 32
_Found = tuple[float, Kind, ObjectNote]
"""When the last run of an object started, if that is asked for, its kind, and the object."""


@dataclass(slots=True)
class Lists:
    """Answers queries; ``now`` is a monotonic clock in seconds."""

    sources: Sources
    now: Callable[[], float] = time.monotonic
    _lists: OrderedDict[Query, tuple[float, asyncio.Task[ListView]]] = field(default_factory=OrderedDict)

    async def answer(self, query: Query) -> ListView:
        """Return a list that is at most a second old."""
        made, task = self._lists.get(query, (0.0, None))
        if task is None or (task.done() and (self.now() - made >= FRESH_SECONDS or task.exception() is not None)):
            task = asyncio.create_task(self._list(query))
            self._lists[query] = self.now(), task
            self._lists.move_to_end(query)
            while len(self._lists) > _MOST_LISTS:
                self._lists.popitem(last=False)
        return await asyncio.shield(task)  # who goes away must not end what others wait for

    async def _list(self, query: Query) -> ListView:
        kinds, found = [], list[_Found]()
        for kind in self.sources.kinds:
            counts, notes = await self._look(kind, query)
            kinds.append(kind_view(kind, counts))
            found += notes
        if query.sort == "recent":
            found.sort(key=itemgetter(0), reverse=True)
        pages = max(1, -(-len(found) // PAGE_SIZE))
        start = (min(query.page, pages) - 1) * PAGE_SIZE
        rows = tuple(Rows(self.sources, kind).row(note) for _, kind, note in found[start : start + PAGE_SIZE])
        return ListView(replica_view(self.sources), tuple(kinds), query, rows, len(found), pages)

    async def _look(self, kind: Kind, query: Query) -> tuple[Counter[State], list[_Found]]:
        """Return how many objects of a kind are in which state, and those that are asked for."""
        counts, found, rows = Counter[State](), list[_Found](), Rows(self.sources, kind)
        is_asked = query.kind in ("", kind.id)
        for number, note in enumerate(kind.notes):
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            state = rows.state_of(note)
            counts[state] += 1
            if is_asked and query.state in ("", state) and _is_named(note, query):
                line = rows.last_line(note) if query.sort == "recent" else None
                found.append((line.started if line is not None else 0.0, kind, note))
        return counts, found


def _is_named(note: ObjectNote, query: Query) -> bool:
    return query.namespace in ("", note.key.namespace) and (not query.text or query.text in str(note.key))


def kind_view(kind: Kind, counts: Counter[State]) -> KindView:
    """Return a kind with the states of its objects."""
    controller = kind.watched.controller
    return KindView(
        id=kind.id,
        kind=kind.gvk.kind,
        api_version=kind.gvk.api_version,
        content=kind.watched.watch.content.path.name,
        objects=len(kind.notes),
        states={state: counts[state] for state in State},
        queued=len(controller.queue),
        waiting=controller.queue.waiting,
        running=len(controller.running),
        workers=controller.workers,
        trouble=kind.watched.primaries.blocked_reason,
    )


def replica_view(sources: Sources) -> ReplicaView:
    """Return the operator itself."""
    dispatcher, shards = sources.manager.dispatcher, sources.shards
    return ReplicaView(
        version=sources.version,
        text=" ".join(_sentences(sources)),
        is_working=dispatcher.has_started and sources.manager.is_leading,
        runs=dispatcher.active,
        most_runs=dispatcher.limit,
        shards=None if shards is None else tuple(sorted(shards.held)),
        shard_count=shards.count if shards is not None else 0,
    )


def _sentences(sources: Sources) -> Iterator[str]:
    manager = sources.manager
    if not manager.has_settled:
        yield "The informers are still listing the objects."
    elif not manager.is_leading and sources.shards is not None:
        yield "This replica has not joined the others yet."
    elif not manager.is_leading:
        yield "This replica waits: another one is the leader and runs the roles. Runs are shown there."
    else:
        yield "This replica runs the roles."
    if sources.shards is not None:
        yield _shards(sources.shards)


def _shards(shards: HeldShards) -> str:
    held = ", ".join(map(str, sorted(shards.held))) or "none"
    return f"Of {shards.count} shards it holds {held}. Objects of the others are reconciled by other replicas."


MOST_READS: Final = 50
_OWNERSHIPS: Final = {
    Ownership.OWNER_REFERENCE: "one that runs have made, with the object as its owner",
    Ownership.ANNOTATION: "one that runs have made, with the object in its annotations",
}


def object_view(sources: Sources, kind: Kind, note: ObjectNote, last: StoredRecord | None) -> ObjectView:
    """Return an object; ``last`` is the record of its last run, if there is one."""
    rows, reads = Rows(sources, kind), sorted(kind.watched.reads_of(note.key), key=_what_is_read)
    shards = sources.shards
    return ObjectView(
        replica=replica_view(sources),
        row=rows.row(note),
        api_version=kind.gvk.api_version,
        generation=note.generation,
        shard=shards.shard_of(kind.gvk, note.key) if shards is not None else None,
        is_mine=sources.is_mine(kind.gvk, note.key),
        conditions=tuple(_conditions(note, last)),
        runs=rows.lines(note),
        wakes=tuple(_wakes(kind, reads[:MOST_READS])),
        more_reads=max(0, len(reads) - MOST_READS),
    )


def _conditions(note: ObjectNote, last: StoredRecord | None) -> Iterator[ConditionView]:
    """Yield the conditions, with the messages that the record has for the same ones: in these secrets are masked."""
    status = last.end["status"] if last is not None else None
    messages = {_identity(each): each.get("message") for each in conditions_of(status or {})}
    for each in note.conditions:
        found = messages.get((each.type, each.status, each.reason, each.since))
        message = found if isinstance(found, str) else ""
        yield ConditionView(each.type, each.status, each.reason, each.since, message)


def _identity(condition: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(condition.get(name) for name in ("type", "status", "reason", "lastTransitionTime"))


def _wakes(kind: Kind, reads: list[Target]) -> Iterator[WakeView]:
    yield WakeView(f"This {kind.gvk.kind}", "a change of what is not its status")
    for trigger in kind.watched.watch.triggers:
        yield WakeView(_kind(trigger.gvk), _reference(trigger))
    for gvk, ownership in sorted(kind.watched.followed_dependents, key=str):
        yield WakeView(_kind(gvk), _OWNERSHIPS[ownership])
    for target in reads:
        yield WakeView(_what_is_read(target), "read by its runs")


def _kind(gvk: GVK) -> str:
    return f"{gvk.kind} ({gvk.api_version})"


def _reference(trigger: Trigger) -> str:
    path = trigger.path.text if trigger.path is not None else ""
    ways = {
        ReferenceType.OWNER: "a trigger: one that has the object as its owner",
        ReferenceType.LABELS: f"a trigger: one with the labels in {path}",
        ReferenceType.NAME: f"a trigger: one that is named in {path}",
    }
    fields = ", ".join(each.text for each in trigger.fields)
    return ways[trigger.reference] + (f", when {fields} changes" if fields else "")


def _what_is_read(target: Target) -> str:
    if target.name:
        return f"{target.gvk.kind} {target.namespace + '/' if target.namespace else ''}{target.name}"
    where = f" in {target.namespace}" if target.namespace else ""
    which = f" with {target.selector}" if target.selector else ""
    return f"every {target.gvk.kind}{where}{which}"
