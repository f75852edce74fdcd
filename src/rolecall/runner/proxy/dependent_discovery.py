"""Discovery of dependents in the responses to reads, so that they are watched again after the operator restarts.

If everything is in place, a role creates nothing, but it reads its dependents. So the proxy inspects the responses to
GET and LIST for objects that name the run's primary, see ``inspection``. Each dependent kind is reported once per
primary kind.
"""

from dataclasses import dataclass, field

import aiohttp

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import resource_version_of, uid_of
from rolecall.kube.references import GVK
from rolecall.runner.proxy.bodies import media_type
from rolecall.runner.proxy.inspection import Inspection
from rolecall.runner.proxy.ownership import Ownership
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.sessions import Session
from rolecall.system.logs import get_logger

logger = get_logger("proxy")


@dataclass(frozen=True, slots=True)
class DependentDiscovery:
    """Reports the kinds of the dependents that runs read."""

    client: Client
    _reported: set[tuple[GVK, GVK, Ownership]] = field(default_factory=set)

    def should_inspect(self, info: RequestInfo, response: aiohttp.ClientResponse) -> bool:
        """Return whether a response may contain dependents or the version of an object."""
        is_read = info.verb in {"get", "list"} and not info.is_long_running
        is_json = media_type(response.headers.get("Content-Type", "")) == "application/json"
        return is_read and is_json and response.status == 200  # noqa: PLR2004 - a plain success

    async def report(self, session: Session, info: RequestInfo, found: Inspection) -> None:
        """Report the kind if a response shows dependents of the run's primary, and record the version of a GET."""
        spec = session.spec
        if info.verb == "get" and isinstance(found.content, dict) and uid_of(found.content):
            session.record_version(info, resource_version_of(found.content))
        if not spec.inject_owner or not found.ownerships:
            return
        resource = await self._resource(info)
        if resource is None:
            return
        for ownership in Ownership:
            if ownership in found.ownerships and (spec.request_gvk, resource.gvk, ownership) not in self._reported:
                spec.on_dependent(resource, ownership)
                self._reported.add((spec.request_gvk, resource.gvk, ownership))

    async def _resource(self, info: RequestInfo) -> ApiResource | None:
        """Return the kind that was read, None if discovery fails: the run still gets its response."""
        try:
            return await self.client.resource_for_path(info.group, info.version, info.resource)
        except KubeError as error:
            logger.debug("Cannot discover the kind of a read", resource=info.resource, reason=str(error))
            return None
