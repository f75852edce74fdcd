"""The contents of the pages as plain values: the same for HTML, JSON, and programs that read the JSON.

Times are seconds since the epoch. Strings may come from anyone who can write an object, so renderers must escape them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, Final

from rolecall.kube.readiness import Verdict
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.record.history import RunLine
from rolecall.runner.record.timeline import TimelineRequest, TimelineTask

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEP: Final = 10
_MIN_SHARED: Final = 20
"""Shorter messages may end equally by chance."""


class State(StrEnum):
    """The state of an object, most important first."""

    FAILED = "failed"
    RUNNING = "running"
    DELETING = "deleting"
    PAUSED = "paused"
    PENDING = "pending"
    SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """The operator that responds; ``text`` describes its role.

    ``leader`` is the pod or host of the leader if it is another replica, and ``command`` shows that one's dashboard.
    """

    version: str
    text: str
    leader: str
    command: str
    is_working: bool
    runs: int
    most_runs: int | None
    shards: tuple[int, ...] | None
    """The shards that it holds, None if replicas don't share the work."""
    shard_count: int


@dataclass(frozen=True, slots=True)
class KindView:
    """A watched kind, the number of its objects in each state, and its work queue."""

    id: str
    kind: str
    api_version: str
    content: str
    objects: int
    states: dict[str, int]
    queued: int
    waiting: int
    running: int
    workers: int
    trouble: str
    """Why its objects may be out of date or missing, empty while they are watched."""
    as_of: float | None
    """When its objects were last known to be current, None before they have been listed."""


@dataclass(frozen=True, slots=True)
class WaitView:
    """What an object waits for; ``until`` is a time, or None if it is unknown."""

    text: str
    until: float | None = None
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowView:
    """An object in a list; ``message`` is why it failed, with secrets masked.

    It is the message of the last run, else the type and the reason of a condition. ``failing_since`` is the time of its
    first failure since it succeeded last, None if it isn't failing. A failing object may be running again.
    """

    kind: str
    kind_name: str
    namespace: str
    name: str
    state: State
    message: str
    failing_since: float | None
    last_run: RunLine | None
    waits_for: WaitView


@dataclass(frozen=True, slots=True)
class GroupView:
    """Equal failures of several objects: the ID of the group, its heading and message, and its first objects.

    ``total`` is the number of objects of the kind that match the query, failing or not.
    """

    id: str
    kind: str
    heading: str
    message: str
    since: float | None
    count: int
    total: int
    first: tuple[ObjectKey, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A query: a kind by its ID, a namespace, a state, a part of the name, and a group of equal failures by its ID.

    ``page`` counts from 1.
    """

    kind: str = ""
    namespace: str = ""
    state: str = ""
    text: str = ""
    failure: str = ""
    sort: str = "failing"
    page: int = 1


@dataclass(frozen=True, slots=True)
class ListView:
    """The kinds, and one page of the matching objects.

    ``states`` are the numbers of objects in each state that match the rest of the query. ``namespaces`` are those of
    the objects of the selected kinds, in order, up to a limit. ``groups`` are the largest groups of equal failures, and
    ``more_groups`` is the number of the others.
    """

    replica: ReplicaView
    kinds: tuple[KindView, ...]
    states: dict[str, int]
    namespaces: tuple[str, ...]
    query: Query
    groups: tuple[GroupView, ...]
    more_groups: int
    rows: tuple[RowView, ...]
    found: int
    pages: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in a status; ``message`` is empty unless a record has it, in which secrets are masked."""

    type: str
    status: str
    reason: str
    since: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ConditionGroup:
    """Conditions with one message, which is shown once."""

    message: str
    conditions: tuple[Condition, ...]


def condition_groups(conditions: tuple[Condition, ...]) -> list[ConditionGroup]:
    """Return the conditions in groups of equal messages, each at the place of its first condition.

    A message that only adds a few words before another one, as that of ``Reconciling`` after a failure, belongs to it.
    """
    whole = sorted({each.message for each in conditions}, key=len)
    found: dict[str, list[Condition]] = {}
    for condition in conditions:
        message = condition.message
        same = (each for each in whole if len(each) >= _MIN_SHARED and message.endswith(each))
        found.setdefault(next(same, message), []).append(condition)
    return [ConditionGroup(message, tuple(members)) for message, members in found.items()]


@dataclass(frozen=True, slots=True)
class TriggerView:
    """Something whose changes reconcile an object, and their relation."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class OwnedView:
    """An object in the tree, and the objects that it owns; ``page`` is the ID of its kind if it has a page."""

    kind: str
    api_version: str
    namespace: str
    name: str
    page: str
    verdict: Verdict
    owned: tuple["OwnedView", ...] = ()


@dataclass(frozen=True, slots=True)
class EventView:
    """An Event about an object; ``last`` is when it occurred last."""

    type: str
    reason: str
    message: str
    count: int
    last: float


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What the API server returned about an object when its page was opened.

    ``trouble`` is why it is older than the page, ``notes`` are what is missing and why. ``spec`` are lines of YAML.
    ``knows_owned`` is whether ``owned`` has all owned objects; if not, the object may own others. ``obsolete`` are the
    objects that prune deletes without asking, ``proposed`` those that a person confirms with the command ``confirm``.
    """

    as_of: float | None = None
    trouble: str = ""
    notes: tuple[str, ...] = ()
    owned: tuple[OwnedView, ...] = ()
    knows_owned: bool = False
    events: tuple[EventView, ...] = ()
    spec: tuple[str, ...] = ()
    obsolete: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()
    confirm: str = ""


@dataclass(frozen=True, slots=True)
class CommandView:
    """A command to copy, and its purpose."""

    purpose: str
    command: str


@dataclass(frozen=True, slots=True)
class DeletionView:
    """A run by its ID, and how many objects prune has deleted after it."""

    run: str
    started: float
    objects: int


@dataclass(frozen=True, slots=True)
class ObjectView:
    """One object; ``failures`` are the whole messages of its last run, from the record, in which secrets are masked.

    ``deletions`` are those after its recorded runs, the newest first.
    """

    replica: ReplicaView
    row: RowView
    failures: tuple[str, ...]
    commands: tuple[CommandView, ...]
    trouble: str
    as_of: float | None
    api_version: str
    generation: int
    shard: int | None
    is_mine: bool
    """Whether this replica reconciles it."""
    conditions: tuple[Condition, ...]
    runs: tuple[RunLine, ...]
    triggers: tuple[TriggerView, ...]
    more_reads: int
    """The number of reads that are left out of ``triggers``."""
    deletions: tuple[DeletionView, ...] = ()
    cluster: ClusterView = field(default_factory=ClusterView)


@dataclass(frozen=True, slots=True)
class ManifestView:
    """A deleted object, and the lines of its manifest as YAML."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, from its record."""

    replica: ReplicaView
    kind: str
    kind_name: str
    namespace: str
    name: str
    id: str
    started: str
    seconds: float
    outcome: str
    because: tuple[str, ...]
    first_because: tuple[str, ...]
    """Why the first of the failed runs ran that this one repeats."""

    content: str
    is_finalizing: bool
    is_complete: bool
    requeue_after_seconds: float | None
    prune: Mapping[str, tuple[str, ...]]
    """What is obsolete, proposed, or was deleted, and the reasons why something wasn't."""

    manifests: tuple[ManifestView, ...]
    """The deleted objects."""

    failures: tuple[str, ...]
    status: tuple[str, ...]
    """The lines of the status as YAML."""
    tasks: tuple[TimelineTask, ...]
    other_requests: tuple[TimelineRequest, ...]
    left_out: int
    """The number of requests that are left out."""


def kind_id(gvk: GVK) -> str:
    """Return the name of a kind in addresses: ``Foo.v1.example.com``, ``Pod.v1`` for the core group."""
    return ".".join(part for part in (gvk.kind, gvk.version, gvk.group) if part)


def to_json(view: Any) -> Any:
    """Return a view as JSON values, its names in camel case."""
    if is_dataclass(view):
        return {in_json(each.name): to_json(getattr(view, each.name)) for each in fields(view)}
    if isinstance(view, dict):
        return {str(name): to_json(value) for name, value in view.items()}
    return [to_json(each) for each in view] if isinstance(view, list | tuple) else view


def in_json(name: str) -> str:
    """Return the name of a field in JSON."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


SHAPES: Final = {
    State.FAILED: "✕",
    State.RUNNING: "▶",
    State.DELETING: "⊘",
    State.PAUSED: "‖",
    State.PENDING: "○",
    State.SUCCEEDED: "✓",
}
"""Shapes that distinguish states without colors."""


def ago(seconds: float, now: float) -> str:
    """Return the time since a point in time."""
    passed = now - seconds
    return "just now" if passed < _STEP else f"{_rounded(passed)} ago"


def lasting(seconds: float, now: float) -> str:
    """Return for how long something exists that began at a point in time."""
    return f"for {_rounded(max(_STEP, now - seconds))}"


def until(seconds: float, now: float) -> str:
    """Return the time until a point in time."""
    left = seconds - now
    return "now" if left < 1 else f"in {_rounded(left)}"


def _rounded(seconds: float) -> str:
    """Return a duration in one unit, rounded, so that the page doesn't change every second."""
    if seconds < _MINUTE:
        return f"{max(1, int(seconds)) if seconds < _STEP else int(seconds) // _STEP * _STEP} s"
    if seconds < _HOUR:
        return f"{int(seconds) // _MINUTE} min"
    return f"{int(seconds) // _HOUR} h" if seconds < 2 * _DAY else f"{int(seconds) // _DAY} days"
