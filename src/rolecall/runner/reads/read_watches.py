"""The lists and watches of everything that runs have read, shared by all kinds of an operator.

A watch starts with the first read of something and stays for ten minutes after the last object that has read it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from rolecall.kube.references import GVK, ObjectKey
from rolecall.kube.selected_reads import Selection
from rolecall.runner.controller.reflector import ListerWatcher
from rolecall.runner.reads.kind_reads import KindReads, Subscriber
from rolecall.runner.reads.observed_state import Target
from rolecall.runner.reads.position import PositionedSource
from rolecall.runner.reads.scope import SECRET, Scope
from rolecall.runner.reads.watch_scopes import Place
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("reads")

KEEP_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 60.0

Report = Callable[[str, int, int], None]


def _report_nothing(_gvk: str, _watches: int, _subscriptions: int) -> None:
    """Report to nobody."""


SourceOf = Callable[[Selection], ListerWatcher]


@dataclass(slots=True)
class ReadWatches:
    """What is watched because runs have read it; an asynchronous context manager that ends all watches.

    ``primaries`` are the groups and kinds that the operator reconciles. ``report`` is told the numbers of watches and
    of subscriptions of a kind.
    """

    source_of: SourceOf
    clock: Clock
    primaries: frozenset[tuple[str, str]] = frozenset()
    report: Report = _report_nothing
    _kinds: dict[GVK, KindReads] = field(default_factory=dict)
    _unwatchable: set[GVK] = field(default_factory=set)
    _cleaning: asyncio.Task[None] | None = None

    @classmethod
    def of_kinds(
        cls, source_of: SourceOf, clock: Clock, kinds: Iterable[GVK], report: Report = _report_nothing
    ) -> Self:
        """Return the watches for an operator of these kinds."""
        return cls(source_of, clock, frozenset((gvk.group, gvk.kind) for gvk in kinds), report)

    async def __aenter__(self) -> Self:
        """Begin to end the watches that nobody needs any more."""
        self._cleaning = asyncio.create_task(self._clean(), name="unused watches of reads")
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all watches."""
        scopes = [scope for kind in self._kinds.values() for scope in kind.scopes.values()]
        self._kinds.clear()
        if self._cleaning is not None:
            self._cleaning.cancel()
            await asyncio.gather(self._cleaning, return_exceptions=True)
        await asyncio.gather(*(scope.stopped() for scope in scopes))

    @property
    def subscriptions(self) -> Mapping[GVK, int]:
        """How many reads of each kind are waited on, counted for each object that has read."""
        return {gvk: kind.subscriptions for gvk, kind in self._kinds.items()}

    @property
    def objects(self) -> int:
        """How many objects are kept in the stores."""
        return sum(len(scope.store) for kind in self._kinds.values() for scope in kind.scopes.values())

    def subscribe(self, target: Target, subscriber: Subscriber, *, namespaced: bool) -> int:
        """Watch what was read, and return the version from which on nothing of it is missed."""
        kind = self._kinds.get(target.gvk)
        if kind is None:
            kind = self._kinds[target.gvk] = KindReads(target.gvk, namespaced, self._new_scope, self.clock)
        position = kind.subscribe(target, subscriber)
        self._report(kind)
        return position

    def unsubscribe(self, target: Target, subscriber: Subscriber) -> None:
        """Forget who has read something."""
        kind = self._kinds.get(target.gvk)
        if kind is not None:
            kind.unsubscribe(target, subscriber)
            self._report(kind)

    def replay(self, target: Target, subscriber: Subscriber, version: int, keys: Iterable[ObjectKey] | None) -> None:
        """Tell a subscriber what is known to be newer than the version that it has seen.

        ``keys`` are those of the objects in the list that it has seen, None if they are not known.
        """
        if target.gvk in self._kinds:
            self._kinds[target.gvk].replay(target, subscriber, version, keys)

    def may_watch(self, target: Target) -> bool:
        """Return whether a target is watched, as far as is known."""
        kind = self._kinds.get(target.gvk)
        return kind is not None and kind.may_watch(target)

    def note_unwatchable(self, gvk: GVK) -> None:
        """Say once that a kind that was read does not support watches."""
        if gvk not in self._unwatchable:
            self._unwatchable.add(gvk)
            logger.warning(
                "Runs read a kind that cannot be watched; its changes will not trigger reconciles",
                gvk=str(gvk),
                hint="set a reconcilePeriod, or name the kind in the blacklist of the watch",
            )

    def _new_scope(self, place: Place, kind: KindReads) -> Scope:
        namespace, name = place
        selection = Selection(name, metadata_only=kind.gvk == SECRET)
        source = PositionedSource(self.source_of(selection))
        return Scope(kind.gvk, namespace, name, source, kind, self._is_primary)

    def _report(self, kind: KindReads) -> None:
        self.report(str(kind.gvk), len(kind.scopes), kind.subscriptions)

    def _is_primary(self, gvk: GVK) -> bool:
        return (gvk.group, gvk.kind) in self.primaries

    async def _clean(self) -> None:
        while True:
            await sleep(self.clock, _LOOK_SECONDS)
            now = self.clock.monotonic()
            for gvk, kind in list(self._kinds.items()):
                kind.note_unused(now)
                kind.stop_unused(now - KEEP_SECONDS)
                self._report(kind)
                if not kind.scopes:
                    del self._kinds[gvk]
