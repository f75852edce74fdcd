"""One run of a role or playbook for an object, and how it reaches the API server.

The proxy tells a run what it reads, writes, and deletes. The run passes this on to all that must know: its record, the
read set of its object, and those who decide which changes trigger the object.

Each run has its own secret for the proxy, valid as long as the run lasts. The secret is in the environment of the run
and in a kubeconfig of mode 0600 outside the artifacts; both go with the run. When a run ends the secret is revoked
first, so that nothing can be written after the run, even by a process of it that is still alive.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.forward import NewTraceparent
from rolecall.runner.proxy.ownership import Ownership, ownership_of
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.seen_objects import SeenObject
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import Exchange, PendingRead, ProxiedRun, Read
from rolecall.runner.prune.observations import Observations
from rolecall.runner.reads.read_sets import ObjectReads
from rolecall.runner.runs.discovery_image import PROXY_VARIABLE
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.runner.runs.shared_discovery import RunDiscoveryHandle
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import write_private

KUBECONFIG_PREFIX = "kubeconfig-"

SECRET_VARIABLE: Final = "ROLECALL_RUN_SECRET"  # noqa: S105 - a name
"""The secret of a run for rolecall's own code, such as the callback plugin; clients find it in the kubeconfig."""

OnDependent = Callable[[ApiResource, Ownership], None]
"""Receives the kind of a dependent that a run is about to create, or has read, and how it names its primary."""


Lacks = Callable[[str, ObjectKey], bool]
"""Returns whether there is certainly no object of a kind (``Kind.group``) with this key."""


class RunListener(Protocol):
    """Records the events and requests of one run; must return immediately."""

    def on_event(self, event: RunEvent) -> None:
        """Record an event of Ansible."""

    def on_exchange(self, exchange: Exchange) -> None:
        """Record a request of the run and its response."""

    @property
    def new_traceparent(self) -> NewTraceparent | None:
        """Gives each request of the run its place in a trace; None if there is no trace."""


@dataclass(slots=True, eq=False, kw_only=True)
class Run(ProxiedRun):
    """A run of an operator; ``record`` is None without a recorder, ``reads`` if the watch doesn't follow reads."""

    own_writes: OwnWrites
    on_dependent: OnDependent
    lacks: Lacks = lambda _kind, _key: False
    expect: Callable[[RawObject], None] = lambda _obj: None
    """Receives each dependent as the run has read or written it."""
    record: RunListener | None = None
    reads: ObjectReads | None = None
    discovery: RunDiscoveryHandle | None = None
    observations: Observations = field(default_factory=Observations)

    def about_to_write(self, group: str) -> None:
        """Let the run query the API server again if the write may change what is served."""
        if self.discovery is not None:
            self.discovery.record_write(group)

    def wrote(self, obj: RawObject) -> None:
        """Note an own write, which doesn't trigger the object."""
        self.own_writes.record_write((self.owner.gvk, self.owner.key), obj)
        self.observations.changes |= uid_of(obj) != self.owner.uid
        if ownership_of(obj, self.owner) is not None:
            self.expect(obj)
        if self.reads is not None:
            self.reads.wrote(obj)

    def deleted(self, uid: str) -> None:
        """Note an own deletion, which doesn't trigger the object."""
        self.own_writes.record_removal((self.owner.gvk, self.owner.key), uid)
        self.observations.changes = True

    def found_dependent(self, resource: ApiResource, ownership: Ownership) -> None:
        """Let the kind of a dependent be watched."""
        self.on_dependent(resource, ownership)

    def saw_dependent(self, obj: RawObject) -> None:
        """Let the first list of the kind be compared with a dependent."""
        self.expect(obj)

    def is_gone(self, kind: str, primary: str) -> bool:
        """Return whether the primary that two annotations name certainly doesn't exist."""
        namespace, _, name = primary.rpartition("/")
        return self.lacks(kind, ObjectKey(namespace, name))

    def reading(self, read: Read) -> PendingRead | None:
        """Register a read in the read set of the object."""
        return None if self.reads is None else self.reads.register(read)

    def responded(self, info: RequestInfo, status: int, seen: tuple[SeenObject, ...] | None) -> None:
        """Note what the run names."""
        self.observations.add(info, status, seen)

    def exchanged(self, exchange: Exchange) -> None:
        """Record a request and its response."""
        if self.record is not None:
            self.record.on_exchange(exchange)


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The variables with which one run reaches the API server until ``revoke``; secret ones are kept apart.

    The values of ``secrets`` appear in no file, event, or message of the run. ``discovery`` gives a warm run the served
    resources; without it, the run queries the API server.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    revoke: Callable[[], Awaitable[None]] | None = None
    discovery: RunDiscoveryHandle | None = None


@asynccontextmanager
async def credentials(
    proxy: Proxy, run: Run, directory: Path, environment: Mapping[str, str]
) -> AsyncIterator[RunEnvironment]:
    """Yield an environment in which a run acts with the operator's permissions; it also has the given variables.

    The kubeconfig is in ``directory``. The tasks of a recorded run name themselves in their requests.
    """
    own = proxy.register(run)
    kubeconfig = directory / f"{KUBECONFIG_PREFIX}{run.id}"
    variables = {**environment, **own.environment()}
    variables |= {"KUBECONFIG": str(kubeconfig), "K8S_AUTH_KUBECONFIG": str(kubeconfig), PROXY_VARIABLE: own.url}
    if run.is_recorded:  # for the callback plugin task_credentials
        variables["ROLECALL_TASK_CREDENTIALS"] = "1"
    try:
        await run_in_thread(lambda: write_private(kubeconfig, own.kubeconfig()))
        yield RunEnvironment(variables, {SECRET_VARIABLE: own.secret}, lambda: proxy.revoke(run), run.discovery)
    finally:
        await proxy.revoke(run)
        await run_in_thread(lambda: kubeconfig.unlink(missing_ok=True))
