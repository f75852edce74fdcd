"""Priorities: the order in which due requests are taken.

New and changed objects go before retries, and retries before periodic reconciles. Within a priority the order is first
in, first out. A lower priority gets at least one turn in ten, so that none starves.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

from rolecall.system.clock import Clock

ItemT = TypeVar("ItemT", bound=Hashable)

_MAX_PASSED_OVER = 8  # two priorities may be owed a turn at the same time, and even the second gets one in ten


class Priority(IntEnum):
    """How urgent a request is; the highest number goes first."""

    LOW = 0
    """Periodic reconciles, and objects of the initial reconcile that haven't changed."""
    MEDIUM = 1
    """Changes of other objects, and retries."""
    HIGH = 2
    """Changes of the primary itself, and the time that its role requested."""

    @property
    def label(self) -> str:
        """The label value in metrics."""
        return self.name.lower()


class FairScheduler:
    """Chooses the priority of the next turn: the highest that waits, or one that was passed over too often."""

    def __init__(self) -> None:
        self._passed_over = dict.fromkeys(Priority, 0)

    def next(self, waiting: Collection[Priority]) -> Priority:
        """Return the priority of the next turn, given those that wait. Raises ValueError if none waits."""
        owed = [priority for priority in waiting if self._passed_over[priority] >= _MAX_PASSED_OVER]
        chosen = max(owed, key=lambda priority: (self._passed_over[priority], priority)) if owed else max(waiting)
        for priority in waiting:
            self._passed_over[priority] += 1
        self._passed_over[chosen] = 0
        return chosen


class PriorityOrder(Generic[ItemT]):
    """Items in the order of their priorities, each item once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[Priority, OrderedDict[ItemT, float]] = {
            priority: OrderedDict() for priority in sorted(Priority, reverse=True)
        }
        self._scheduler = FairScheduler()

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
        return next(((priority, next(iter(line.values()))) for priority, line in self._lines.items() if line), None)

    def find(self, item: ItemT) -> tuple[Priority, float] | None:
        """Return the priority in which an item waits, and since when (monotonic); None if it doesn't wait."""
        return next(((priority, line[item]) for priority, line in self._lines.items() if item in line), None)

    def put(self, item: ItemT, priority: Priority) -> None:
        """Put an item at the end of a priority, also if it waits in another."""
        self.remove(item)
        self._lines[priority][item] = self._clock.monotonic()

    def remove(self, item: ItemT) -> None:
        """Remove an item, if it waits."""
        for line in self._lines.values():
            line.pop(item, None)

    def take(self) -> ItemT:
        """Remove and return the next item. Raises ValueError without items."""
        priority = self._scheduler.next([priority for priority, line in self._lines.items() if line])
        return self._lines[priority].popitem(last=False)[0]

    def clear(self) -> None:
        """Remove all items."""
        for line in self._lines.values():
            line.clear()
