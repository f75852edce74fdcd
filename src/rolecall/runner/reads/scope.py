"""One list and watch for the reads of runs: an object by its name, a namespace, or all objects of a kind.

It keeps a packed store and hands on each change with what was known before it. After a list, the first or one after a
break, every object in the list and every one that is missing in it is handed on in the same way.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from rolecall.kube.metadata import (
    PRIMARY_ANNOTATION,
    PRIMARY_TYPE_ANNOTATION,
    annotation_of,
    owner_references_of,
    resource_version_of,
    shared_labels,
    uid_of,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.reflector import Reflector, WatchRetry
from rolecall.runner.controller.store import content_digest
from rolecall.runner.reads.observed_state import (
    ABSENT,
    DIGEST_BYTES,
    NO_OWNERS,
    UNKNOWN,
    CompactStore,
    Place,
    PositionedSource,
    ReadChange,
    State,
    key_hash,
    shared_mapping,
    short_hash,
    version_of,
)
from rolecall.system.clock import Clock
from rolecall.system.logs import get_logger

logger = get_logger("reads")

SECRET: Final = GVK("", "v1", "Secret")
_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A change with what decides whom it concerns.

    ``labels`` are those before and after it as far as selectors ask for them, None if they are not known. ``owners``
    are the tokens of the primaries that the object names as owners, before or after.
    """

    change: ReadChange
    labels: tuple[Mapping[str, str] | None, ...]
    owners: frozenset[bytes] = NO_OWNERS


class ScopeListener(Protocol):
    """What a scope reports to; must return at once."""

    def deliver(self, delivery: Delivery) -> None:
        """Take a change."""

    def expected_in(self, scope: "Scope") -> Mapping[bytes, str]:
        """Return the objects that a list of the scope has, unless they are gone: hashes of keys, and names."""

    def on_synced(self, scope: "Scope") -> None:
        """Take note that the first list is complete."""

    def on_refused(self, scope: "Scope", reason: str) -> None:
        """Take note that the scope cannot be watched for now."""


def owner_token(uid: str) -> bytes:
    """Return the token of an owner that an owner reference names."""
    return short_hash(uid)


def annotation_token(kind: str, primary: str) -> bytes:
    """Return the token of an owner that annotations name; kinds of the core group may end with a dot."""
    return short_hash(f"{kind.rstrip('.')} {primary}")


def digest_of_read(obj: RawObject) -> bytes:
    """Return the digest of all content of an object, its status included; of a Secret any version is another one."""
    if GVK.of_object(obj) == SECRET:
        return short_hash(f"{uid_of(obj)} {resource_version_of(obj)}")
    return content_digest(obj, with_status=True)[:DIGEST_BYTES]


@dataclass(slots=True, eq=False)
class Scope:
    """A list and watch of a kind: of ``name`` if it is given, in ``namespace``, or in all of them with None."""

    gvk: GVK
    namespace: str | None
    name: str
    source: PositionedSource
    listener: ScopeListener
    is_primary: Callable[[GVK], bool]
    store: CompactStore = field(default_factory=CompactStore)
    label_keys: frozenset[str] = frozenset()
    reason: str = ""
    """Why it cannot be watched for now, empty if it can."""
    unused_since: float | None = None
    _task: asyncio.Task[None] | None = None

    @property
    def place(self) -> Place:
        """The namespace and the name, None and empty for all."""
        return self.namespace, self.name

    @property
    def is_synced(self) -> bool:
        """Return whether the first list is complete."""
        return self.source.position != UNKNOWN

    @property
    def position(self) -> int:
        """The version up to which no change is missing, ``UNKNOWN`` before the first list."""
        return self.source.position

    def start(self, clock: Clock) -> None:
        """List and watch, anew if it did already."""
        self.stop()
        retry = WatchRetry(self.gvk, self.namespace, is_quiet=True)
        reflector = Reflector(self.source, self.gvk, self.namespace, self, clock, retry=retry)
        self._task = asyncio.create_task(reflector.run(), name=f"reads of {self.gvk} in {self.namespace or 'all'}")
        self._task.add_done_callback(_note_crash)

    def stop(self) -> None:
        """Stop to watch; the store stays as it is."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def stopped(self) -> None:
        """Stop to watch and wait for the end."""
        task = self._task
        self.stop()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    def ask_labels(self, keys: frozenset[str], clock: Clock) -> None:
        """Keep the labels of further keys; objects that are known already are listed anew for them."""
        if not keys <= self.label_keys:
            self.label_keys |= keys
            self.store.labels.clear()
            self.start(clock)

    def covers(self, key: ObjectKey) -> bool:
        """Return whether an object is in the scope."""
        return (self.namespace is None or self.namespace == key.namespace) and self.name in ("", key.name)

    def on_listed(self, obj: RawObject) -> None:
        """Take an object of a list."""
        self.reason = ""
        self._take(obj, self.position, is_listed=True)

    def on_list_complete(self, namespace: str | None, listed_keys: set[ObjectKey]) -> None:
        """Hand on that all other objects are gone, and that what runs have read by name is not there."""
        del namespace
        self.reason = ""
        present = {key_hash(key) for key in listed_keys}
        was_synced, before = self.is_synced, self.position
        gone = {hashed: "" for hashed in self.store.hashes() if hashed not in present}
        gone |= {each: name for each, name in self.listener.expected_in(self).items() if each not in present}
        for hashed, name in gone.items():
            known = self.store.get(hashed)
            digest = known.digest if known else ABSENT if was_synced else None
            after = State(self.source.listing, ABSENT)
            change = ReadChange(self.gvk, hashed, State(before, digest), after, name=name)
            delivery = Delivery(change, (None,), self.store.owners.get(hashed, NO_OWNERS))
            if known:
                self.store.remove(hashed, self.source.listing)
            self.listener.deliver(delivery)
        self.source.record_list()
        if not was_synced:
            self.store.last_removal = self.source.listing  # there may have been some before
            self.listener.on_synced(self)

    def on_watch_event(self, event_type: str, obj: RawObject) -> None:
        """Take an event of a watch, which misses no version before it."""
        self._take(obj, version_of(resource_version_of(obj)) - 1, is_removal=event_type == "DELETED")

    def on_unreadable(self, key: ObjectKey) -> None:
        """Do nothing: the source shows such objects by their version."""

    def on_blocked(self, namespace: str | None, reason: str) -> None:
        """Report that the scope cannot be watched for now."""
        del namespace
        if reason != self.reason:
            self.reason = reason
            self.listener.on_refused(self, reason)

    def replayed(self, key: ObjectKey) -> Iterator[Delivery]:
        """Yield the present state of an object, as a change from something unknown, if it is known."""
        state = self.store.get(hashed := key_hash(key))
        if state is None and self.is_synced:
            state = State(self.position, ABSENT)
        if state is not None:
            change = ReadChange(self.gvk, hashed, State(UNKNOWN), state, name=str(key))
            yield Delivery(change, (None,), self.store.owners.get(hashed, NO_OWNERS))

    def replayed_after(self, version: int, keys: Iterable[ObjectKey] | None) -> Iterator[Delivery]:
        """Yield the objects that are newer than a version, and those of ``keys`` that are gone.

        If the keys of the objects at that version are not known, the last deletion stands for all.
        """
        for hashed, state in self.store.newer_than(version):
            change = ReadChange(self.gvk, hashed, State(UNKNOWN), state)
            yield Delivery(change, (None,), self.store.owners.get(hashed, NO_OWNERS))
        for key in keys or ():
            if self.is_synced and self.store.get(hashed := key_hash(key)) is None:
                change = ReadChange(self.gvk, hashed, State(UNKNOWN), State(self.position, ABSENT), name=str(key))
                yield Delivery(change, (None,))
        if keys is None and self.store.last_removal > version:
            gone = State(self.store.last_removal, ABSENT)
            yield Delivery(ReadChange(self.gvk, b"", State(UNKNOWN), gone), (None,))

    def _take(self, obj: RawObject, position: int, *, is_listed: bool = False, is_removal: bool = False) -> None:
        key = ObjectKey.of_object(obj)
        hashed, owners = key_hash(key), self._owners(obj)
        known, version = self.store.get(hashed), version_of(resource_version_of(obj))
        if known is not None and known.version == version and not is_removal:
            self._keep_labels(hashed, obj)
            return
        digest_before = known.digest if known else ABSENT if position != UNKNOWN else None
        after = State(version, ABSENT if is_removal else digest_of_read(obj))
        change = ReadChange(self.gvk, hashed, State(position, digest_before), after, uid_of(obj), str(key))
        # A list shows no versions in between: which labels the object had then is not known.
        labels_before = None if is_listed else self._labels_before(hashed, known)
        owners_before = self.store.owners.get(hashed, NO_OWNERS)
        if is_removal:
            self.store.remove(hashed, version)
        else:
            self.store.put(hashed, after)
            self._keep_labels(hashed, obj)
            self._keep_owners(hashed, owners)
        labels = shared_labels(obj) if self.label_keys else _NO_LABELS
        self.listener.deliver(Delivery(change, (labels_before, labels), owners_before | owners))

    def _labels_before(self, hashed: bytes, known: State | None) -> Mapping[str, str] | None:
        """Return the labels that an object had, None if selectors have asked for them only just now."""
        return _NO_LABELS if known is None else self.store.labels.get(hashed)

    def _keep_labels(self, hashed: bytes, obj: RawObject) -> None:
        if self.label_keys:
            labels = shared_labels(obj)
            asked = tuple(sorted((key, labels[key]) for key in self.label_keys & labels.keys()))
            self.store.labels[hashed] = shared_mapping(asked)

    def _keep_owners(self, hashed: bytes, owners: frozenset[bytes]) -> None:
        if owners:
            self.store.owners[hashed] = owners
        else:
            self.store.owners.pop(hashed, None)

    def _owners(self, obj: RawObject) -> frozenset[bytes]:
        tokens = {owner_token(each.uid) for each in owner_references_of(obj) if self.is_primary(each.gvk)}
        kind, primary = annotation_of(obj, PRIMARY_TYPE_ANNOTATION), annotation_of(obj, PRIMARY_ANNOTATION)
        if kind and primary:
            tokens.add(annotation_token(str(kind), str(primary)))
        return frozenset(tokens) if tokens else NO_OWNERS


def _note_crash(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error(
            "Watch of reads stopped; changes will not trigger reconciles", task=task.get_name(), error=repr(error)
        )
