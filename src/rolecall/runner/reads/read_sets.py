"""The reads of each object's runs, and which changes of what was read wake the object.

The read set of an object is what its last successful run has read, and what any run since then has. A run registers
each read before it is sent. Its answer fixes what was seen, and the store of the watch is judged against that at once,
so that nothing is lost between the two. Changes that come during a run are judged at its end.

Delays for objects that trigger each other by what they read.

Two roles that read what the other writes would run without end, and so would all objects that share something that each
of them writes. Such a loop needs a write of a run: an object that was triggered only by reads of objects that runs of
this operator wrote, and whose run changed something, waits one second before such reads trigger it again, then twice as
long each time, up to five minutes. The time counts from the end of the run: a later change triggers immediately.

A run that changes nothing ends this, and so does any other trigger, or a minute without one (or the wait, if that is
longer). A minute, because the trigger of a loop takes as long as the runs of all objects in the loop.
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
    counts,
    key_hash,
    version_of,
)
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reads.scope import annotation_token, digest_of_read, owner_token
from rolecall.system.clock import Clock

_MAX_PENDING: Final = 4096
"""Changes during one run; if there are more, another run follows."""

_NEVER: Final = frozenset({("", "Event"), ("events.k8s.io", "Event"), ("coordination.k8s.io", "Lease")})
"""Kinds that change all the time and tell a role nothing."""


@dataclass(frozen=True, slots=True)
class ReadCause(Cause):
    """A change of something that the object's runs have read."""

    target: Target | None = None
    change: ReadChange | None = None
    may_be_in_loop: bool = False
    """Whether a run of this operator may be behind the change, so that runs may trigger each other without end."""

    @classmethod
    def of(cls, target: Target, change: ReadChange) -> "ReadCause":
        """Return the cause for a change of what was read."""
        return cls(change.text, change.uid, str(change.after.version), change.is_removal, target, change)


@dataclass(frozen=True, slots=True)
class ReadRules:
    """Which reads count; those of ``ignored`` groups and kinds do not."""

    ignored: frozenset[tuple[str, str]] = frozenset()

    def target_of(self, read: Read, owner: Owner) -> Target | None:
        """Return what to watch for a read of a run of ``owner``, None if the read does not count."""
        gvk = read.resource.gvk
        if (gvk.group, gvk.kind) in self.ignored or (gvk.group, gvk.kind) in _NEVER:
            return None
        if read.key.name:
            return None if owner.refers_to(gvk, read.key) else Target(gvk, read.key.namespace, read.key.name)
        return Target(gvk, read.key.namespace, selector=read.label_selector)


Keys = frozenset[ObjectKey] | None
Wake = Callable[[ObjectKey, ReadCause], None]


@dataclass(slots=True, eq=False)
class ObjectReads:
    """The read set of one object: what its runs have seen of each target, and what they wrote themselves.

    While a run is on, ``running`` has what it has seen so far, and the version from which on nothing is missed of what
    was not answered yet.
    """

    owner: Owner
    watches: ReadWatches
    rules: ReadRules
    wake: Wake
    seen: dict[Target, State] = field(default_factory=dict)
    written: dict[tuple[GVK, bytes], State] = field(default_factory=dict)
    running: dict[Target, State] = field(default_factory=dict)
    running_written: dict[tuple[GVK, bytes], State] = field(default_factory=dict)
    unanswered: dict[Target, int] = field(default_factory=dict)
    pending: dict[tuple[Target, ReadChange], None] = field(default_factory=dict)
    unlisted: set[Target] = field(default_factory=set)
    """What was asked for before its watch had listed it."""
    owned: set[Target] = field(default_factory=set)
    """What names the owner: the rules for dependents decide about it."""
    tokens: frozenset[bytes] = frozenset()
    """The tokens by which objects name the owner."""
    is_running: bool = False

    def register(self, read: Read) -> PendingRead | None:
        """Watch what is about to be read; what was read before in this run has been seen as it was then."""
        target = self.rules.target_of(read, self.owner)
        if target is None or target in self.owned or not self.is_running:
            return None
        if read.resource.is_virtual:
            self.watches.note_unwatchable(target.gvk)
            return None
        position = self.watches.subscribe(target, self, namespaced=read.resource.namespaced)
        if target not in self.running and self.unanswered.setdefault(target, position) == UNKNOWN:
            self.unlisted.add(target)
        if read.verb == "watch":
            start = version_of(read.start)
            self.answer(target, State(start if start > 0 else position))
            return None
        return _Registered(self, target, position, read.verb, not target.name and target in self.unlisted)

    def answer(self, target: Target, state: State, keys: Keys = None) -> None:
        """Take note of what the run has seen first, of what is newer already, and of the objects in a list."""
        if not self.is_running:
            return
        if self.unanswered.pop(target, None) is not None:
            self.running[target] = state
            self.watches.replay(target, self, state.version, keys)
        elif keys and target in self.running:
            self.watches.replay(target, self, self.running[target].version, keys)

    def look_again(self, target: Target) -> None:
        """Let another run follow if nobody knows what was in a list; it will find a watch that has begun."""
        if self.watches.may_watch(target):
            self.notify(target, ReadChange(target.gvk, b"", State(UNKNOWN), State(UNKNOWN)))

    def wrote(self, obj: RawObject) -> None:
        """Take note of an object as the run left it."""
        gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
        if ownership_of(obj, self.owner) is not None:
            self.drop(Target(gvk, key.namespace, key.name))
            return
        state = State(version_of(resource_version_of(obj)), digest_of_read(obj))
        self.running_written[gvk, key_hash(key)] = state

    def drop(self, target: Target) -> None:
        """Take note that what was read is a dependent."""
        self.owned.add(target)
        self.running.pop(target, None)
        self.unanswered.pop(target, None)

    def notify(self, target: Target, change: ReadChange) -> None:
        """Wake the object if a change counts, or keep it for the end of the run."""
        if not self.is_running:
            if self.counts(target, change):
                self.wake(self.owner.key, ReadCause.of(target, change))
        elif len(self.pending) <= _MAX_PENDING and self._may_count(target, change):
            self.pending[target, change] = None

    def counts(self, target: Target, change: ReadChange) -> bool:
        """Return whether a change is news for the object."""
        seen = self.seen.get(target)
        return seen is not None and counts(change, seen, self.written.get((change.gvk, change.key_hash)))

    def _may_count(self, target: Target, change: ReadChange) -> bool:
        """Return whether a change is news for the last run or for the present one, as far as it has come."""
        return any(target in known and counts(change, known[target]) for known in (self.seen, self.running))

    def start(self, owner: Owner) -> None:
        """Begin the read set of a run."""
        if self.is_running:
            self.end(successful=False)
        self.owner, self.is_running = owner, True
        self.tokens = frozenset({owner_token(owner.uid), annotation_token(owner.type_annotation, str(owner.key))})

    def end(self, *, successful: bool) -> list[ReadCause]:
        """Replace the read set after a success, or else add to it, and return the changes that count."""
        for target, position in list(self.unanswered.items()):
            self.answer(target, State(position))
        self.is_running = False
        before = self.seen.keys() | self.owned
        kept = self.running if successful else self.seen | self.running
        self.seen = {target: state for target, state in kept.items() if target not in self.owned}
        for target in before - self.seen.keys():
            self.watches.unsubscribe(target, self)
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
        """Forget everything that was read."""
        for target in {*self.seen, *self.running, *self.unanswered, *self.owned}:
            self.watches.unsubscribe(target, self)
        self.seen, self.written, self.is_running = {}, {}, False


@dataclass(frozen=True, slots=True)
class _Registered:
    """A read that is on its way."""

    reads: ObjectReads
    target: Target
    position: int
    verb: str
    needs_keys: bool

    def record_response(self, status: int, content: Any, keys: frozenset[ObjectKey] | None) -> None:
        """Fix what was seen: a version, that there is nothing, or only the position at which it was asked for."""
        if self.target.name and isinstance(content, dict) and ownership_of(content, self.reads.owner) is not None:
            self.reads.drop(self.target)
            return
        seen = self._seen(status, content)
        self.reads.answer(self.target, seen, keys)
        if status == HTTPStatus.OK and seen.version == UNKNOWN and not self.target.name:
            self.reads.look_again(self.target)

    def _seen(self, status: int, content: Any) -> State:
        if status == HTTPStatus.NOT_FOUND and self.target.name:
            return State(self.position, ABSENT)
        version = version_of(resource_version_of(content)) if isinstance(content, dict) else UNKNOWN
        if version == UNKNOWN:
            return State(self.position)
        is_object = self.verb == "get" and GVK.of_object(content) == self.target.gvk
        return State(version, digest_of_read(content) if is_object else None)


@dataclass(slots=True)
class ReadSets:
    """The read sets of the objects of one kind; ``wake`` is called with each object to reconcile again."""

    watches: ReadWatches
    rules: ReadRules
    wake: Wake
    _objects: dict[ObjectKey, ObjectReads] = field(default_factory=dict)

    def start(self, owner: Owner) -> ObjectReads:
        """Return the read set of an object, for a run that begins now."""
        reads = self._objects.get(owner.key)
        if reads is None:
            reads = self._objects[owner.key] = ObjectReads(owner, self.watches, self.rules, self.wake)
        reads.start(owner)
        return reads

    def end(self, key: ObjectKey, *, successful: bool) -> list[ReadCause]:
        """End the run of an object, and return the changes since then that call for another one."""
        reads = self._objects.get(key)
        return reads.end(successful=successful) if reads is not None and reads.is_running else []

    def targets(self, key: ObjectKey) -> tuple[Target, ...]:
        """Return what the runs of an object have read, and what wakes it when it changes."""
        reads = self._objects.get(key)
        return tuple(reads.seen) if reads is not None else ()

    def counts(self, key: ObjectKey, cause: ReadCause) -> bool:
        """Return whether a change is still news for an object."""
        if cause.target is None or cause.change is None:
            return True
        reads = self._objects.get(key)
        return reads is not None and reads.counts(cause.target, cause.change)

    def forget(self, key: ObjectKey) -> None:
        """Forget what the runs of an object have read."""
        reads = self._objects.pop(key, None)
        if reads is not None:
            reads.forget()


FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
QUIET_SECONDS: Final = 60.0
_MAX_DOUBLINGS: Final = 16


@dataclass(slots=True)
class _Repetition:
    """How many runs in a row may belong to a loop, and when the last of them ended."""

    runs: int
    ended: float

    @property
    def wait_seconds(self) -> float:
        """The time from the end of the last run to the next one."""
        return min(FIRST_SECONDS * 2.0 ** min(self.runs - 1, _MAX_DOUBLINGS), LONGEST_SECONDS)


@dataclass(slots=True)
class ReadBackoff:
    """The delays of the objects of one kind."""

    clock: Clock
    _repetitions: dict[ObjectKey, _Repetition] = field(default_factory=dict)

    def run_ended(self, key: ObjectKey, causes: Iterable[Cause], *, changed: bool) -> None:
        """Take note of why a run was started, and whether it changed anything."""
        causes = tuple(causes)
        is_in_loop = all(isinstance(cause, ReadCause) and cause.may_be_in_loop for cause in causes)
        if not changed or not causes or not is_in_loop:
            self._repetitions.pop(key, None)
            return
        known = self._repetitions.get(key)
        self._repetitions[key] = _Repetition(known.runs + 1 if known else 1, self.clock.monotonic())

    def seconds(self, key: ObjectKey) -> float:
        """Return how long an object has to wait whose read may belong to a loop and has changed now."""
        known = self._repetitions.get(key)
        if known is None:
            return 0.0
        passed = self.clock.monotonic() - known.ended
        if passed >= max(known.wait_seconds, QUIET_SECONDS):
            self.forget(key)
        return max(0.0, known.wait_seconds - passed)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about an object that is gone."""
        self._repetitions.pop(key, None)
