"""One object: its conditions, its runs over time, and what wakes it."""

from collections.abc import Iterator
from typing import Any, Final

from rolecall.kube.references import GVK
from rolecall.runner.controller.triggers import ReferenceType, Trigger
from rolecall.runner.dashboard.lists import replica_view
from rolecall.runner.dashboard.object_notes import ObjectNote
from rolecall.runner.dashboard.rows import Rows
from rolecall.runner.dashboard.sources import Kind, Sources
from rolecall.runner.dashboard.views import ConditionView, ObjectView, WakeView
from rolecall.runner.proxy import Ownership
from rolecall.runner.reads.observed_state import Target
from rolecall.runner.reconcile.conditions import conditions_of
from rolecall.runner.record.reader import StoredRecord

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
    fields = ", ".join(each.text for each in trigger.on)
    return ways[trigger.reference] + (f", when {fields} changes" if fields else "")


def _what_is_read(target: Target) -> str:
    if target.name:
        return f"{target.gvk.kind} {target.namespace + '/' if target.namespace else ''}{target.name}"
    where = f" in {target.namespace}" if target.namespace else ""
    which = f" with {target.selector}" if target.selector else ""
    return f"every {target.gvk.kind}{where}{which}"
