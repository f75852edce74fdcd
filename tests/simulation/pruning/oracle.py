"""What is true in a history about prune, and which deletions of the operator contradict it.

``Truth`` notes who made each object, what users have done with it, what each run has named, and each edit.
``Oracle`` judges every DELETE that no run sends. It knows nothing of marks and inventories: the specification decides
from what happened.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rolecall.kube.metadata import annotation_of, labels_of, owner_references_of, uid_of
from rolecall.kube.references import RawObject
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory
from tests.simulation.cluster import Answer
from tests.simulation.kinds import ServedKind
from tests.simulation.network import OPERATOR, Session
from tests.simulation.pruning.kinds import KINDS, NEVER, PRIMARIES, PRUNED, path_of
from tests.simulation.pruning.roles import ADOPT, HELM, PRUNE, UNPREDICTABLE, PruningFact, RoleState, Way

if TYPE_CHECKING:
    from tests.simulation.pruning.history import PruningHistory

_IGNORED = frozenset({"Event", "Lease"})
_BY_GVK = {(kind.gvk.api_version, kind.gvk.kind): kind for kind in KINDS}
_PRIMARY_KINDS = frozenset(kind.gvk.kind for kind in PRIMARIES)

_LOST_SECONDS = 40.0
"""A kill may undo the writes after a run for as long."""

_MONOTONIC_SECONDS = 600.0
"""The longest time that a deletion waits on the monotonic clock of its process."""

_SLACK_SECONDS = 1.5
"""The inventory has full seconds."""

Shared = tuple[PruningFact, str]
"""A run that has used an object of another primary, and the path of the object."""


@dataclass(slots=True)
class Made:
    """An object that exists or existed; ``creator`` is the uid of the primary whose run made it, empty for users."""

    path: str
    kind: ServedKind
    obj: RawObject
    creator: str
    at: float
    is_marked: bool
    """Whether its definition had ``rolecall.dev/prune: "true"`` when it was made."""

    is_kept: bool = False
    """Whether a user has opted it out, and hasn't taken this back."""

    was_adopted: bool = False
    """Whether its first definition had ``rolecall.dev/adopt``, or belonged to a Helm release."""

    has_second_owner: bool = False
    changes: list[float] = field(default_factory=list)
    """When users changed it outside its status."""

    shared: list[PruningFact] = field(default_factory=list)
    """Runs of other primaries that have requested it by name."""


@dataclass(slots=True)
class Primary:
    """A primary of one uid; ``specs`` are its specs with their times."""

    uid: str
    kind: str
    name: str
    path: str
    specs: list[tuple[float, RawObject]] = field(default_factory=list)
    deleted_at: float | None = None

    def spec_at(self, time: float) -> RawObject:
        """Return the spec at a time."""
        return next((spec for since, spec in reversed(self.specs) if since <= time), self.specs[0][1])


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A person's word: the uids of the objects that may be deleted for a primary with these inputs."""

    primary: str
    uids: frozenset[str]
    spec: RawObject
    state: RoleState


class Truth:
    """What happened in one history."""

    def __init__(self, history: "PruningHistory") -> None:
        self._history = history
        self._seen = 0
        self.made: dict[str, Made] = {}
        self.living: dict[str, Made] = {}
        """The objects that exist, by their paths."""

        self.primaries: dict[str, Primary] = {}
        self.runs: list[PruningFact] = []
        self.states: dict[str, list[tuple[float, RoleState]]] = {}
        """The states of the role of each kind, with their times."""

        self.confirmed: list[Confirmation] = []
        self.forged: set[str] = set()
        """The uids of primaries whose inventory a user has changed: its times and entries are theirs."""

        self.unreadable: list[str] = []
        """The paths of primaries with an inventory that nothing reads."""

        self.reads: dict[tuple[str, str], float] = {}
        """When a replica has last read a primary, by its path."""

        self.looks: dict[str, list[float]] = defaultdict(list)
        """When an operator has read an object, by its path."""

        history.server.on_change.append(self._on_change)
        history.network.observers.append(self._on_request)

    @staticmethod
    def now() -> float:
        """Return the time of the history."""
        return asyncio.get_running_loop().time()

    def runs_of(self, uid: str) -> Iterator[PruningFact]:
        """Yield the runs of a primary, in their order."""
        return (fact for fact in self.runs if fact.uid == uid)

    def requested(self, fact: PruningFact, found: RawObject) -> None:
        """Note that a run has requested an object by name."""
        made = self.made.get(uid_of(found))
        if made is not None and made.creator not in ("", fact.uid) and fact not in made.shared:
            made.shared.append(fact)

    def killed(self, replica: str) -> None:
        """Note what the process of a replica takes with it."""
        now = self.now()
        for fact in self.runs:
            if fact.replica == replica and (fact.ended is None or now - fact.ended < _LOST_SECONDS):
                fact.is_lost = True
        for made in self.living.values():
            if "rolecall.dev/made-for" in (made.obj["metadata"].get("annotations") or {}):
                made.shared = [fact for fact in made.shared if fact.replica != replica]

    def _on_request(self, session: Session, method: str, path: str, _body: Any, answer: Answer) -> None:
        if method == "GET" and answer.status == 200 and self._history.network.sender == OPERATOR:
            self.reads[session.replica, path] = self.now()
            self.looks[path].append(self.now())

    def _on_change(self) -> None:
        history = self._history.server.history
        while self._seen < len(history):
            _, change, obj = history[self._seen]
            self._seen += 1
            kind = _BY_GVK.get((obj.get("apiVersion", ""), obj.get("kind", "")))
            if kind is None or kind.gvk.kind in _IGNORED:
                continue
            if kind.gvk.kind in _PRIMARY_KINDS:
                self._note_primary(change, kind, obj)
            else:
                self._note_object(change, kind, obj, self._history.network.sender)

    def _note_primary(self, change: str, kind: ServedKind, obj: RawObject) -> None:
        metadata = obj["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        path = path_of(kind, metadata.get("namespace", ""), name)
        primary = self.primaries.setdefault(uid, Primary(uid, kind.gvk.kind, name, path))
        if not primary.specs or primary.specs[-1][1] != obj.get("spec"):
            primary.specs.append((self.now(), obj.get("spec") or {}))
        text = annotation_of(obj, INVENTORY_ANNOTATION)
        if text is not None and uid not in self.forged and not Inventory.of(obj).objects:
            self.unreadable.append(path)
        if primary.deleted_at is None and (change == "DELETED" or metadata.get("deletionTimestamp")):
            primary.deleted_at = self.now()

    def _note_object(self, change: str, kind: ServedKind, obj: RawObject, sender: str) -> None:
        uid, metadata = uid_of(obj), obj["metadata"]
        path = path_of(kind, metadata.get("namespace", ""), metadata["name"])
        is_marked = annotation_of(obj, PRUNE) == "true"
        if change == "ADDED":
            made = Made(path, kind, obj, "" if sender == OPERATOR else sender, self.now(), is_marked)
            is_helms = labels_of(obj).get(HELM) == "Helm"
            made.was_adopted = annotation_of(obj, ADOPT) is not None or is_helms
            self.made[uid] = self.living[path] = made
            return
        made = self.made[uid]
        if change == "DELETED":
            self.living.pop(path, None)
            return
        before, made.obj = made.obj, obj
        if sender == "" and _content(before) != _content(obj):
            made.changes.append(self.now())
            made.is_kept = annotation_of(obj, PRUNE) == "false"
            made.has_second_owner = len(owner_references_of(obj)) > 1
        elif sender not in ("", OPERATOR) and annotation_of(obj, PRUNE) == "true":
            made.is_kept = False  # the role has given it another value


def _content(obj: RawObject) -> RawObject:
    """Return an object without its status, its version, and its managers."""
    hidden = ("resourceVersion", "managedFields", "generation")
    metadata = {name: value for name, value in obj["metadata"].items() if name not in hidden}
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata}


class Oracle:
    """Judges the operator's deletions; ``findings`` are its objections."""

    def __init__(self, history: "PruningHistory", truth: Truth) -> None:
        self._history, self._truth = history, truth
        self.findings: list[str] = []
        self.deletions: list[Made] = []
        history.network.observers.append(self._on_request)

    def find(self, text: str) -> None:
        """Add a finding."""
        self.findings.append(f"at {asyncio.get_running_loop().time():.3f}: {text}")
        self._history.tell(f"FINDING {text}")

    def reconcile_started(self, *_: object) -> None:
        """Do nothing; see ``play``."""

    def may_be_outdated(self, _name: str) -> None:
        """Do nothing; see ``play``."""

    def _on_request(self, session: Session, method: str, path: str, _body: Any, answer: Answer) -> None:
        if method != "DELETE" or answer.status >= 300 or self._history.network.sender != OPERATOR or "/leases" in path:
            return
        obj = self._history.server.history[-1][2]
        made = self._truth.made.get(uid_of(obj))
        if made is None:
            self.find(f"{session.replica} deletes {path}, which is no object of a role")
            return
        self.deletions.append(made)
        self._history.tell(f"{session.replica} prunes {path}")
        for reason in self._objections(session.replica, made):
            self.find(f"{session.replica} deletes {path}: {reason}")

    def _objections(self, replica: str, made: Made) -> Iterator[str]:
        """Yield why the operator must not delete an object."""
        truth, now, primary = self._truth, self._truth.now(), self._truth.primaries.get(made.creator)
        yield from _objections_of_object(made)
        if primary is None:
            yield "no run has made it"
            return
        runs = [fact for fact in truth.runs_of(primary.uid) if fact.ended is not None]
        last = runs[-1] if runs else None
        read_at = truth.reads.get((replica, primary.path), 0.0)
        if primary.deleted_at is not None and primary.deleted_at <= read_at:
            yield "its primary is gone, or has another uid"
        yield from self._objections_of_others(made, now)
        if last is None or not last.is_complete or last.requeues:
            yield f"the last run isn't complete: {last and (last.status, last.doubts, last.requeues)}"
            return
        spec, state = primary.spec_at(read_at), last.state
        epoch = self._epoch_of(primary, read_at, last.ended or 0.0)
        same = [fact for fact in runs if fact.started >= epoch and fact.spec == spec and fact.state == state]
        named = [fact for fact in same if made.path in fact.named and not fact.is_lost]
        if named:
            yield f"the run of {named[-1].started:.3f} has named it with these inputs"
        if self._is_confirmed(made, primary, spec, state):
            return
        model = self._history.models[primary.kind]
        if model.mode != "delete":
            yield "the mode is report, and nobody has confirmed this"
        item = model.needs(primary.name, spec, state).get(made.path)
        if item is not None:
            way = Way((spec.get("ways") or {}).get(item.suffix, ""))
            if way not in UNPREDICTABLE or named:
                yield f"the spec needs it ({way or 'as usual'}, gate {item.gate or 'none'})"
        is_forged = primary.uid in truth.forged
        yield from () if is_forged else self._objections_of_edits(made, runs, same)
        yield from self._objections_of_time(replica, same, model.after_seconds, is_forged=is_forged)
        if not any(self._names(each, primary) for each in last.named):
            yield "the last run has named nothing at all, and nobody has confirmed this"

    def _names(self, path: str, primary: Primary) -> bool:
        """Return whether an object exists that names the primary, whoever made it."""
        made = self._truth.living.get(path)
        if made is None:
            return False
        is_owned = any(each.uid == primary.uid for each in owner_references_of(made.obj))
        annotations = ("operator-sdk/primary-resource-type", "operator-sdk/primary-resource")
        keys = (primary.name, f"ns/{primary.name}")  # those of Fleets have no namespace
        kind, key = (annotation_of(made.obj, each) for each in annotations)
        return is_owned or (kind == f"{primary.kind}.example.com" and key in keys)

    def _epoch_of(self, primary: Primary, read_at: float, ended: float) -> float:
        """Return since when the inputs are those that the operator has last read, or that a run had at its end."""
        edits = [since for since, _ in primary.specs if since <= read_at]
        states = [since for since, _ in self._truth.states[primary.kind] if since <= ended]
        return max(edits + states)

    def _is_confirmed(self, made: Made, primary: Primary, spec: RawObject, state: RoleState) -> bool:
        return any(
            (each.primary, each.spec, each.state) == (primary.uid, spec, state) and uid_of(made.obj) in each.uids
            for each in self._truth.confirmed
        )

    def _objections_of_others(self, made: Made, now: float) -> Iterator[str]:
        for fact in made.shared:
            if fact.ended is not None and fact.ended < now - 1.0:
                yield f"a run of {fact.kind} {fact.primary} uses it"

    def _objections_of_edits(self, made: Made, runs: list[PruningFact], same: list[PruningFact]) -> Iterator[str]:
        naming = [fact for fact in runs if made.path in fact.named and fact.ended is not None]
        if not naming:
            return
        last = naming[-1]
        later = runs[runs.index(last) + 1 :]
        edited = [fact for fact in later if fact.is_complete and fact.state == last.state and fact.spec != last.spec]
        if not edited:
            yield "no edit of the spec has made it obsolete, and nobody has confirmed this"
        ended = [fact.ended for fact in same if fact.is_complete and fact.ended is not None and not fact.is_lost]
        # After the first run without it, its operator looks at the object, unless a request is lost.
        seen = [at for at in self._truth.looks[made.path] if ended and at >= ended[0]]
        if seen and any(at > seen[0] for at in made.changes):
            yield "a user has changed it since it became obsolete"

    def _objections_of_time(
        self, replica: str, same: list[PruningFact], after: float, *, is_forged: bool
    ) -> Iterator[str]:
        complete = [fact for fact in same if fact.is_complete]
        if not is_forged and len(complete) < 3:
            yield f"only {len(complete)} complete runs have these inputs"
        decided_at = (complete[-1].ended or 0.0) if complete else 0.0
        wall = self._history.wall_of(replica, decided_at) - complete[0].wall_ended if complete else 0.0
        if not is_forged and wall < after - _SLACK_SECONDS:
            yield f"it is obsolete for {wall:.0f} s of the wall clock"
        own = [fact for fact in complete if fact.replica == replica]
        seen = self._truth.now() - (own[0].ended or 0.0) if own else 0.0
        if seen < min(after, _MONOTONIC_SECONDS) - _SLACK_SECONDS:
            yield f"this process has seen it obsolete for {seen:.1f} s"


def _objections_of_object(made: Made) -> Iterable[str]:
    """Yield why an object must stay, whatever a spec needs."""
    obj = made.obj
    if not made.creator:
        yield "a user has made it"
    if made.kind in NEVER or not (made.kind in PRUNED or made.is_marked):
        yield f"the kind {made.kind.gvk.kind} isn't pruned"
    if made.is_kept or annotation_of(obj, PRUNE) == "false":
        yield "a user has opted it out"
    if made.was_adopted or annotation_of(obj, ADOPT) == "true" or labels_of(obj).get(HELM) == "Helm":
        yield "it is adopted, or belongs to a Helm release"
    if made.has_second_owner or len(owner_references_of(obj)) > 1:
        yield "it has a second owner"
