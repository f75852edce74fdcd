"""The sources of the dashboard: the parts of a running operator, read-only, and a note about each object.

Informers keep no objects, so the dashboard keeps a note of each, of a few hundred bytes: its conditions without their
messages, which may contain a secret that only the record of a run masks. A note is made when an informer reports a
change, so a list of ten thousand objects reads no objects.
"""

import sys
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.metadata import generation_of, is_being_deleted, status_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.manager import Manager
from rolecall.runner.controller.store import Change
from rolecall.runner.dashboard.commands import Place, host_of
from rolecall.runner.dashboard.views import Condition, State, kind_id
from rolecall.runner.election.shard_member import HeldShards
from rolecall.runner.reconcile.context import is_paused
from rolecall.runner.reconcile.status import conditions_of
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.watch_controller import WatchController

MAX_CONDITIONS: Final = 32
_MAX_LENGTH: Final = 200
_GOOD: Final = frozenset({("Successful", "True"), ("Ready", "True")})
# Each of these conditions makes an object failed.
CERTAINLY_BAD: Final = frozenset({("Failure", "True"), ("Stalled", "True")})


@dataclass(frozen=True, slots=True)
class ObjectNote:
    """The known state of an object; ``verdict`` is that of its conditions."""

    key: ObjectKey
    generation: int
    verdict: State
    conditions: tuple[Condition, ...]
    is_paused: bool
    is_deleting: bool

    @classmethod
    def of(cls, key: ObjectKey, obj: RawObject) -> "ObjectNote":
        """Return the note of an object."""
        conditions = tuple(map(condition_of, conditions_of(status_of(obj))[:MAX_CONDITIONS]))
        return cls(key, generation_of(obj), verdict_of(conditions), conditions, is_paused(obj), is_being_deleted(obj))


def condition_of(raw: dict[str, Any]) -> Condition:
    """Return a condition without its message."""
    return Condition(*(_text(raw.get(name)) for name in ("type", "status", "reason", "lastTransitionTime")))


def _text(value: object) -> str:
    return sys.intern(str(value)[:_MAX_LENGTH]) if isinstance(value, str) else ""


def verdict_of(conditions: tuple[Condition, ...]) -> State:
    """Return the state that conditions report: a failure first, then a success of a ready object, else pending."""
    found = {(each.type, each.status) for each in conditions}
    if found & CERTAINLY_BAD:
        return State.FAILED
    if found & _GOOD and ("Ready", "False") not in found:
        return State.SUCCEEDED
    return State.PENDING


@dataclass(slots=True)
class Kind:
    """A watched kind, and the notes of its objects that its selector matches, in the order of their names.

    Notes are made from now on, so its informer must not run yet.
    """

    watched: WatchController
    _notes: dict[tuple[str, str], ObjectNote] = field(default_factory=dict)
    _order: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Subscribe to changes."""
        self.watched.primaries.subscribe(self._on_change)

    @property
    def gvk(self) -> GVK:
        """The kind."""
        return self.watched.watch.gvk

    @property
    def id(self) -> str:
        """Its name in addresses."""
        return kind_id(self.gvk)

    @property
    def notes(self) -> list[ObjectNote]:
        """The notes as they are now, by namespace and name."""
        return [self._notes[each] for each in self._order]

    def note(self, key: ObjectKey) -> ObjectNote | None:
        """Return the note of an object, None if there is no such object."""
        return self._notes.get((key.namespace, key.name))

    def _on_change(self, change: Change) -> None:
        place = change.key.namespace, change.key.name
        if change.new is None or not self.watched.watch.selector.matches(change.new.labels):
            if self._notes.pop(place, None) is not None:
                del self._order[bisect_left(self._order, place)]
            return
        if place not in self._notes:
            insort(self._order, place)
        self._notes[place] = ObjectNote.of(change.key, change.obj)


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of an operator."""

    version: str
    kinds: tuple[Kind, ...]
    manager: Manager
    recorder: Recorder
    shards: HeldShards | None = None
    place: Place = field(default_factory=Place)

    @property
    def leader(self) -> str:
        """The host of the leader, this or another replica, which is its pod in a cluster; empty if it is unknown."""
        leadership = self.manager.leadership
        return self.place.host if leadership is None or leadership.is_leading else host_of(leadership.holder)

    def kind(self, ident: str) -> Kind | None:
        """Return the kind with an ID, None if it is not watched."""
        return next((kind for kind in self.kinds if kind.id == ident), None)

    def as_of(self, kind: Kind) -> float | None:
        """Return when the objects of a kind were last known to be current, None before they have been listed."""
        confirmed_at = kind.watched.primaries.confirmed_at
        return None if confirmed_at is None else self.wall_time(confirmed_at)

    def wall_time(self, monotonic: float) -> float:
        """Return a time of the queues' clock in seconds since the epoch."""
        clock = self.manager.clock
        return monotonic - clock.monotonic() + clock.now()

    def is_mine(self, gvk: GVK, key: ObjectKey) -> bool:
        """Return whether this replica reconciles an object, or would if it were leading."""
        return self.shards is None or self.shards.accepts(gvk)(key)
