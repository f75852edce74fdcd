"""The reads of each object's runs, and which later changes of the objects that were read trigger a reconcile.

The read set of an object contains the reads of its last successful run, and those of any run since then. A run
registers each read before it is sent. Its response determines the state that was seen, and the store of the watch is
compared with that immediately, so that no change is lost between the two. Changes during a run are judged at its end.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy.ownership import Owner, ownership_of
from rolecall.runner.proxy.sessions import PendingRead, Read
from rolecall.runner.reads.observed_state import (
    ABSENT,
    UNKNOWN,
    ReadChange,
    State,
    Target,
    annotation_token,
    counts,
    digest_of_read,
    key_hash,
    owner_token,
    version_of,
)
from rolecall.runner.reads.read_watches import ReadWatches

_MAX_PENDING: Final = 4096
"""Changes during one run; if there are more, another run follows."""

_NEVER: Final = frozenset({("", "Event"), ("events.k8s.io", "Event"), ("coordination.k8s.io", "Lease")})
"""Kinds that change all the time and mean nothing to a role."""


@dataclass(frozen=True, slots=True)
class ReadCause(Cause):
    """A change of something that the object's runs have read."""

    target: Target | None = None
    change: ReadChange | None = None

    @classmethod
    def of(cls, target: Target, change: ReadChange) -> "ReadCause":
        """Return the cause for a change of something that was read."""
        return cls(change.text, change.uid, str(change.after.version), change.is_removal, target, change)


Keys = frozenset[ObjectKey] | None
Enqueue = Callable[[ObjectKey, ReadCause], None]


@dataclass(slots=True, eq=False)
class ObjectReads:
    """The read set of one object: the state of each target that its runs have seen, and those that they wrote.

    Reads of ``ignored`` groups and kinds don't count. During a run, ``running`` has the states that it has seen so far,
    and ``unanswered`` the version after which no change is missed, for each read without a response.
    """

    owner: Owner
    watches: ReadWatches
    ignored: frozenset[tuple[str, str]]
    enqueue: Enqueue
    seen: dict[Target, State] = field(default_factory=dict)
    written: dict[tuple[GVK, bytes], State] = field(default_factory=dict)
    running: dict[Target, State] = field(default_factory=dict)
    running_written: dict[tuple[GVK, bytes], State] = field(default_factory=dict)
    unanswered: dict[Target, int] = field(default_factory=dict)
    pending: dict[tuple[Target, ReadChange], None] = field(default_factory=dict)
    unlisted: set[Target] = field(default_factory=set)
    """The targets that were requested before their watch had listed them."""
    owned: set[Target] = field(default_factory=set)
    """The targets that name the owner: the rules for dependents apply to them."""
    tokens: frozenset[bytes] = frozenset()
    """The tokens by which objects name the owner."""
    is_running: bool = False

    def register(self, read: Read) -> PendingRead | None:
        """Watch the target of a read that is about to be sent; of several reads in a run the first one counts."""
        gvk, key = read.resource.gvk, read.key
        is_ignored = (gvk.group, gvk.kind) in self.ignored | _NEVER
        if not self.is_running or is_ignored or (key.name and self.owner.refers_to(gvk, key)):
            return None
        target = Target(gvk, key.namespace, key.name, "" if key.name else read.label_selector)
        if target in self.owned:
            return None
        if read.resource.is_virtual:
            self.watches.warn_unwatchable(target.gvk)
            return None
        position = self.watches.of(gvk, namespaced=read.resource.namespaced).subscribe(target, self)
        if target not in self.running and self.unanswered.setdefault(target, position) == UNKNOWN:
            self.unlisted.add(target)
        if read.verb == "watch":
            start = version_of(read.start)
            self.answer(target, State(start if start > 0 else position))
            return None
        return _Registered(self, target, position, read.verb, not target.name and target in self.unlisted)

    def answer(self, target: Target, state: State, keys: Keys = None) -> None:
        """Record the state that the run has seen first, newer changes, and the objects in a list."""
        if not self.is_running:
            return
        if self.unanswered.pop(target, None) is not None:
            self.running[target] = state
            self.watches.kinds[target.gvk].replay(target, self, state.version, keys)
        elif keys and target in self.running:
            self.watches.kinds[target.gvk].replay(target, self, self.running[target].version, keys)

    def request_rerun(self, target: Target) -> None:
        """Let another run follow, because the content of a list is unknown; that run will find a started watch."""
        if self.watches.kinds[target.gvk].may_watch(target):
            self.notify(target, ReadChange(target.gvk, b"", State(UNKNOWN), State(UNKNOWN)))

    def wrote(self, obj: RawObject) -> None:
        """Record an object as the run left it."""
        gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
        if ownership_of(obj, self.owner) is not None:
            self.drop(Target(gvk, key.namespace, key.name))
            return
        self.running_written[gvk, key_hash(key)] = State(version_of(resource_version_of(obj)), digest_of_read(obj))

    def drop(self, target: Target) -> None:
        """Record that a target is a dependent."""
        self.owned.add(target)
        self.running.pop(target, None)
        self.unanswered.pop(target, None)

    def notify(self, target: Target, change: ReadChange) -> None:
        """Enqueue the object if a change counts; during a run, keep the change for its end."""
        if not self.is_running:
            if self.counts(target, change):
                self.enqueue(self.owner.key, ReadCause.of(target, change))
        elif len(self.pending) <= _MAX_PENDING and any(
            target in known and counts(change, known[target]) for known in (self.seen, self.running)
        ):
            self.pending[target, change] = None

    def counts(self, target: Target, change: ReadChange) -> bool:
        """Return whether a change is new and relevant for the object."""
        seen = self.seen.get(target)
        return seen is not None and counts(change, seen, self.written.get((change.gvk, change.key_hash)))

    def start(self, owner: Owner) -> None:
        """Start the read set of a run."""
        if self.is_running:
            self.end(successful=False)
        self.owner, self.is_running = owner, True
        self.tokens = frozenset({owner_token(owner.uid), annotation_token(owner.type_annotation, str(owner.key))})

    def end(self, *, successful: bool) -> list[ReadCause]:
        """Replace the read set after a success, otherwise add to it; return the changes that count."""
        for target, position in list(self.unanswered.items()):
            self.answer(target, State(position))
        self.is_running = False
        before = self.seen.keys() | self.owned
        kept = self.running if successful else self.seen | self.running
        self.seen = {target: state for target, state in kept.items() if target not in self.owned}
        self._unsubscribe(before - self.seen.keys())
        kinds = {target.gvk for target in self.seen}
        written = self.running_written if successful else self.written | self.running_written
        self.written = {key: state for key, state in written.items() if key[0] in kinds}
        found, self.pending, self.running, self.running_written = self.pending, {}, {}, {}
        self.owned, self.unlisted = set(), set()
        if len(found) > _MAX_PENDING:
            return [ReadCause("more changes of what was read than are remembered")]
        causes = [ReadCause.of(target, change) for target, change in found if self.counts(target, change)]
        return list({cause.text: cause for cause in causes}.values())

    def forget(self) -> None:
        """Forget all reads."""
        self._unsubscribe({*self.seen, *self.running, *self.unanswered, *self.owned})
        self.seen, self.written, self.is_running = {}, {}, False

    def _unsubscribe(self, targets: Iterable[Target]) -> None:
        for target in targets:
            if target.gvk in self.watches.kinds:  # an object that a run wrote may never have been read
                self.watches.kinds[target.gvk].unsubscribe(target, self)


@dataclass(frozen=True, slots=True)
class _Registered:
    """A read without a response yet."""

    reads: ObjectReads
    target: Target
    position: int
    verb: str
    needs_keys: bool

    def record_response(self, status: int, content: Any, keys: Keys) -> None:
        """Record the state that was seen: a version, absence, or only the position at which it was requested."""
        reads, target = self.reads, self.target
        if target.name and isinstance(content, dict) and ownership_of(content, reads.owner) is not None:
            reads.drop(target)
            return
        version = version_of(resource_version_of(content)) if isinstance(content, dict) else UNKNOWN
        if status == HTTPStatus.NOT_FOUND and target.name:
            seen = State(self.position, ABSENT)
        elif version == UNKNOWN:
            seen = State(self.position)
        else:
            is_object = self.verb == "get" and GVK.of_object(content) == target.gvk
            seen = State(version, digest_of_read(content) if is_object else None)
        reads.answer(target, seen, keys)
        if status == HTTPStatus.OK and seen.version == UNKNOWN and not target.name:
            reads.request_rerun(target)


@dataclass(slots=True)
class ReadSets:
    """The read sets of the objects of one kind; ``enqueue`` is called with each object to reconcile again.

    Reads of ``ignored`` groups and kinds don't count.
    """

    watches: ReadWatches
    ignored: frozenset[tuple[str, str]]
    enqueue: Enqueue
    _objects: dict[ObjectKey, ObjectReads] = field(default_factory=dict)

    def start(self, owner: Owner) -> ObjectReads:
        """Return the read set of an object, for a run that starts now."""
        reads = self._objects.get(owner.key)
        if reads is None:
            reads = self._objects[owner.key] = ObjectReads(owner, self.watches, self.ignored, self.enqueue)
        reads.start(owner)
        return reads

    def end(self, key: ObjectKey, *, successful: bool) -> list[ReadCause]:
        """End the run of an object, and return the changes since then that require another run."""
        reads = self._objects.get(key)
        return reads.end(successful=successful) if reads is not None and reads.is_running else []

    def targets(self, key: ObjectKey) -> tuple[Target, ...]:
        """Return the targets that the runs of an object have read, whose changes trigger a reconcile."""
        reads = self._objects.get(key)
        return tuple(reads.seen) if reads is not None else ()

    def counts(self, key: ObjectKey, cause: ReadCause) -> bool:
        """Return whether a change is still new and relevant for an object."""
        if cause.target is None or cause.change is None:
            return True
        reads = self._objects.get(key)
        return reads is not None and reads.counts(cause.target, cause.change)

    def forget(self, key: ObjectKey) -> None:
        """Forget the reads of an object's runs."""
        reads = self._objects.pop(key, None)
        if reads is not None:
            reads.forget()
