"""The writes for one object in their order, those of its runs and of the operator, and the crash of the operator.

``WriteLog`` receives each write after the API server has committed it and before the run gets the response, and only
if it changed something. At the chosen write, it kills all processes of the run with SIGKILL, and the operator
counts as dead: from then on, neither the proxy nor the operator sends a write.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final, Self

from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.request_info import parse
from rolecall.runner.proxy.sessions import ProxiedRequest, RequestOrigin
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.runs.own_writes import OwnWrites, Request
from rolecall.runner.runs.process_marks import processes_of_run
from rolecall.system.processes import KILL_LIMIT_SECONDS, kill_all
from rolecall.workbench.comparison.end_states import ObjectId
from rolecall.workbench.comparison.reports import TaskName

OPERATOR: Final = "the operator"
_request: ContextVar[ProxiedRequest | None] = ContextVar("request", default=None)
"""The write that the proxy is handling in the current task; None if the operator writes."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write that changed something: its request, the name of a created object, and the task that sent it.

    A generated name ends with ``*``. ``origin`` is None for a write of the operator.
    """

    method: str
    target: str
    name: str = ""
    origin: RequestOrigin | None = None
    task: TaskName = field(default_factory=lambda: TaskName(OPERATOR))

    @property
    def request(self) -> str:
        """The request as it is displayed."""
        return f"{self.method} {self.target}" + (f" ({self.name})" if self.name else "")

    def of_task_in(self, record: RunRecord) -> "Write":
        """Return the write with the task that sent it."""
        if self.origin is None:
            return self
        return replace(self, task=TaskName.of(record, self.origin) or TaskName("an unknown task"))


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The moment of a crash: after the write that is like ``one`` and ``two``, the one with the number ``occurrence``.

    The order of writes depends on the time, so the number of a write is not enough. ``one`` and ``two`` are the same
    write in two uninterrupted runs. If they differ, a name is random, and only the resource counts.
    """

    one: Write
    two: Write
    occurrence: int

    @classmethod
    def after(cls, number: int, first: Sequence[Write], second: Sequence[Write]) -> Self:
        """Return the crash point after a write of the first run, by its number from 1."""
        one = first[number - 1]
        two = second[number - 1] if number <= len(second) else one
        two = two if _resource_of(one) == _resource_of(two) else one
        return cls(one, two, sum(_are_like(each, one, two) for each in first[:number]))

    def is_like(self, write: Write) -> bool:
        """Return whether a write may be the one of the crash."""
        return _are_like(write, self.one, self.two)


def _are_like(write: Write, one: Write, two: Write) -> bool:
    same_name = one.request == two.request
    return write.request == one.request if same_name else _resource_of(write) == _resource_of(one)


def _resource_of(write: Write) -> tuple[str, ...]:
    info = parse(write.method, write.target)
    return write.method, info.group, info.resource, info.namespace, info.subresource


@dataclass(slots=True)
class Liveness:
    """Whether the operator is alive; a dead one writes nothing, and neither do its runs."""

    is_alive: bool = True


@dataclass(slots=True, kw_only=True)
class WriteLog(OwnWrites):
    """Keeps the writes for one primary in their order, and kills the operator at the ``crash_point``.

    ``primary`` is the primary as it is before the first write. ``stop`` is called at the crash.
    """

    liveness: Liveness
    resource: ApiResource
    primary: RawObject
    crash_point: CrashPoint | None = None
    stop: Callable[[], object] = lambda: None
    writes: list[Write] = field(default_factory=list)
    objects: dict[ObjectId, str] = field(default_factory=dict)
    """The version of each object as it was last written, empty if it was deleted."""

    with_status: set[ObjectId] = field(default_factory=set)
    """The objects whose status a run has written."""

    run_changes: int = 0
    """How many writes of runs changed something other than an Event."""

    _occurrences: int = 0
    _last: ProxiedRequest | None = None

    @property
    def primary_id(self) -> ObjectId:
        """The primary."""
        gvk = self.resource.gvk
        return ObjectId(gvk.group, gvk.version, self.resource.plural, ObjectKey.of_object(self.primary))

    async def before_write(self, request: ProxiedRequest) -> None:
        """Remember the write that the current task handles."""
        _request.set(request)

    def record_write(self, request: Request, obj: RawObject) -> None:
        """Give a write that changed an object its number."""
        OwnWrites.record_write(self, request, obj)
        proxied = _request.get()
        if proxied is not None:
            self._run_wrote(proxied, obj)
            return
        before, self.primary = metadata_of(self.primary).get("finalizers"), obj
        changes_finalizers = (before or []) != (metadata_of(obj).get("finalizers") or [])
        path = self.resource.path_of(ObjectKey.of_object(obj))
        self._number(Write("PUT", path if changes_finalizers else f"{path}/status"), "")

    def record_removal(self, request: Request, uid: str) -> None:
        """Give a write that deleted an object for good its number."""
        OwnWrites.record_removal(self, request, uid)
        if (proxied := _request.get()) is not None:
            self._run_wrote(proxied, None)

    def _run_wrote(self, proxied: ProxiedRequest, obj: RawObject | None) -> None:
        info, metadata = proxied.info, metadata_of(obj or {})
        key = info.key if info.name else ObjectKey.of_object(obj or {})
        ident = ObjectId(info.group, info.version, info.resource, key)
        if info.subresource in ("", "status", "scale"):
            self.objects[ident] = resource_version_of(obj or {})
            self.with_status |= {ident} if info.subresource == "status" else set()
            if ident == self.primary_id and obj is not None:
                self.primary = obj
        if proxied is self._last:  # a request may change several objects
            return
        self._last = proxied
        self.run_changes += not ident.is_event
        is_created = info.verb == "create" and not info.subresource
        prefix = metadata.get("generateName") if is_created else ""
        name = f"{prefix}*" if prefix else str(metadata.get("name") or "") if is_created else ""
        self._number(Write(proxied.method, proxied.path, name, proxied.origin), proxied.run.id)

    def _number(self, write: Write, run: str) -> None:
        if not self.liveness.is_alive:
            return  # was sent before the crash
        self.writes.append(write)
        if self.crash_point is None or not self.crash_point.is_like(write):
            return
        self._occurrences += 1
        if self._occurrences != self.crash_point.occurrence:
            return
        self.liveness.is_alive = False
        if run:
            kill_all(lambda: processes_of_run(run), KILL_LIMIT_SECONDS)
        self.stop()
