"""The writes for one object in their order, those of its runs and of the operator.

``WriteLog`` receives each write after the API server has committed it and before the run gets the response, and only
if it changed something.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final

from rolecall.kube.bodies import decode_object
from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.sessions import ProxiedRequest, RequestOrigin
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.runs.own_writes import OwnWrites, Request
from rolecall.workbench.comparison.end_states import ObjectId
from rolecall.workbench.comparison.reports import TaskName

OPERATOR: Final = "the operator"
_request: ContextVar[ProxiedRequest | None] = ContextVar("request", default=None)
"""The write that the proxy is handling in the current task; None if the operator writes."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write that changed something: its request, the name of a created object, and the task that sent it.

    A generated name ends with ``*``. For a write of the operator, ``origin`` and ``ident`` are None; ``ident`` is the
    object that was written otherwise.
    """

    method: str
    target: str
    name: str = ""
    origin: RequestOrigin | None = None
    task: TaskName = field(default_factory=lambda: TaskName(OPERATOR))
    ident: ObjectId | None = None
    body: bytes = b""
    content_type: str = ""

    @property
    def sent(self) -> RawObject:
        """The object in the body of the request, an empty one if that has none."""
        return decode_object(self.body, self.content_type) or {}

    @property
    def request(self) -> str:
        """The request as it is displayed."""
        return f"{self.method} {self.target}" + (f" ({self.name})" if self.name else "")

    def of_task_in(self, record: RunRecord) -> "Write":
        """Return the write with the task that sent it."""
        if self.origin is None:
            return self
        return replace(self, task=TaskName.of(record, self.origin) or TaskName("an unknown task"))


@dataclass(slots=True, kw_only=True)
class WriteLog(OwnWrites):
    """Keeps the writes for one primary in their order, and calls ``on_write`` after each, which everything waits for.

    ``primary`` is the primary as it is before the first write.
    """

    resource: ApiResource
    primary: RawObject
    on_write: Callable[[], None] = lambda: None
    writes: list[Write] = field(default_factory=list)
    objects: dict[ObjectId, str] = field(default_factory=dict)
    """The version of each object as it was last written, empty if it was deleted."""

    with_status: set[ObjectId] = field(default_factory=set)
    """The objects whose status a run has written."""

    run_changes: int = 0
    """How many writes of runs changed something other than an Event."""

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
        self._number(Write("PUT", path if changes_finalizers else f"{path}/status"))

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
        self._number(
            Write(
                proxied.method,
                proxied.path,
                name,
                proxied.origin,
                ident=ident,
                body=proxied.body,
                content_type=proxied.content_type,
            )
        )

    def _number(self, write: Write) -> None:
        self.writes.append(write)
        self.on_write()
