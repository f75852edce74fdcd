"""The lists and watches of everything that runs have read, shared by all kinds of an operator.

A watch starts with the first read of something and stays for ten minutes after the last object that has read it.

What runs have read of one kind: who must hear of which change, and which lists and watches that takes.

An object that was read by its name is watched by its name, so that a role with ``resourceNames`` is permission enough.
From ``MAX_NAMES`` names on it is its namespace that is watched, and from ``MAX_SCOPES`` watches on the whole kind,
if that is permitted. Watches only widen; a narrow one ends when a wide one has listed.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

from rolecall.kube.client import Selection
from rolecall.kube.references import GVK, ObjectKey
from rolecall.kube.selectors import LabelSelector, label_selector
from rolecall.runner.controller.reflector import ListerWatcher
from rolecall.runner.reads.observed_state import (
    EVERYWHERE,
    Place,
    PositionedSource,
    ReadChange,
    Target,
    is_within,
    key_hash,
    key_of,
    lists_key,
    namespace_of,
    place_of,
)
from rolecall.runner.reads.scope import SECRET, Delivery, Scope
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("reads")

MAX_NAMES: Final = 50
MAX_SCOPES: Final = 100


class Subscriber(Protocol):
    """Hears of the changes of what it has subscribed to; must return at once."""

    @property
    def tokens(self) -> frozenset[bytes]:
        """The tokens of the primary: changes of objects that name it as their owner are not for it."""

    def notify(self, target: Target, change: ReadChange) -> None:
        """Take a change."""


@dataclass(slots=True, eq=False)
class KindReads:
    """The subscriptions and the scopes of one kind; ``new_scope`` makes a scope for a place."""

    gvk: GVK
    namespaced: bool
    new_scope: Callable[[Place, "KindReads"], Scope]
    clock: Clock
    subscriptions: int = 0
    """How many reads are waited on, counted for each object that has read."""
    scopes: dict[Place, Scope] = field(default_factory=dict)
    _subscribers: dict[Target, dict[int, Subscriber]] = field(default_factory=dict)
    _by_name: dict[bytes, Target] = field(default_factory=dict)
    _lists: dict[bytes, dict[Target, LabelSelector | None]] = field(default_factory=dict)
    _expected: dict[Scope, set[ObjectKey]] = field(default_factory=dict)
    """The objects in lists that runs have read before a scope has listed."""
    _has_complained: bool = False

    def subscribe(self, target: Target, subscriber: Subscriber) -> int:
        """Watch what was read, and return the version from which on nothing of it is missed."""
        if target not in self._subscribers:
            self._add(target)
        subscribers = self._subscribers.setdefault(target, {})
        self.subscriptions += id(subscriber) not in subscribers
        subscribers[id(subscriber)] = subscriber
        scopes = self._usable_scopes_of(target)
        for scope in scopes:
            scope.unused_since = None
            scope.ask_labels(self._label_keys(target), self.clock)
        return max(scope.position for scope in scopes)

    def unsubscribe(self, target: Target, subscriber: Subscriber) -> None:
        """Forget who has read something; the watches on it stay for a while."""
        subscribers = self._subscribers.get(target, {})
        self.subscriptions -= subscribers.pop(id(subscriber), None) is not None
        if subscribers or target not in self._subscribers:
            return
        del self._subscribers[target]
        if target.name:
            self._by_name.pop(key_hash(key_of(target)), None)
        else:
            lists = self._lists[lists_key(target)]
            del lists[target]
            if not lists:
                del self._lists[lists_key(target)]

    def may_watch(self, target: Target) -> bool:
        """Return whether there is a watch for a target that was not refused."""
        return any(not scope.reason for scope in self._scopes_of(target))

    def replay(self, target: Target, subscriber: Subscriber, version: int, keys: Iterable[ObjectKey] | None) -> None:
        """Tell a subscriber what is known to be newer than the version that it has seen.

        ``keys`` are those of the objects in the list that it has seen, None if they are not known.
        """
        for scope in list(self._scopes_of(target)):
            if keys and not scope.is_synced:
                self._expected.setdefault(scope, set()).update(keys)
            for delivery in self._replayed(scope, target, version, keys):
                if not delivery.owners & subscriber.tokens:
                    subscriber.notify(target, delivery.change)

    def _replayed(
        self, scope: Scope, target: Target, version: int, keys: Iterable[ObjectKey] | None
    ) -> Iterator[Delivery]:
        if target.name:
            yield from scope.replayed(key_of(target))
            return
        place = lists_key(target)
        for delivery in scope.replayed_after(version, keys):
            hashed = delivery.change.key_hash
            if hashed.startswith(place) or not hashed:
                yield delivery

    def deliver(self, delivery: Delivery) -> None:
        """Tell everybody whom a change concerns."""
        for target in self._concerned(delivery):
            for subscriber in tuple(self._subscribers.get(target, {}).values()):
                if not delivery.owners & subscriber.tokens:
                    subscriber.notify(target, delivery.change)

    def expected_in(self, scope: Scope) -> Mapping[bytes, str]:
        """Return the objects that a list of a scope has, unless they are gone: the hashes of their keys, and names.

        These are what runs have read by name, or in a list before the scope had one, and what narrower scopes know.
        """
        keys = {key for target in self._by_name.values() if scope.covers(key := key_of(target))}
        keys |= self._expected.pop(scope, set())
        narrower = [] if scope.is_synced else self._within(scope)
        known = {hashed: "" for _, other in narrower for hashed in other.store.hashes()}
        return known | {key_hash(key): str(key) for key in keys}

    def on_synced(self, scope: Scope) -> None:
        """End the narrower watches that a new one makes superfluous."""
        for place, other in self._within(scope):
            self._stop(place, other)

    def on_refused(self, scope: Scope, reason: str) -> None:
        """Watch more narrowly what may not be watched as a whole; say it once if there is nothing narrower."""
        for target in list(self._subscribers):
            if scope in self._scopes_of(target):
                self._usable_scopes_of(target)
        needs_all = any(place_of(target, namespaced=self.namespaced) == scope.place for target in self._subscribers)
        if needs_all and not self._has_complained:
            self._has_complained = True
            where = scope.namespace or "all"
            logger.warning(
                "Cannot watch what runs have read; its changes will not trigger reconciles",
                gvk=str(self.gvk),
                watched_namespace=where,
                reason=reason,
                hint="grant list and watch on it, or name the kind in the blacklist of the watch",
            )

    def note_unused(self, now: float) -> None:
        """Take note of the scopes in which nothing is subscribed to any more."""
        places = {place_of(target, namespaced=self.namespaced) for target in self._subscribers}
        for place, scope in self.scopes.items():
            if any(is_within(each, place) for each in places):
                scope.unused_since = None
            elif scope.unused_since is None:
                scope.unused_since = now

    def stop_unused(self, before: float) -> None:
        """Stop the scopes that have been unused since before a time."""
        for place, scope in list(self.scopes.items()):
            if scope.unused_since is not None and scope.unused_since <= before:
                self._stop(place, scope)

    def _stop(self, place: Place, scope: Scope) -> None:
        scope.stop()
        self._expected.pop(scope, None)
        del self.scopes[place]

    def _within(self, scope: Scope) -> list[tuple[Place, Scope]]:
        """Return the narrower scopes, which a scope makes superfluous."""
        place = scope.place
        return [(each, other) for each, other in self.scopes.items() if other is not scope and is_within(each, place)]

    def _add(self, target: Target) -> None:
        if target.name:
            self._by_name[key_hash(key_of(target))] = target
        else:
            self._lists.setdefault(lists_key(target), {})[target] = _compiled(target.selector)

    def _concerned(self, delivery: Delivery) -> Iterator[Target]:
        hashed = delivery.change.key_hash
        named = self._by_name.get(hashed)
        if named is not None:
            yield named
        for place in (namespace_of(hashed), b""):
            for target, selector in list(self._lists.get(place, {}).items()):
                if selector is None or any(each is None or selector.matches(each) for each in delivery.labels):
                    yield target

    def _scopes_of(self, target: Target) -> Iterator[Scope]:
        """Yield the scopes that show all of a target."""
        place = place_of(target, namespaced=self.namespaced)
        candidates: list[Place] = [EVERYWHERE, (place[0], ""), place]
        for each in dict.fromkeys(candidates):
            if each in self.scopes and is_within(place, each):
                yield self.scopes[each]

    def _usable_scopes_of(self, target: Target) -> list[Scope]:
        """Return the scopes that show all of a target; start one if there is none that may be watched."""
        scopes = [*self._scopes_of(target)]
        if not scopes:
            return [self._widened(target)]
        if not all(scope.reason for scope in scopes):
            return scopes
        refused = {scope.place for scope in scopes}
        narrowest = place_of(target, namespaced=self.namespaced)
        place = next((each for each in (self._place_by_count(target), narrowest) if each not in refused), None)
        return scopes if place is None else [*scopes, self._start(place, target)]

    def _widened(self, target: Target) -> Scope:
        """Start the watch for a target that none shows yet."""
        place = EVERYWHERE if len(self.scopes) >= MAX_SCOPES else self._place_by_count(target)
        return self._start(place, target)

    def _place_by_count(self, target: Target) -> Place:
        """Return the narrowest place for a target, or its namespace if many names are watched already."""
        namespace, name = place_of(target, namespaced=self.namespaced)
        has_many = sum(1 for _, each in self.scopes if each) >= MAX_NAMES
        return namespace, "" if has_many else name

    def _start(self, place: Place, target: Target) -> Scope:
        scope = self.scopes.get(place)
        if scope is None:
            scope = self.scopes[place] = self.new_scope(place, self)
            scope.label_keys = self._all_label_keys() | self._label_keys(target)
            scope.start(self.clock)
            logger.debug(
                "Watching what runs read", gvk=str(self.gvk), watched_namespace=place[0] or "all", name=place[1]
            )
        return scope

    def _label_keys(self, target: Target) -> frozenset[str]:
        selector = None if target.name else _compiled(target.selector)
        return frozenset(each.key for each in selector.requirements) if selector else frozenset()

    def _all_label_keys(self) -> frozenset[str]:
        return frozenset(key for lists in self._lists.values() for target in lists for key in self._label_keys(target))


def _compiled(selector: str) -> LabelSelector | None:
    """Return a label selector, None for one that cannot be read here, which then matches everything."""
    if not selector:
        return None
    try:
        return label_selector(selector)
    except ValueError:
        return None


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
