"""The list of objects and one object, as views: states, runs, what objects wait for, and what triggers them.

Every list counts all objects. So it is made in small steps, between which the event loop does other work.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import itemgetter
from typing import Final

from rolecall.kube.failures import Failure, FailureGroup, common_message, groups_of, seconds_of
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.watches import ReferenceType
from rolecall.runner.dashboard.commands import Place, commands_for, commands_for_run, port_forward
from rolecall.runner.dashboard.sources import CERTAINLY_BAD, Kind, ObjectNote, Sources, condition_of
from rolecall.runner.dashboard.views import (
    Condition,
    DeletionView,
    GroupView,
    KindView,
    ListView,
    ObjectView,
    Query,
    ReplicaView,
    RowView,
    State,
    TriggerView,
    WaitView,
    kind_id,
)
from rolecall.runner.proxy.ownership import Ownership
from rolecall.runner.reads.observed_state import Target
from rolecall.runner.reconcile.status import conditions_of
from rolecall.runner.record.history import RunLine
from rolecall.runner.record.reader import StoredRecord

PAGE_SIZE: Final = 100
MAX_READS: Final = 50
# The number of namespaces that the page lists; others can be entered.
MAX_NAMESPACES: Final = 500
MAX_GROUPS: Final = 5
MAX_EXAMPLES: Final = 3
"""The number of objects that a group of equal failures names."""

_STEP: Final = 200
"""The number of objects that are counted before the event loop does other work."""

_STEP_FAILURES: Final = 20
"""The same for failures, each of which takes up to 0.1 ms."""

_Found = tuple[Kind, ObjectNote]


@dataclass(slots=True)
class _Matching:
    """The objects that match a query except for its state and its group of failures."""

    query: Query
    states: Counter[State] = field(default_factory=Counter)
    totals: Counter[GVK] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    found: list[tuple[float, _Found]] = field(default_factory=list)
    """The objects of the list, each with its place in the order of the query; objects of one place keep their order."""

    def add(self, rows: "Rows", note: ObjectNote, state: State) -> None:
        """Add an object."""
        query, is_failing = self.query, rows.is_failing(note)
        self.states[state] += 1
        self.totals[rows.kind.gvk] += 1
        group = ""
        if is_failing:
            failure = rows.failure(note)
            self.failures.append(failure)
            group = group_id(failure.gvk, common_message(failure.message, failure.key))
        if query.state not in ("", state) or query.failure not in ("", group):
            return
        line = rows.last_line(note) if query.sort == "recent" else None
        place = -line.started if line is not None else 0.0 if query.sort != "failing" else float(not is_failing)
        self.found.append((place, (rows.kind, note)))

    def groups(self, now: float) -> list[GroupView]:
        """Return the groups of several failing objects."""
        groups = groups_of(self.failures, self.totals)
        return [_group_view(each, now) for each in groups if len(each.keys) > 1]


async def list_view(sources: Sources, query: Query) -> ListView:
    """Return a list."""
    kinds, matching, namespaces = [], _Matching(query), set[str]()
    for kind in sources.kinds:
        counts, rows = Counter[State](), Rows(sources, kind)
        is_selected = query.kind in ("", kind.id)
        for number, note in enumerate(kind.notes):
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            state = rows.state_of(note)
            counts[state] += 1
            if not is_selected:
                continue
            namespaces.add(note.key.namespace)
            if query.namespace in ("", note.key.namespace) and (not query.text or query.text in str(note.key)):
                matching.add(rows, note, state)
                if len(matching.failures) % _STEP_FAILURES == _STEP_FAILURES - 1:
                    await asyncio.sleep(0)
        kinds.append(kind_view(sources, kind, counts))
    found = [each for _, each in sorted(matching.found, key=itemgetter(0))]
    pages = max(1, -(-len(found) // PAGE_SIZE))
    start = (min(query.page, pages) - 1) * PAGE_SIZE
    groups = matching.groups(sources.manager.clock.now())
    return ListView(
        replica=replica_view(sources),
        kinds=tuple(kinds),
        states={str(state): matching.states[state] for state in State},
        namespaces=tuple(sorted(namespaces - {""}))[:MAX_NAMESPACES],
        query=query,
        groups=tuple(groups[:MAX_GROUPS]),
        more_groups=max(0, len(groups) - MAX_GROUPS),
        rows=tuple(Rows(sources, kind).row(note) for kind, note in found[start : start + PAGE_SIZE]),
        found=len(found),
        pages=pages,
    )


def group_id(gvk: GVK, common: str) -> str:
    """Return the ID of a group of equal failures in addresses; it stays the same while objects join and leave it."""
    return hashlib.sha256(f"{gvk} {common}".encode()).hexdigest()[:12]


def _group_view(group: FailureGroup, now: float) -> GroupView:
    return GroupView(
        id=group_id(group.gvk, group.common),
        kind=kind_id(group.gvk),
        heading=group.heading(now),
        message=group.message,
        since=group.since,
        count=len(group.keys),
        total=group.total,
        first=group.keys[:MAX_EXAMPLES],
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes the rows of the objects of one kind."""

    sources: Sources
    kind: Kind

    def state_of(self, note: ObjectNote) -> State:
        """Return the state of an object: what happens to it now, else the verdict of its conditions or last run."""
        queue = self.kind.watched.queue
        if queue.processing and queue.is_processing(note.key):  # usually none is, and hashing a key takes longer
            return State.RUNNING
        if note.is_deleting or note.is_paused:
            return State.DELETING if note.is_deleting else State.PAUSED
        if queue.failures(note.key):
            return State.FAILED  # also if the conditions couldn't be written
        if self.kind.watched.watch.manage_status:
            return note.verdict
        # The role manages the status, so the conditions may mean anything.
        line = self.last_line(note)
        if line is None or line.outcome == "interrupted":
            return State.PENDING
        return State.SUCCEEDED if line.outcome == "succeeded" else State.FAILED

    def is_failing(self, note: ObjectNote) -> bool:
        """Return whether the last run of an object failed, also while it runs again or is paused or deleted."""
        if self.kind.watched.queue.failures(note.key):
            return True
        if self.kind.watched.watch.manage_status:
            return note.verdict is State.FAILED
        line = self.last_line(note)
        return line is not None and line.outcome not in ("succeeded", "interrupted")

    def failure(self, note: ObjectNote) -> Failure:
        """Return the failure of a failing object; it exists since its oldest condition, or since its first run."""
        bad = (each.since for each in note.conditions if (each.type, each.status) in CERTAINLY_BAD)
        times = [time for each in bad if (time := seconds_of(each)) is not None]
        if not times:
            lines = self.sources.recorder.history.of(self.kind.gvk, note.key)
            times = [line.started for line in takewhile(lambda line: line.outcome != "succeeded", lines)]
        return Failure(self.kind.gvk, note.key, self.message(note), min(times, default=None))

    def message(self, note: ObjectNote) -> str:
        """Return why a failing object fails: the message of its last run, else the reason of a condition."""
        line = self.last_line(note)
        bad = (f"{each.type}: {each.reason}" for each in note.conditions if (each.type, each.status) in CERTAINLY_BAD)
        return (line and line.message) or next(bad, "")

    def row(self, note: ObjectNote) -> RowView:
        """Return the row of an object."""
        line, is_failing = self.last_line(note), self.is_failing(note)
        return RowView(
            kind=self.kind.id,
            kind_name=self.kind.gvk.kind,
            namespace=note.key.namespace,
            name=note.key.name,
            state=self.state_of(note),
            message=self.message(note) if is_failing else (line and line.message) or "",
            failing_since=self.failure(note).since if is_failing else None,
            last_run=None if line is None else replace(line, has_record=line.id in self._recorded(note)),
            waits_for=self._wait(note),
        )

    def lines(self, note: ObjectNote) -> tuple[RunLine, ...]:
        """Return the runs of an object, the newest first."""
        recorded = self._recorded(note)
        lines = self.sources.recorder.history.of(self.kind.gvk, note.key)
        return tuple(replace(line, has_record=line.id in recorded) for line in lines)

    def last_line(self, note: ObjectNote) -> RunLine | None:
        """Return the line of an object's last run, None if it had none since the operator started."""
        return self.sources.recorder.history.last(self.kind.gvk, note.key)

    def _recorded(self, note: ObjectNote) -> frozenset[str]:
        """Return the IDs of the runs whose records are in memory."""
        return frozenset(record.ident for record in self.sources.recorder.memory.runs(self.kind.gvk, note.key))

    def _wait(self, note: ObjectNote) -> WaitView:
        queue = self.kind.watched.queue
        if queue.is_processing(note.key):
            return WaitView("its run")
        if not self.sources.is_mine(self.kind.gvk, note.key):
            return WaitView("the replica that has its shard")
        request = queue.look_up(note.key)
        if request.priority is not None:
            return WaitView(f"{self._turn()}, {request.priority.label} priority", because=request.causes)
        if note.is_paused or request.due is None:
            return WaitView("the end of its pause" if note.is_paused else "a change")
        until = self.sources.wall_time(request.due)
        if request.is_backing_off:
            times = "failure" if request.failures == 1 else "failures"
            return WaitView(f"its backoff after {request.failures} {times}", until, request.causes)
        return WaitView("its next run", until, request.causes)

    def _turn(self) -> str:
        """Return the condition for which a request in the queue waits."""
        dispatcher, controller = self.sources.manager.dispatcher, self.kind.watched.controller
        if not self.sources.manager.is_leading:
            return "this replica to lead"
        if not dispatcher.has_started:
            return "the informers"
        if not controller.has_free_worker:
            return f"one of the {controller.workers} workers of its kind"
        if not dispatcher.has_free_run:
            return f"one of {dispatcher.limit} concurrent runs"
        return "its turn"


def kind_view(sources: Sources, kind: Kind, counts: Counter[State]) -> KindView:
    """Return a kind with the states of its objects."""
    controller = kind.watched.controller
    return KindView(
        id=kind.id,
        kind=kind.gvk.kind,
        api_version=kind.gvk.api_version,
        content=kind.watched.watch.content.path.name,
        objects=counts.total(),
        states={state: counts[state] for state in State},
        queued=len(controller.queue),
        waiting=controller.queue.waiting,
        running=controller.queue.processing,
        workers=controller.workers,
        trouble=kind.watched.primaries.trouble,
        as_of=sources.as_of(kind),
    )


def replica_view(sources: Sources) -> ReplicaView:
    """Return the operator itself."""
    manager, dispatcher, shards = sources.manager, sources.manager.dispatcher, sources.shards
    leader, command = "", ""
    if not manager.has_settled:
        text = "The informers are still listing the objects."
    elif manager.is_leading:
        text = "This replica runs the roles."
    elif shards is not None:
        text = "This replica has not joined the others yet."
    else:
        leader = sources.leader
        command = port_forward(sources.place, leader)
        text = _follower_text(sources.place, leader)
    if shards is not None:
        held = ", ".join(map(str, sorted(shards.held))) or "none"
        text += f" Of {shards.count} shards it holds {held}. Other replicas reconcile the objects of the others."
    return ReplicaView(
        version=sources.version,
        text=text,
        leader=leader,
        command=command,
        is_working=dispatcher.has_started and manager.is_leading,
        runs=len(dispatcher.running),
        most_runs=dispatcher.limit,
        shards=None if shards is None else tuple(sorted(shards.held)),
        shard_count=shards.count if shards is not None else 0,
    )


def _follower_text(place: Place, leader: str) -> str:
    text = "This replica is a follower: it shows no runs and no messages of failures. "
    if not leader:
        return text + "No replica leads at the moment."
    if not place.namespace:
        return text + f"The leader is the operator on {leader}."
    return (
        text + f"The leader is the pod {leader}. To see its dashboard, stop this port forwarding, and forward its port:"
    )


def object_view(sources: Sources, kind: Kind, note: ObjectNote, last: StoredRecord | None) -> ObjectView:
    """Return an object; ``last`` is the record of its last run, if there is one."""
    rows, shards = Rows(sources, kind), sources.shards
    row, lines = rows.row(note), rows.lines(note)
    reads = sorted(map(_read_name, kind.watched.reads.sets.targets(note.key)))
    return ObjectView(
        replica=replica_view(sources),
        row=row,
        failures=tuple(last.end["failures"]) if last is not None and row.failing_since is not None else (),
        commands=(
            *commands_for(kind.gvk, note.key, is_paused=note.is_paused),
            *commands_for_run(sources.place, sources.leader, note.key, _run_to_explain(lines)),
        ),
        trouble=kind.watched.primaries.trouble,
        as_of=sources.as_of(kind),
        api_version=kind.gvk.api_version,
        generation=note.generation,
        shard=shards.shard_of(kind.gvk, note.key) if shards is not None else None,
        is_mine=sources.is_mine(kind.gvk, note.key),
        conditions=tuple(_conditions(note, last)),
        runs=lines,
        triggers=tuple(_triggers(kind, reads[:MAX_READS])),
        more_reads=max(0, len(reads) - MAX_READS),
        deletions=tuple(_deletions(sources, kind, note.key)),
    )


def _deletions(sources: Sources, kind: Kind, key: ObjectKey) -> Iterator[DeletionView]:
    for record in reversed(sources.recorder.memory.runs(kind.gvk, key)):
        if deleted := record.ending.pruning.texts.get("deleted"):
            yield DeletionView(record.ident, record.started.timestamp(), len(deleted))


def _run_to_explain(lines: tuple[RunLine, ...]) -> str:
    """Return the ID of the last run that failed, else that of the last run."""
    failed = (line.id for line in lines if line.outcome == "failed")
    return next(failed, lines[0].id if lines else "")


def _conditions(note: ObjectNote, last: StoredRecord | None) -> Iterator[Condition]:
    """Yield the conditions, with the messages of the same ones in the record, in which secrets are masked."""
    status = last.end["status"] if last is not None else None
    messages = {condition_of(each): each.get("message") for each in conditions_of(status or {})}
    for each in note.conditions:
        message = messages.get(each)
        yield replace(each, message=message if isinstance(message, str) else "")


def _triggers(kind: Kind, reads: list[str]) -> Iterator[TriggerView]:
    def shown(gvk: GVK) -> str:
        return f"{gvk.kind} ({gvk.api_version})"

    yield TriggerView(f"This {kind.gvk.kind}", "a change outside its status")
    for trigger in kind.watched.watch.triggers:
        path = trigger.path.text if trigger.path is not None else ""
        how = {
            ReferenceType.OWNER: "a trigger: objects whose owner is this object",
            ReferenceType.LABELS: f"a trigger: objects with the labels in {path}",
            ReferenceType.NAME: f"a trigger: the object named in {path}",
        }[trigger.reference]
        fields = ", ".join(each.text for each in trigger.fields)
        yield TriggerView(shown(trigger.gvk), how + (f", when {fields} changes" if fields else ""))
    for gvk, ownership in sorted(kind.watched.dependents, key=str):
        where = "as their owner" if ownership is Ownership.OWNER_REFERENCE else "in their annotations"
        yield TriggerView(shown(gvk), f"created by runs, with this object {where}")
    for name in reads:
        yield TriggerView(name, "read by its runs")


def _read_name(target: Target) -> str:
    if target.name:
        return f"{target.gvk.kind} {target.namespace + '/' if target.namespace else ''}{target.name}"
    where = f" in {target.namespace}" if target.namespace else ""
    which = f" with {target.selector}" if target.selector else ""
    return f"every {target.gvk.kind}{where}{which}"
