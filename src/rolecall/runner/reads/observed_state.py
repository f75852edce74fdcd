"""The state of objects and lists as runs and watches have seen it, in as few bytes as possible.

A change counts if it is newer than the state that the run has seen and if its content differs from the newest known
content: the state before the change, the state that the run read, or the state that it wrote itself. If that content is
unknown, a newer version counts: one run too many is better than one too few.

A role may list ten thousand objects, and none of them is needed again. So a stored entry is a hash of the key, a
version and a digest of eight bytes. Labels are kept only for the keys of selectors, and owners only if they are
primaries.

A ``Scope`` is one list and watch for the reads of runs: an object by its name, a namespace, or all objects of a kind.
It delivers each change with the state before it. After a list, the first one or one after an interruption, every object
in the list and every missing object is delivered in the same way.
"""

import asyncio
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Never

from rolecall.kube.client import Selection
from rolecall.kube.metadata import (
    PRIMARY_ANNOTATION,
    PRIMARY_TYPE_ANNOTATION,
    annotation_of,
    owner_references_of,
    resource_version_of,
    shared_labels,
    uid_of,
)
from rolecall.kube.references import GVK, SECRET, ObjectKey, RawObject
from rolecall.runner.controller.informer import Reflector
from rolecall.runner.controller.store import content_digest
from rolecall.system.blocking_work import kept_running
from rolecall.system.logs import get_logger

if TYPE_CHECKING:  # it makes scopes
    from rolecall.runner.reads.read_watches import KindReads

logger = get_logger("reads")

DIGEST_BYTES: Final = 8
ABSENT: Final = b""
"""The digest of an object that doesn't exist."""

UNKNOWN: Final = -1
"""An unknown version; every version is newer."""

NO_OWNERS: Final[frozenset[bytes]] = frozenset()
_NO_LABELS: Final[Mapping[str, str]] = {}
_ENTRY: Final = struct.Struct(f"<q{DIGEST_BYTES}s")
_NAMESPACE_BYTES: Final = 4

ScopeKey = tuple[str | None, str]
"""The scope of a list and watch: a namespace (None: all, and cluster-scoped objects) and a name (empty: all)."""

WHOLE_KIND: Final[ScopeKey] = (None, "")


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a read: one object, or with an empty name the objects of a namespace that a selector matches.

    The namespace is empty for all namespaces and for a cluster-scoped kind.
    """

    gvk: GVK
    namespace: str
    name: str = ""
    selector: str = ""

    @property
    def key(self) -> ObjectKey:
        """The key of an object that was read by its name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def list_prefix(self) -> bytes:
        """The start of the hashes of the keys in a list: nothing for a list of all namespaces."""
        return namespace_hash(self.namespace) if self.namespace else b""

    def scope_key(self, *, namespaced: bool) -> ScopeKey:
        """Return the narrowest scope that contains the target."""
        return (self.namespace or None) if namespaced else None, self.name


@dataclass(frozen=True, slots=True)
class State:
    """The digest of an object at a version: ``ABSENT`` if it didn't exist, None if its content is unknown.

    For a list the version is that of the list, and the digest is None.
    """

    version: int
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class ReadChange:
    """A change of an object.

    ``before`` is the state that is known from the watch, at the last version up to which no change was missed;
    ``after`` is the new state. ``uid`` and ``name`` are empty if they are unknown.

    The other fields decide which readers the change concerns. ``labels`` are those before and after it, limited to the
    keys of selectors; None if they are unknown. ``owners`` are the tokens of the primaries that the object names as
    owners, before or after.
    """

    gvk: GVK
    key_hash: bytes
    before: State
    after: State
    uid: str = ""
    name: str = ""
    labels: tuple[Mapping[str, str] | None, ...] = field(default=(None,), compare=False)
    owners: frozenset[bytes] = field(default=NO_OWNERS, compare=False)

    @property
    def is_removal(self) -> bool:
        """Return whether the object was deleted."""
        return self.after.digest == ABSENT

    @property
    def text(self) -> str:
        """A description for users, for example ``read Secret default/login changed``."""
        verb = "deleted" if self.is_removal else "created" if self.before.digest == ABSENT else "changed"
        return f"read {self.gvk.kind} {self.name} {verb}" if self.name else f"read list of {self.gvk.kind}: one {verb}"


def counts(change: ReadChange, seen: State, written: State | None = None) -> bool:
    """Return whether a run that has seen one state, and has written another itself, must run again."""
    after, known = change.after, change.before
    if after.version <= seen.version and after.version != UNKNOWN:
        return False
    for state in (seen, written):
        if state is None:
            continue
        is_same_version = state.version == known.version and state.digest is not None
        if state.version > known.version or is_same_version:
            known = state
    return known.digest is None or known.digest != after.digest


def version_of(text: str) -> int:
    """Return a resourceVersion as a number, as Kubernetes allows since 1.35; ``UNKNOWN`` for any other text."""
    return int(text) if text.isascii() and text.isdigit() else UNKNOWN


@lru_cache(maxsize=1024)
def namespace_hash(namespace: str) -> bytes:
    """Return the hash of a namespace, with which the hash of each key in it starts."""
    return sha256(namespace.encode()).digest()[:_NAMESPACE_BYTES]


def key_hash(key: ObjectKey) -> bytes:
    """Return the hash of a key."""
    return namespace_hash(key.namespace) + short_hash(str(key))


def namespace_of(hashed: bytes) -> bytes:
    """Return the hash of the namespace of a key, from the hash of the key."""
    return hashed[:_NAMESPACE_BYTES]


def short_hash(text: str) -> bytes:
    """Return eight bytes that stand for a text."""
    return sha256(text.encode(errors="surrogatepass")).digest()[:8]


@lru_cache(maxsize=1024)
def shared_mapping(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the same mapping for equal items: most objects have the labels of many others."""
    return dict(items)


@dataclass(slots=True)
class CompactStore:
    """The objects of one list and watch, by the hashes of their keys.

    ``newest`` is the version of the newest object, ``last_removal`` that of the newest deletion.
    """

    labels: dict[bytes, Mapping[str, str]] = field(default_factory=dict)
    owners: dict[bytes, frozenset[bytes]] = field(default_factory=dict)
    newest: int = UNKNOWN
    last_removal: int = UNKNOWN
    entries: dict[bytes, bytes] = field(default_factory=dict)

    def get(self, hashed: bytes) -> State | None:
        """Return the state of an object, None if there is none."""
        entry = self.entries.get(hashed)
        return None if entry is None else State(*_ENTRY.unpack(entry))

    def put(self, hashed: bytes, state: State, owners: frozenset[bytes]) -> None:
        """Store the state of an object, and the tokens of its owners."""
        self.entries[hashed] = _ENTRY.pack(state.version, state.digest or b"")
        self.newest = max(self.newest, state.version)
        if owners:
            self.owners[hashed] = owners
        else:
            self.owners.pop(hashed, None)

    def remove(self, hashed: bytes, version: int) -> None:
        """Remove an object that was deleted at a version."""
        self.entries.pop(hashed, None)
        self.labels.pop(hashed, None)
        self.owners.pop(hashed, None)
        self.last_removal = max(self.last_removal, version)

    def newer_than(self, version: int) -> Iterator[tuple[bytes, State]]:
        """Yield the objects of a newer version."""
        if self.newest <= version:
            return
        for hashed, entry in list(self.entries.items()):
            found, digest = _ENTRY.unpack(entry)
            if found > version:
                yield hashed, State(found, digest)


def owner_token(uid: str) -> bytes:
    """Return the token of an owner that an owner reference names."""
    return short_hash(uid)


def annotation_token(kind: str, primary: str) -> bytes:
    """Return the token of an owner that annotations name; kinds of the core group may end with a dot."""
    return short_hash(f"{kind.rstrip('.')} {primary}")


def digest_of_read(obj: RawObject) -> bytes:
    """Return the digest of an object with its status; for a Secret every version has a different one."""
    if GVK.of_object(obj) == SECRET:
        return short_hash(f"{uid_of(obj)} {resource_version_of(obj)}")
    return content_digest(obj, with_status=True)[:DIGEST_BYTES]


@dataclass(slots=True, eq=False)
class Scope:
    """A list and watch of a kind, limited to a namespace and a name by its ``key``."""

    kind: "KindReads"
    key: ScopeKey
    label_keys: frozenset[str]
    store: CompactStore = field(default_factory=CompactStore)
    position: int = UNKNOWN
    """The version up to which no change is missing, ``UNKNOWN`` before the first list is complete."""
    reason: str = ""
    """Why it can't be watched for now, empty if it can."""
    unused_since: float | None = None
    _task: asyncio.Task[Never] | None = None

    @property
    def is_synced(self) -> bool:
        """Return whether the first list is complete."""
        return self.position != UNKNOWN

    def start(self) -> None:
        """List and watch; start again if it already does."""
        self.stop()
        kind, (namespace, name) = self.kind, self.key
        selection = Selection(name, metadata_only=kind.gvk == SECRET)
        reflector = Reflector(kind.client, kind.gvk, namespace, self, kind.clock, selection, is_quiet=True)
        title = f"reads of {kind.gvk} in {namespace or 'all'}"
        self._task = asyncio.create_task(kept_running(title, reflector.run), name=title)

    def stop(self) -> asyncio.Task[Never] | None:
        """Stop watching, and return the task that ends now, if there is one; the store stays as it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task

    def keep_labels(self, keys: frozenset[str]) -> None:
        """Keep the labels of further keys; known objects are listed again for them."""
        if not keys <= self.label_keys:
            self.label_keys |= keys
            self.store.labels.clear()
            self.start()

    def covers(self, key: ObjectKey) -> bool:
        """Return whether an object is in the scope."""
        return self.key[0] in (None, key.namespace) and self.key[1] in ("", key.name)

    def on_listed(self, obj: RawObject) -> None:
        """Handle an object of a list."""
        self.reason = ""
        self._take(obj, self.position, is_listed=True)

    def on_list_complete(self, _namespace: str | None, listed_keys: set[ObjectKey], resource_version: str) -> None:
        """Deliver the deletion of all other objects, and the absence of those that runs have read by name."""
        self.reason = ""
        version = version_of(resource_version)
        present = {key_hash(key) for key in listed_keys}
        was_synced, before = self.is_synced, self.position
        missing = {hashed: "" for hashed in self.store.entries if hashed not in present}
        missing |= {each: name for each, name in self.kind.expected_in(self).items() if each not in present}
        for hashed, name in missing.items():
            known = self.store.get(hashed)
            digest = known.digest if known else ABSENT if was_synced else None
            owners = self.store.owners.get(hashed, NO_OWNERS)
            if known:
                self.store.remove(hashed, version)
            after = State(version, ABSENT)
            change = ReadChange(self.kind.gvk, hashed, State(before, digest), after, name=name, owners=owners)
            self.kind.deliver(change)
        self.position = max(self.position, version)
        if not was_synced:
            self.store.last_removal = version  # objects may have been deleted before
            self.kind.on_synced(self)

    def on_watch_event(self, event_type: str, obj: RawObject) -> None:
        """Handle an event of a watch, which misses no version before it."""
        self._take(obj, version_of(resource_version_of(obj)) - 1, is_removal=event_type == "DELETED")

    def on_progress(self, resource_version: str) -> None:
        """Record up to which version no change is missing."""
        self.position = max(self.position, version_of(resource_version))

    def on_restored(self) -> None:
        """Forget all versions; the next list delivers each object as a change."""
        self.position, self.store = UNKNOWN, CompactStore()

    def on_blocked(self, _namespace: str | None, reason: str) -> None:
        """Report that the scope can't be watched for now."""
        if reason != self.reason:
            self.reason = reason
            self.kind.on_refused(self, reason)

    def replayed(self, key: ObjectKey) -> Iterator[ReadChange]:
        """Yield the present state of an object, if it is known, as a change from an unknown state."""
        state = self.store.get(hashed := key_hash(key))
        if state is None and self.is_synced:
            state = State(self.position, ABSENT)
        if state is not None:
            owners = self.store.owners.get(hashed, NO_OWNERS)
            yield ReadChange(self.kind.gvk, hashed, State(UNKNOWN), state, name=str(key), owners=owners)

    def replayed_after(self, version: int, keys: Iterable[ObjectKey] | None) -> Iterator[ReadChange]:
        """Yield the objects that are newer than a version, and the deleted ones of ``keys``.

        If the keys of the objects at that version are unknown, the last deletion represents all.
        """
        for hashed, state in self.store.newer_than(version):
            owners = self.store.owners.get(hashed, NO_OWNERS)
            yield ReadChange(self.kind.gvk, hashed, State(UNKNOWN), state, owners=owners)
        for key in sorted(keys or ()):
            if self.is_synced and self.store.get(hashed := key_hash(key)) is None:
                yield ReadChange(self.kind.gvk, hashed, State(UNKNOWN), State(self.position, ABSENT), name=str(key))
        if keys is None and self.store.last_removal > version:
            yield ReadChange(self.kind.gvk, b"", State(UNKNOWN), State(self.store.last_removal, ABSENT))

    def _take(self, obj: RawObject, position: int, *, is_listed: bool = False, is_removal: bool = False) -> None:
        """Store an object and deliver its change from the state at a position, if it has changed."""
        key, version, store = ObjectKey.of_object(obj), version_of(resource_version_of(obj)), self.store
        hashed = key_hash(key)
        known = store.get(hashed)
        labels = shared_labels(obj) if self.label_keys else _NO_LABELS
        labels_before = _NO_LABELS if known is None else store.labels.get(hashed)
        if self.label_keys and not is_removal:
            kept = sorted((each, labels[each]) for each in self.label_keys & labels.keys())
            store.labels[hashed] = shared_mapping(tuple(kept))
        if known is not None and known.version == version and not is_removal:
            return
        before = State(position, known.digest if known else ABSENT if position != UNKNOWN else None)
        after = State(version, ABSENT if is_removal else digest_of_read(obj))
        owners, owners_before = self._owners(obj), store.owners.get(hashed, NO_OWNERS)
        if is_removal:
            store.remove(hashed, version)
        else:
            store.put(hashed, after, owners)
        # A list contains no versions in between: the labels that the object had then are unknown.
        shown = (None if is_listed else labels_before, labels)
        change = ReadChange(self.kind.gvk, hashed, before, after, uid_of(obj), str(key), shown, owners_before | owners)
        self.kind.deliver(change)

    def _owners(self, obj: RawObject) -> frozenset[bytes]:
        references = (
            each for each in owner_references_of(obj) if (each.gvk.group, each.gvk.kind) in self.kind.primaries
        )
        tokens = {owner_token(each.uid) for each in references}
        kind, primary = annotation_of(obj, PRIMARY_TYPE_ANNOTATION), annotation_of(obj, PRIMARY_ANNOTATION)
        if kind and primary:
            tokens.add(annotation_token(str(kind), str(primary)))
        return frozenset(tokens) if tokens else NO_OWNERS
