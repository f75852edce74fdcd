"""What the page remembers of each object, because informers keep no objects: its conditions without their messages.

A note is a few hundred bytes. It is made when an informer tells of a change, so that a list of ten thousand objects
reads no objects. Messages are left out: an object's own may hold a secret that only its record masks.
"""

import sys
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.metadata import generation_of, is_being_deleted
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.controller.changes import Change
from rolecall.runner.dashboard.views import State
from rolecall.runner.reconcile.conditions import conditions_of
from rolecall.runner.reconcile.pause import is_paused

MOST_CONDITIONS: Final = 32
_LONGEST: Final = 200
_GOOD: Final = frozenset({("Successful", "True"), ("Ready", "True")})
_CERTAINLY_BAD: Final = frozenset({("Failure", "True"), ("Stalled", "True")})


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as it stands in the status."""

    type: str
    status: str
    reason: str
    since: str


@dataclass(frozen=True, slots=True)
class ObjectNote:
    """What is known of an object; ``verdict`` is that of its conditions."""

    key: ObjectKey
    generation: int
    verdict: State
    conditions: tuple[Condition, ...]
    is_paused: bool
    is_deleting: bool

    @classmethod
    def of(cls, key: ObjectKey, obj: RawObject) -> "ObjectNote":
        """Return the note of an object."""
        status = obj.get("status")
        found = conditions_of(status if isinstance(status, dict) else {})[:MOST_CONDITIONS]
        conditions = tuple(_condition(each) for each in found)
        return cls(key, generation_of(obj), verdict_of(conditions), conditions, is_paused(obj), is_being_deleted(obj))


def _condition(raw: dict[str, Any]) -> Condition:
    return Condition(*(_text(raw.get(name)) for name in ("type", "status", "reason", "lastTransitionTime")))


def _text(value: object) -> str:
    return sys.intern(str(value)[:_LONGEST]) if isinstance(value, str) else ""


def verdict_of(conditions: tuple[Condition, ...]) -> State:
    """Return what conditions say together: a failure first, then a success, else nothing yet."""
    found = {(each.type, each.status) for each in conditions}
    if found & _CERTAINLY_BAD:
        return State.FAILED
    if found & _GOOD:
        return State.SUCCEEDED
    return State.PENDING


@dataclass(slots=True)
class KindNotes:
    """The notes of the objects of one kind that its selector matches, in the order of their names."""

    selector: LabelSelector
    _notes: dict[tuple[str, str], ObjectNote] = field(default_factory=dict)
    _order: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._order)

    def __iter__(self) -> Iterator[ObjectNote]:
        """Iterate over the notes as they are now, by namespace and name."""
        notes = self._notes
        return iter([notes[each] for each in self._order])

    def get(self, key: ObjectKey) -> ObjectNote | None:
        """Return the note of an object, None if there is no such object."""
        return self._notes.get((key.namespace, key.name))

    def on_change(self, change: Change) -> None:
        """Take note of a change."""
        place = change.key.namespace, change.key.name
        if change.new is None or not self.selector.matches(change.new.labels):
            self._remove(place)
            return
        if place not in self._notes:
            insort(self._order, place)
        self._notes[place] = ObjectNote.of(change.key, change.obj)

    def _remove(self, place: tuple[str, str]) -> None:
        if self._notes.pop(place, None) is not None:
            del self._order[bisect_left(self._order, place)]
