"""What a plan found out: for each object what its runs would change, which status they would leave, and what is open.

These are values; ``rolecall.workbench.plan.output`` shows them.

What somebody wants to have planned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch


class ExitCode(IntEnum):
    """What the exit code of ``rolecall plan`` and ``rolecall replay`` says about one object; see ``worst_of``."""

    SAME = 0
    FAILED = 1
    DIFFERENT = 2
    INCOMPLETE = 3


def worst_of(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the code for several objects: a failure is never hidden by what another object would do."""
    found = set(codes)
    return ExitCode.FAILED if ExitCode.FAILED in found else max(found, default=ExitCode.SAME)


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task as people find it: its name with the role, and its file and line; ``is_hidden`` if it may say no_log."""

    name: str
    place: str = ""
    is_hidden: bool = False

    @property
    def shown_place(self) -> str:
        """The place, relative to the working directory if it is below that."""
        return self.place.removeprefix(f"{Path.cwd()}/")


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """What the runs' own requests did to one object.

    ``before`` is None if it did not exist, ``after`` is None if it was deleted. ``tasks`` asked for it, in their order.
    Both are as the API server returned them: noise such as resource versions is not yet removed. ``writes_status`` says
    whether a request was for the status: for the subresource, or for the whole object if the kind has none. Otherwise
    the status is the work of controllers.
    """

    gvk: GVK
    key: ObjectKey
    before: RawObject | None
    after: RawObject | None
    tasks: tuple[TaskName, ...] = ()
    writes_status: bool = False


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A write as the task sent it, without the owner that the proxy may add; ``status`` is the sandbox's answer."""

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

    ``secrets`` are values that must not be shown, besides those of the Secrets in ``changes`` and ``writes``: those of
    Secrets that the runs have read, and what the watch marks as ``sensitive``. ``started`` and ``ended`` are the POSIX
    times between which the runs ran.
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
    secrets: tuple[str, ...] = field(default=(), repr=False)
    started: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True, slots=True)
class ControllerChange:
    """``count`` objects that controllers of Kubernetes make or delete; a name that is made up ends with ``*``."""

    gvk: GVK
    key: ObjectKey
    is_deletion: bool
    count: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The plans of all objects that were asked for, in their order; ``assumptions`` hold for all of them.

    ``controllers`` is what Kubernetes' controllers do because of it; None if that was not asked.
    """

    objects: tuple[ObjectPlan, ...]
    seconds: float = 0.0
    assumptions: tuple[str, ...] = ()
    controllers: tuple[ControllerChange, ...] | None = None


class PlanError(Exception):
    """A plan cannot be made; the text is one line that says what was found, where, and what to do."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A plan for one object (``kind`` and ``name``), for the objects in ``files``, or for all (``everything``).

    ``kind`` is as people write it (``Foo``, ``foo``, ``foos``, ``foos.example.com``); with ``everything`` it selects a
    kind and may be empty. An object in a file is planned as if the file had been applied. With ``follows_controllers``
    the plan says what the controllers of Kubernetes do because of it.
    """

    settings: Settings
    watches: tuple[Watch, ...]
    kind: str = ""
    name: str = ""
    namespace: str = ""
    files: tuple[Path, ...] = ()
    everything: bool = False
    runs_commands: bool = False
    follows_controllers: bool = False
