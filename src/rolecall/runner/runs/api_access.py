"""How a run reaches the API server: with a secret of its own for the proxy, valid for as long as the run lasts.

The secret is in the environment of the run and in a kubeconfig of mode 0600 outside the artifacts; both go with the
run. When a run ends the secret is revoked first, so that nothing can be written after the run, even by a process of it
that is still alive.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy import Exchange, NewTraceparent, Ownership, Proxy, SessionSpec
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.reads.read_sets import ReadSets
from rolecall.runner.runs.shared_discovery import DiscoveryGrant, SharedDiscovery
from rolecall.system.blocking_work import in_thread
from rolecall.system.private_files import write_private


class WriteRecorder(Protocol):
    """Takes note of what runs write; ``rolecall.runner.reconcile.own_writes.OwnWrites`` is one."""

    def record_write(self, request: tuple[GVK, ObjectKey], obj: RawObject) -> None:
        """Take note of an object as the API server returned it."""

    def record_removal(self, request: tuple[GVK, ObjectKey], uid: str) -> None:
        """Take note of an object that is gone."""


class RequestListener(Protocol):
    """Is told about the requests of one run; must return at once."""

    def on_exchange(self, exchange: Exchange) -> None:
        """Take note of a request of the run and its answer."""

    @property
    def new_traceparent(self) -> NewTraceparent | None:
        """What gives each request of the run its place in a trace, None if there is no trace."""


OnDependent = Callable[[ApiResource, Ownership], None]
KUBECONFIG_PREFIX = "kubeconfig-"
TASK_CREDENTIALS = {"ROLECALL_TASK_CREDENTIALS": "1"}
"""Asks the callback plugin ``task_credentials`` to name each task in its requests."""

SECRET_VARIABLES = frozenset({"K8S_AUTH_API_KEY"})


@dataclass(frozen=True, slots=True)
class RunCredentials:
    """The environment by which one run reaches the API server until ``revoke``; secret variables are kept apart.

    ``discovery`` tells the run what the API server serves; without it, the run asks.
    """

    environment: dict[str, str]
    secret_environment: dict[str, str]
    revoke: Callable[[], Awaitable[None]]
    discovery: DiscoveryGrant | None = None


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Gives the runs of one kind access to the API server.

    With ``reads``, they are told what each run reads and writes. ``discovery`` is that of the same API server.
    """

    client: Client
    proxy: Proxy
    own_writes: WriteRecorder
    on_dependent: OnDependent
    directory: Path
    inject_owner: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables of every run."""
    reads: ReadSets | None = None
    discovery: SharedDiscovery | None = None

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about a primary that is gone."""
        if self.reads is not None:
            self.reads.forget(key)

    @asynccontextmanager
    async def open(
        self, gvk: GVK, obj: RawObject, ident: str, listener: RequestListener | None = None
    ) -> AsyncIterator[RunCredentials]:
        """Yield the credentials of one run, which acts with the operator's rights on behalf of the object.

        With a ``listener``, which is told about each request of the run, tasks name themselves in their requests.
        """
        key = ObjectKey.of_object(obj)
        resource = await self.client.resource(gvk)
        owner = Owner(gvk, key, uid_of(obj), resource.namespaced)
        reads = None if self.reads is None else self.reads.start(owner)
        discovery = None if self.discovery is None else await self.discovery.for_run()

        def on_write(written: RawObject) -> None:
            self.own_writes.record_write((gvk, key), written)
            if reads is not None:
                reads.wrote(written)

        run = SessionSpec(
            request_gvk=gvk,
            key=key,
            uid=owner.uid,
            namespaced=resource.namespaced,
            inject_owner=self.inject_owner,
            on_write=on_write,
            on_removal=lambda uid: self.own_writes.record_removal((gvk, key), uid),
            on_dependent=self.on_dependent,
            ident=ident,
            on_exchange=None if listener is None else listener.on_exchange,
            new_traceparent=None if listener is None else listener.new_traceparent,
            reads=reads,
            before_write=None if discovery is None else discovery.note_write,
        )
        credentials = self.proxy.register(run)
        kubeconfig = self.directory / f"{KUBECONFIG_PREFIX}{ident}"
        variables = {
            **self.environment,
            **(TASK_CREDENTIALS if listener else {}),
            **credentials.environment(),
            "KUBECONFIG": str(kubeconfig),
            "K8S_AUTH_KUBECONFIG": str(kubeconfig),
        }
        try:
            await in_thread(lambda: write_private(kubeconfig, credentials.kubeconfig()))
            yield RunCredentials(
                {name: value for name, value in variables.items() if name not in SECRET_VARIABLES},
                {name: value for name, value in variables.items() if name in SECRET_VARIABLES},
                lambda: self.proxy.revoke(run),
                discovery,
            )
        finally:
            await self.proxy.revoke(run)
            await in_thread(lambda: kubeconfig.unlink(missing_ok=True))
