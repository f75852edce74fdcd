"""The kinds, and the objects that a query asks for, a page at a time.

All objects are counted for every list, so that is done in small steps between which the event loop does other work,
once a second at most for the same query: however many look, and however often.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from rolecall.runner.dashboard.object_notes import ObjectNote
from rolecall.runner.dashboard.rows import Rows
from rolecall.runner.dashboard.sources import Kind, Sources
from rolecall.runner.dashboard.views import KindView, ListView, Query, ReplicaView, State
from rolecall.runner.election.held_shards import HeldShards

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
