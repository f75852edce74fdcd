"""The lists and watches of everything that runs have read, shared by all kinds of an operator.

An object that was read by its name is watched by its name, so that a role with ``resourceNames`` is permission enough.
From ``MAX_NAMES`` names on, its namespace is watched, and from ``MAX_SCOPES`` watches on the whole kind, if that is
permitted. Watches only widen; a narrow one ends when a wide one has listed.

A watch starts with the first read of its objects and stays for ten minutes after the last object that has read them.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Never

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey
from rolecall.kube.selectors import LabelSelector, label_selector
from rolecall.runner.reads.observed_state import (
    WHOLE_KIND,
    ReadChange,
    Scope,
    ScopeKey,
    Target,
    key_hash,
    namespace_of,
)
from rolecall.system.blocking_work import running_in_background
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

if TYPE_CHECKING:  # they subscribe here
    from rolecall.runner.reads.read_sets import ObjectReads

logger = get_logger("reads")

MAX_NAMES: Final = 50
MAX_SCOPES: Final = 100
_KEEP_SECONDS: Final = 600.0
_CLEAN_SECONDS: Final = 60.0


@dataclass(slots=True, eq=False)
class KindReads:
    """The subscriptions and the scopes of one kind."""

    gvk: GVK
    namespaced: bool
    client: Client
    primaries: frozenset[tuple[str, str]]
    clock: Clock
    scopes: dict[ScopeKey, Scope] = field(default_factory=dict)
    _subscribers: "dict[Target, dict[ObjectReads, None]]" = field(default_factory=dict)
    _by_name: dict[bytes, Target] = field(default_factory=dict)
    _lists: dict[bytes, dict[Target, LabelSelector | None]] = field(default_factory=lambda: defaultdict(dict))
    _expected: dict[Scope, set[ObjectKey]] = field(default_factory=dict)
    """The objects in lists that runs have read before a scope has listed."""
    _has_warned: bool = False

    def count_subscriptions(self) -> int:
        """Count the subscriptions to reads, for each object that has read; safe in any thread."""
        return sum(map(len, list(self._subscribers.values())))

    def subscribe(self, target: Target, subscriber: "ObjectReads") -> int:
        """Watch a target, and return the version after which no change is missed."""
        if target not in self._subscribers:
            if target.name:
                self._by_name[key_hash(target.key)] = target
            else:
                self._lists[target.list_prefix][target] = _compiled(target.selector)
        self._subscribers.setdefault(target, {})[subscriber] = None
        scopes = self._usable_scopes_of(target)
        for scope in scopes:
            scope.unused_since = None
            scope.keep_labels(frozenset() if target.name else _label_keys(self._lists[target.list_prefix][target]))
        return max(scope.position for scope in scopes)

    def unsubscribe(self, target: Target, subscriber: "ObjectReads") -> None:
        """Remove a subscription, if there is one; its watches stay for a while."""
        subscribers = self._subscribers.get(target, {})
        subscribers.pop(subscriber, None)
        if subscribers or target not in self._subscribers:
            return
        del self._subscribers[target]
        if target.name:
            del self._by_name[key_hash(target.key)]
        else:
            del self._lists[target.list_prefix][target]

    def may_watch(self, target: Target) -> bool:
        """Return whether there is a permitted watch for a target."""
        return any(not scope.reason for scope in self._scopes_of(target))

    def replay(self, target: Target, subscriber: "ObjectReads", version: int, keys: Iterable[ObjectKey] | None) -> None:
        """Notify a subscriber of everything known to be newer than the version that it has seen.

        ``keys`` are those of the objects in the list that it has seen, None if they are unknown.
        """
        for scope in list(self._scopes_of(target)):
            if keys and not scope.is_synced:
                self._expected.setdefault(scope, set()).update(keys)
            for change in scope.replayed(target.key) if target.name else scope.replayed_after(version, keys):
                hashed = change.key_hash
                is_concerned = target.name or not hashed or hashed.startswith(target.list_prefix)
                if is_concerned and not change.owners & subscriber.tokens:
                    subscriber.notify(target, change)

    def deliver(self, change: ReadChange) -> None:
        """Notify the subscribers that a change concerns."""
        hashed = change.key_hash
        targets = [self._by_name[hashed]] if hashed in self._by_name else []
        for prefix in (namespace_of(hashed), b""):
            for target, selector in self._lists.get(prefix, {}).items():
                if selector is None or any(each is None or selector.matches(each) for each in change.labels):
                    targets.append(target)
        for target in targets:
            for subscriber in tuple(self._subscribers.get(target, ())):
                if not change.owners & subscriber.tokens:
                    subscriber.notify(target, change)

    def expected_in(self, scope: Scope) -> Mapping[bytes, str]:
        """Return the objects that a list of a scope contains unless they were deleted: hashes of keys, and names.

        These are the objects that runs have read by name, or in a list before the scope had one, and those of narrower
        scopes.
        """
        keys = {target.key for target in self._by_name.values() if scope.covers(target.key)}
        keys |= self._expected.pop(scope, set())
        narrower = [] if scope.is_synced else self._narrower(scope)
        known = {hashed: "" for other in narrower for hashed in other.store.entries}
        return known | {key_hash(key): str(key) for key in sorted(keys)}

    def on_synced(self, scope: Scope) -> None:
        """End the narrower watches, which a new one replaces."""
        for other in self._narrower(scope):
            self._stop(other)

    def on_refused(self, scope: Scope, reason: str) -> None:
        """Watch narrower scopes instead; if there are none, log one warning for the kind."""
        for target in list(self._subscribers):
            if scope in self._scopes_of(target):
                self._usable_scopes_of(target)
        needs_all = any(target.scope_key(namespaced=self.namespaced) == scope.key for target in self._subscribers)
        if needs_all and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "Failed to watch objects read by runs; their changes will not trigger reconciles",
                gvk=str(self.gvk),
                watched_namespace=scope.key[0] or "all",
                reason=reason,
                hint="grant list and watch on it, or name the kind in the blacklist of the watch",
            )

    def stop_unused(self, now: float) -> None:
        """Stop the scopes that have had no subscription for ten minutes."""
        used = {target.scope_key(namespaced=self.namespaced) for target in self._subscribers}
        for key, scope in list(self.scopes.items()):
            if any(_is_within(each, key) for each in used):
                scope.unused_since = None
            elif scope.unused_since is None:
                scope.unused_since = now
            elif scope.unused_since <= now - _KEEP_SECONDS:
                self._stop(scope)

    def _stop(self, scope: Scope) -> None:
        scope.stop()
        self._expected.pop(scope, None)
        del self.scopes[scope.key]

    def _narrower(self, scope: Scope) -> list[Scope]:
        return [other for key, other in self.scopes.items() if other is not scope and _is_within(key, scope.key)]

    def _scopes_of(self, target: Target) -> Iterator[Scope]:
        """Yield the scopes that contain a target."""
        narrowest = target.scope_key(namespaced=self.namespaced)
        for key in dict.fromkeys([WHOLE_KIND, (narrowest[0], ""), narrowest]):
            if key in self.scopes:
                yield self.scopes[key]

    def _usable_scopes_of(self, target: Target) -> list[Scope]:
        """Return the scopes that contain a target; start one if none is permitted."""
        scopes = [*self._scopes_of(target)]
        if any(not scope.reason for scope in scopes):
            return scopes
        narrowest = target.scope_key(namespaced=self.namespaced)
        has_many_names = sum(1 for _, name in self.scopes if name) >= MAX_NAMES
        by_count = (narrowest[0], "" if has_many_names else narrowest[1])
        key: ScopeKey | None
        if not scopes:
            key = WHOLE_KIND if len(self.scopes) >= MAX_SCOPES else by_count
        else:
            refused = {scope.key for scope in scopes}
            key = next((each for each in (by_count, narrowest) if each not in refused), None)
        return scopes if key is None else [*scopes, self._start(key)]

    def _start(self, key: ScopeKey) -> Scope:
        selectors = (selector for lists in self._lists.values() for selector in lists.values())
        label_keys = frozenset(each for selector in selectors for each in _label_keys(selector))
        scope = self.scopes[key] = Scope(self, key, label_keys)
        scope.start()
        logger.debug("Watching objects read by runs", gvk=str(self.gvk), watched_namespace=key[0] or "all", name=key[1])
        return scope


def _is_within(key: ScopeKey, other: ScopeKey) -> bool:
    """Return whether one scope contains nothing that another doesn't contain too."""
    return other[0] in (None, key[0]) and other[1] in ("", key[1])


def _compiled(selector: str) -> LabelSelector | None:
    """Return a label selector, None for an empty or invalid one, which then matches everything."""
    if not selector:
        return None
    try:
        return label_selector(selector)
    except ValueError:
        return None


def _label_keys(selector: LabelSelector | None) -> frozenset[str]:
    return frozenset(each.key for each in selector.requirements) if selector else frozenset()


@dataclass(slots=True)
class ReadWatches:
    """The watches of everything that runs have read, by kind.

    ``primaries`` are the kinds that the operator reconciles. ``report`` is called for each kind, with functions that
    count its watches and its subscriptions.
    """

    client: Client
    clock: Clock
    primaries: Collection[GVK]
    report: Callable[[str, Callable[[], int], Callable[[], int]], None]
    kinds: dict[GVK, KindReads] = field(default_factory=dict)
    _unwatchable: set[GVK] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[ReadWatches]":
        """End unused watches; at the end, all watches."""
        try:
            async with running_in_background("unused watches of reads", self._clean):
                yield self
        finally:
            ending = (scope.stop() for kind in self.kinds.values() for scope in kind.scopes.values())
            await asyncio.gather(*filter(None, ending), return_exceptions=True)

    def of(self, gvk: GVK, *, namespaced: bool) -> KindReads:
        """Return the watches of a kind; there are none yet for a kind that no object has read."""
        if gvk not in self.kinds:
            primaries = frozenset((each.group, each.kind) for each in self.primaries)
            kind = self.kinds[gvk] = KindReads(gvk, namespaced, self.client, primaries, self.clock)
            self.report(str(gvk), lambda: len(kind.scopes), kind.count_subscriptions)
        return self.kinds[gvk]

    def warn_unwatchable(self, gvk: GVK) -> None:
        """Log once that a kind that was read doesn't support watches."""
        if gvk not in self._unwatchable:
            self._unwatchable.add(gvk)
            message = "Runs read a kind that cannot be watched; its changes will not trigger reconciles"
            hint = "set a reconcilePeriod, or name the kind in the blacklist of the watch"
            logger.warning(message, gvk=str(gvk), hint=hint)

    async def _clean(self) -> Never:
        while True:
            await sleep(self.clock, _CLEAN_SECONDS)
            for gvk, kind in list(self.kinds.items()):
                kind.stop_unused(self.clock.monotonic())
                if not kind.scopes:
                    del self.kinds[gvk]
