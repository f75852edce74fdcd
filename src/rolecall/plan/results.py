"""What a plan found out: for each object what its runs would change, which status they would leave, and what is open.

These are values; ``rolecall.plan.rendering`` shows them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from rolecall.kube.references import GVK, ObjectKey, RawObject


class ExitCode(IntEnum):
    """What the exit code of ``rolecall plan`` and ``rolecall replay`` says; the highest one of several objects wins."""

    SAME = 0
    FAILED = 1
    DIFFERENT = 2
    INCOMPLETE = 3


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task as people find it: its name with the role, and its file and line."""

    name: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """What the runs' own requests did to one object.

    ``before`` is None if it did not exist, ``after`` is None if it was deleted. ``tasks`` asked for it, in their order.
    Both are as the API server returned them: noise such as resource versions is not yet removed.
    """

    gvk: GVK
    key: ObjectKey
    before: RawObject | None
    after: RawObject | None
    tasks: tuple[TaskName, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A write as the task sent it, without the owner that the proxy may add; ``status`` is the shadow's answer."""

    task: TaskName
    method: str
    target: str
    content_type: str
    body: bytes
    status: int


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """What would happen to one object and by its runs.

    ``status_before`` and ``status_after`` are the whole status of the primary. ``stopped_at`` says up to which task the
    plan is complete, and why; it is empty if the plan is complete. ``withheld`` are tasks that a plan does not run and
    whose results nobody used. ``assumptions`` are sentences. ``failure`` is empty unless the runs would fail.
    """

    gvk: GVK
    key: ObjectKey
    changes: tuple[ObjectChange, ...] = ()
    writes: tuple[PlannedWrite, ...] = ()
    status_before: Mapping[str, Any] = field(default_factory=dict)
    status_after: Mapping[str, Any] = field(default_factory=dict)
    requeue_after_seconds: float | None = None
    rounds: int = 1
    has_settled: bool = True
    stopped_at: str = ""
    failure: str = ""
    withheld: tuple[TaskName, ...] = ()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The plans of all objects that were asked for, in their order."""

    objects: tuple[ObjectPlan, ...]
    seconds: float = 0.0
