"""How a run reaches the API server: a secret of its own at the proxy, for as long as the run lasts.

The secret stands in the environment of the play and in a kubeconfig file of mode 0600 outside the artifacts; both end
with the run. It is revoked first, so that nothing is written any more once a run is over, whatever is still alive of
it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.proxy import Ownership, Proxy, ReadWatermark, SessionSpec
from rolecall.reconcile.own_writes import OwnWrites
from rolecall.runs.workspace import write_private

OnDependent = Callable[[ApiResource, Ownership], None]
KUBECONFIG_PREFIX = "kubeconfig-"
SECRET_VARIABLES = frozenset({"K8S_AUTH_API_KEY"})


@dataclass(frozen=True, slots=True)
class RunCredentials:
    """What one run may use until ``revoke`` is awaited: its environment, the part of it that is secret kept apart."""

    environment: dict[str, str]
    secret_environment: dict[str, str]
    revoke: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Opens the way to the API server for the runs of one kind.

    Reads of kinds that are not ``uncached`` may be answered from a cache where it is remembered what each primary's
    runs have ``seen``.
    """

    client: Client
    proxy: Proxy
    own_writes: OwnWrites
    on_dependent: OnDependent
    directory: Path
    inject_owner: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    """What runs are told besides."""
    uncached: frozenset[GVK] = frozenset()
    seen: dict[ObjectKey, ReadWatermark] | None = None

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of a primary that is gone."""
        if self.seen is not None:
            self.seen.pop(key, None)

    @asynccontextmanager
    async def open(self, gvk: GVK, obj: RawObject, ident: str) -> AsyncIterator[RunCredentials]:
        """Yield what lets one run talk to the API server as the operator, in the object's name."""
        key = ObjectKey.of_object(obj)
        resource = await self.client.resource(gvk)
        run = SessionSpec(
            request_gvk=gvk,
            key=key,
            uid=uid_of(obj),
            namespaced=resource.namespaced,
            inject_owner=self.inject_owner,
            on_write=lambda written: self.own_writes.note((gvk, key), written),
            on_removal=lambda uid: self.own_writes.note_removal((gvk, key), uid),
            on_dependent=self.on_dependent,
            ident=ident,
            watermark=self._seen_by(resource, obj),
            uncached=self.uncached,
        )
        credentials = self.proxy.register(run)
        kubeconfig = self.directory / f"{KUBECONFIG_PREFIX}{ident}"
        variables = {
            **self.environment,
            **credentials.environment(),
            "KUBECONFIG": str(kubeconfig),
            "K8S_AUTH_KUBECONFIG": str(kubeconfig),
        }
        try:
            write_private(kubeconfig, credentials.kubeconfig())
            yield RunCredentials(
                {name: value for name, value in variables.items() if name not in SECRET_VARIABLES},
                {name: value for name, value in variables.items() if name in SECRET_VARIABLES},
                lambda: self.proxy.revoke(run),
            )
        finally:
            await self.proxy.revoke(run)
            kubeconfig.unlink(missing_ok=True)

    def _seen_by(self, resource: ApiResource, obj: RawObject) -> ReadWatermark | None:
        """Return what the object's runs have seen: what this one starts from too."""
        if self.seen is None:
            return None
        seen = self.seen.setdefault(ObjectKey.of_object(obj), ReadWatermark())
        seen.record_version((resource.gvk.group, resource.plural), resource_version_of(obj))
        return seen
