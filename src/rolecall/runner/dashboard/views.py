"""What the pages show, as plain values: the same for the HTML page, its JSON, and programs that read that.

Times are seconds since the epoch. Texts may come from anybody who can write an object: whoever shows them escapes them.

How times and states read, on the page and in a terminal.
"""

from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from rolecall.kube.references import GVK


class State(StrEnum):
    """What there is to say first about an object."""

    RUNNING = "running"
    FAILED = "failed"
    DELETING = "deleting"
    PAUSED = "paused"
    PENDING = "pending"
    SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """The operator that answers; ``text`` says in a sentence what it may do."""

    version: str
    text: str
    is_working: bool
    runs: int
    most_runs: int | None
    shards: tuple[int, ...] | None
    """The shards that it holds, None if the work is not divided."""
    shard_count: int


@dataclass(frozen=True, slots=True)
class KindView:
    """A watched kind, how many of its objects are in which state, and its work queue."""

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
    """Why its objects cannot be listed, empty if they can."""


@dataclass(frozen=True, slots=True)
class WaitView:
    """What an object waits for; ``until`` is a time, or None if it is not known."""

    text: str
    until: float | None = None
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunLineView:
    """A run in one line; ``has_record`` says whether it can be looked at."""

    id: str
    started: float
    seconds: float
    outcome: str
    because: tuple[str, ...]
    tasks: int
    requests: int
    has_record: bool


@dataclass(frozen=True, slots=True)
class RowView:
    """An object in a list."""

    kind: str
    kind_name: str
    namespace: str
    name: str
    state: State
    last_run: RunLineView | None
    waits_for: WaitView


@dataclass(frozen=True, slots=True)
class Query:
    """What to list: a kind by its ID, a namespace, a state, a part of the name; ``page`` counts from 1."""

    kind: str = ""
    namespace: str = ""
    state: str = ""
    text: str = ""
    sort: str = "name"
    page: int = 1


@dataclass(frozen=True, slots=True)
class ListView:
    """The kinds, and one page of the objects that were asked for."""

    replica: ReplicaView
    kinds: tuple[KindView, ...]
    query: Query
    rows: tuple[RowView, ...]
    found: int
    pages: int


@dataclass(frozen=True, slots=True)
class ConditionView:
    """A condition; ``message`` is empty unless a record has it, in which secrets are masked."""

    type: str
    status: str
    reason: str
    since: str
    message: str


@dataclass(frozen=True, slots=True)
class WakeView:
    """Something whose changes reconcile an object, and how the two belong together."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class ObjectView:
    """One object."""

    replica: ReplicaView
    row: RowView
    api_version: str
    generation: int
    shard: int | None
    is_mine: bool
    """Whether this replica reconciles it."""
    conditions: tuple[ConditionView, ...]
    runs: tuple[RunLineView, ...]
    wakes: tuple[WakeView, ...]
    more_reads: int
    """How many things that were read are not in ``wakes``, because there are many."""


@dataclass(frozen=True, slots=True)
class Span:
    """When something was, in thousandths of the whole run."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request of a task; ``effects`` are the lines of diffs."""

    verb: str
    target: str
    status: int | None
    has_failed: bool
    seconds: float
    span: Span | None
    notes: tuple[str, ...]
    effects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task with its requests."""

    name: str
    host: str
    place: str
    result: str
    seconds: float
    span: Span | None
    is_hidden: bool
    message: str
    items: tuple[tuple[str, str], ...]
    requests: tuple[RequestView, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, as its record tells it."""

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
    content: str
    is_finalizing: bool
    is_complete: bool
    requeue_after_seconds: float | None
    failures: tuple[str, ...]
    status: tuple[str, ...]
    """The lines of the status as YAML."""
    tasks: tuple[TaskView, ...]
    other_requests: tuple[RequestView, ...]
    left_out: int
    """How many requests are not shown, because there are many."""


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
    """Return the name that a field has in JSON."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


SHAPES: Final = {
    State.RUNNING: "▶",
    State.FAILED: "✕",
    State.DELETING: "⊘",
    State.PAUSED: "‖",
    State.PENDING: "○",
    State.SUCCEEDED: "✓",
}
"""What tells states apart for those who see no colours, besides their words."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEP: Final = 10


def ago(seconds: float, now: float) -> str:
    """Return how long ago a time was."""
    passed = now - seconds
    return "just now" if passed < _STEP else f"{_rounded(passed)} ago"


def until(seconds: float, now: float) -> str:
    """Return how far away a time is."""
    left = seconds - now
    return "now" if left < 1 else f"in {_rounded(left)}"


def _rounded(seconds: float) -> str:
    """Return a time in one unit: a page that changed with every second would always be new."""
    if seconds < _MINUTE:
        return f"{max(1, int(seconds)) if seconds < _STEP else int(seconds) // _STEP * _STEP} s"
    if seconds < _HOUR:
        return f"{int(seconds) // _MINUTE} min"
    return f"{int(seconds) // _HOUR} h" if seconds < 2 * _DAY else f"{int(seconds) // _DAY} days"


def utc(seconds: float) -> str:
    """Return a time as in manifests."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
