"""A plan and the request for it, as values: what the runs of each object would change, and what remains unknown.

``rolecall.workbench.plan.output`` displays them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rolecall.kube.errors import NotFoundError, NotServedError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.workbench.comparison.reports import TaskName

ABSENT: Final = (NotFoundError, NotServedError)
"""The errors of a read in a sandbox of an object that doesn't exist; a run may define a kind and remove it."""


class PlanError(Exception):
    """A plan cannot be made; the text is one line with the problem, its location, and the remedy."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request to plan one object (``kind`` and ``name``), the objects in ``files``, or all (``everything``).

    ``kind`` can be in any form that kubectl accepts (``Foo``, ``foo``, ``foos``, ``foos.example.com``); with
    ``everything`` it selects a kind and may be empty. An object in a file is planned as if the file had been applied.
    With ``follows_controllers`` the plan includes the changes that Kubernetes' controllers make because of it.

    ``definitions`` are the CustomResourceDefinitions of the project. They replace those of the cluster, unless the plan
    ``uses_cluster_definitions``.
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
    definitions: tuple[RawObject, ...] = ()
    uses_cluster_definitions: bool = False


@dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """The kinds whose definitions in the project are ``different`` from those in the cluster, or ``new`` there.

    The plan uses those of the project, unless it ``uses_cluster``.
    """

    different: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    uses_cluster: bool = False

    def sentence(self, done: str) -> str:
        """Return a sentence about the kinds, and the definitions that were used; empty if there are no such kinds."""
        kinds = [*self.different, *(f"{kind} (new)" for kind in self.new)]
        if not kinds:
            return ""
        used = "the cluster's" if self.uses_cluster else "the project's (--cluster-crds: the cluster's)"
        return f"The project's CRDs differ from the cluster's: {', '.join(kinds)}; {done} with {used}"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """How the runs' own requests changed one object.

    ``before`` is None if it did not exist, ``after`` is None if it was deleted. ``tasks`` requested the change, in
    their order. Both objects are as the API server returned them, including noise such as resource versions. With
    ``writes_status`` a request wrote the status: through the subresource, or with the whole object if the kind has no
    subresource. Otherwise the status comes from controllers.
    """

    gvk: GVK
    key: ObjectKey
    before: RawObject | None
    after: RawObject | None
    tasks: tuple[TaskName, ...] = ()
    writes_status: bool = False


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A write as the task sent it, without the owner that the proxy may add; ``status`` is the sandbox's response."""

    task: TaskName
    method: str
    target: str
    content_type: str
    body: bytes
    status: int


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """What would happen to one object and because of its runs.

    ``status_before`` and ``status_after`` are the whole status of the primary. ``stopped_at`` names the task up to
    which the plan is complete, and the reason; it is empty for a complete plan. ``withheld`` are tasks that a plan does
    not run and whose results were not used. ``assumptions`` are sentences. ``failure`` is empty unless the runs would
    fail. ``obsolete`` are sentences about objects that the role no longer names, and that pruning deletes without
    asking; ``proposed`` those that it proposes to a person.
    ``rejected`` is why the project's definition rejects the object as it is stored; empty if it does not.

    ``secrets`` are values that must not be displayed, in addition to those of the Secrets in ``changes`` and
    ``writes``: the values of Secrets that the runs have read, and those that the watch marks as ``sensitive``.
    ``started`` and ``ended`` are the POSIX times between which the runs took place.
    """

    gvk: GVK
    key: ObjectKey
    changes: tuple[ObjectChange, ...] = ()
    writes: tuple[PlannedWrite, ...] = ()
    status_before: Mapping[str, Any] = field(default_factory=dict)
    status_after: Mapping[str, Any] = field(default_factory=dict)
    obsolete: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()
    rejected: str = ""
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
    """``count`` objects that Kubernetes' controllers create or delete; a generated name ends with ``*``."""

    gvk: GVK
    key: ObjectKey
    is_deletion: bool
    count: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The plans of all requested objects, in their order; ``assumptions`` apply to all of them.

    ``controllers`` are the resulting changes of Kubernetes' controllers; None if they were not requested.
    """

    objects: tuple[ObjectPlan, ...]
    assumptions: tuple[str, ...] = ()
    controllers: tuple[ControllerChange, ...] | None = None
    definitions: DefinitionChanges = DefinitionChanges()
