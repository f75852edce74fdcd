"""Compares the writes of a recorded run with those that the role does today.

Writes are equal if method, target and body are, apart from what every run gets anew (``equality``). They are compared
in their order; one that has only moved is told as such.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from rolecall.workbench.replay.equality import Equality
from rolecall.workbench.replay.results import Change, Difference
from rolecall.workbench.replay.writes import RunWrites, Write


@dataclass(slots=True)
class Compared:
    """What differs, and how many writes of the record came after everything that the other run did."""

    equality: Equality
    differences: list[Difference] = field(default_factory=list)
    not_reached: int = 0
    notes: list[str] = field(default_factory=list)


def compare(record: RunWrites, run: RunWrites, *, has_ended_early: bool) -> Compared:
    """Compare two runs; with ``has_ended_early`` what the record has beyond the end of the other is only counted."""
    return _Comparison(record, run).compared(has_ended_early=has_ended_early)


class _Comparison:
    def __init__(self, record: RunWrites, run: RunWrites) -> None:
        self._equality = Equality(record, run)
        self._record, self._run = record.writes, run.writes

    def compared(self, *, has_ended_early: bool) -> Compared:
        found = Compared(self._equality)
        before = [self._key(each, is_recorded=True) for each in self._record]
        after = [self._key(each, is_recorded=False) for each in self._run]
        missing: list[Write] = []
        additional: list[Write] = []
        for tag, *places in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            ours, theirs = self._record[places[0] : places[1]], self._run[places[2] : places[3]]
            if tag == "equal":
                for pair in zip(ours, theirs, strict=True):
                    found.differences += self._pair(*pair)
                    found.notes += _other_answer(*pair)
                continue
            if has_ended_early and places[1] == len(before):
                found.not_reached = len(ours)
                ours = ()
            missing += ours
            additional += theirs
        found.differences += self._unpaired(missing, additional)
        return found

    def _key(self, write: Write, *, is_recorded: bool) -> tuple[str, str]:
        """Return by what writes of the two runs are brought together: the method, and what it is for."""
        name = write.body.get("metadata") if write.method == "POST" and isinstance(write.body, dict) else None
        name = name.get("name") or name.get("generateName") if isinstance(name, dict) else None
        return write.method, self._equality.normal(f"{write.path} {name or ''}", is_recorded=is_recorded)

    def _pair(self, before: Write, after: Write) -> Iterator[Difference]:
        one = _shown(before)
        two = self._equality.unified(one, _shown(after), is_hidden=before.is_hidden)
        if before.is_secret:
            two = self._equality.with_hidden_values(one, two)
        if one != two:
            yield _difference(Change.CHANGED, before, after, one, two)

    def _unpaired(self, missing: list[Write], additional: list[Write]) -> Iterator[Difference]:
        left = list(additional)
        for before in missing:
            moved = next((each for each in left if self._are_equal(before, each)), None)
            if moved is None:
                yield _difference(Change.MISSING, before, None, _shown(before), None)
            else:
                left.remove(moved)
                yield _difference(Change.MOVED, before, moved, _shown(before), _shown(before))
        for after in left:
            yield _difference(Change.ADDITIONAL, None, after, None, _shown(after))

    def _are_equal(self, before: Write, after: Write) -> bool:
        if self._key(before, is_recorded=True) != self._key(after, is_recorded=False):
            return False
        return not list(self._pair(before, after))


def _difference(change: Change, before: Write | None, after: Write | None, one: Any, two: Any) -> Difference:
    write = after or before
    assert write is not None  # noqa: S101 - one of them is given
    follows_secret = any(each is not None and each.follows_secret for each in (before, after))
    return Difference(change, write.task, write.method, (before or write).target, one, two, follows_secret)


def _shown(write: Write) -> dict[str, Any]:
    """Return what of a write is compared."""
    query: dict[str, list[str]] = {}
    for name, value in write.query:
        query.setdefault(name, []).append(value)
    parts = {"query": query, "contentType": write.content_type, "body": write.body}
    return {name: value for name, value in parts.items() if value not in ("", None, {})}


def _other_answer(before: Write, after: Write) -> Iterator[str]:
    """Say that a write was refused in the record or today, but not in both."""
    if before.is_accepted == after.is_accepted:
        return
    then, now = ("refused" if not each.is_accepted else "accepted" for each in (before, after))
    yield (
        f"{before.method} {before.target} was {then} with {before.status} in the record, and is {now} with"
        f" {after.status} in the shadow"
    )
