"""Priorities: in which order requests that are due take their turns.

What somebody waits for goes first: a new or changed object before a retry, a retry before a periodic reconcile. Within
a priority the order is first in, first out. A lower priority that waits gets at least one turn in ten, so that none
starves. Nothing here knows what the items are.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

from rolecall.system.clock import Clock

ItemT = TypeVar("ItemT", bound=Hashable)

_MAX_PASSED_OVER = 8  # two priorities may be owed a turn at once, and even the second of them gets one in ten


class Priority(IntEnum):
    """How urgent a request is; the highest number goes first."""

    LOW = 0
    """Periodic reconciles, and objects of the first round that have not changed."""
    MEDIUM = 1
    """Changes of other objects, and retries."""
    HIGH = 2
    """Changes of the primary itself, and the time that its role asked for."""

    @property
    def label(self) -> str:
        """The word for it in metrics."""
        return self.name.lower()


class FairScheduler:
    """Says which priority takes the next turn: the highest that waits, or one that has been passed over too often."""

    def __init__(self) -> None:
        self._passed_over = dict.fromkeys(Priority, 0)

    def next(self, waiting: Collection[Priority]) -> Priority:
        """Return which of the priorities that wait takes the next turn. Raises ValueError if none waits."""
        owed = [priority for priority in waiting if self._passed_over[priority] >= _MAX_PASSED_OVER]
        return max(owed, key=lambda priority: (self._passed_over[priority], priority)) if owed else max(waiting)

    def took(self, taken: Priority, waiting: Collection[Priority]) -> None:
        """Take note that a priority took a turn while these were waiting."""
        for priority in waiting:
            self._passed_over[priority] += 1
        self._passed_over[taken] = 0


class PriorityOrder(Generic[ItemT]):
    """Items in the order of their priorities, each item once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[Priority, OrderedDict[ItemT, float]] = {
            priority: OrderedDict() for priority in sorted(Priority, reverse=True)
        }
        self._turns = FairScheduler()

    def __len__(self) -> int:
        """Return the number of items."""
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[ItemT]:
        """Iterate over the items, the highest priority first."""
        for line in self._lines.values():
            yield from line

    @property
    def head(self) -> tuple[Priority, float] | None:
        """The highest priority that waits, and since when its first item has waited in it; None without items."""
        for priority, line in self._lines.items():
            if line:
                return priority, next(iter(line.values()))
        return None

    def priority_of(self, item: ItemT) -> Priority | None:
        """Return the priority in which an item waits, None if it does not."""
        return next((priority for priority, line in self._lines.items() if item in line), None)

    def since(self, item: ItemT) -> float | None:
        """Return since when (monotonic) an item has waited in its priority, None if it does not wait."""
        return next((line[item] for line in self._lines.values() if item in line), None)

    def put(self, item: ItemT, priority: Priority) -> None:
        """Put an item at the end of a priority, also if it waits in another."""
        self.remove(item)
        self._lines[priority][item] = self._clock.monotonic()

    def remove(self, item: ItemT) -> None:
        """Remove an item, if it waits."""
        for line in self._lines.values():
            line.pop(item, None)

    def take(self) -> ItemT:
        """Remove the item that has the next turn, and return it. Raises ValueError without items."""
        waiting = [priority for priority, line in self._lines.items() if line]
        taken = self._turns.next(waiting)
        self._turns.took(taken, waiting)
        return self._lines[taken].popitem(last=False)[0]

    def clear(self) -> None:
        """Remove all items."""
        for line in self._lines.values():
            line.clear()
