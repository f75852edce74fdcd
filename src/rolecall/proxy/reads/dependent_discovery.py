"""Discovery of dependents in the responses to reads, so that they are watched again after the operator restarts.

If everything is in place, a role creates nothing, but it reads its dependents. So the proxy inspects the responses to
GET and LIST for objects that name the run's primary. It first searches the raw bytes for the owner's uid, which rules
out most responses, and decodes only those that contain it. Each dependent kind is reported once per primary kind.
"""

from dataclasses import dataclass, field

import aiohttp

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import resource_version_of, uid_of
from rolecall.kube.owner_annotations import PRIMARY_TYPE_ANNOTATION
from rolecall.kube.references import GVK
from rolecall.logs import get_logger
from rolecall.proxy.request_info import RequestInfo
from rolecall.proxy.sessions import Session, SessionSpec
from rolecall.proxy.writes.bodies import decode, decode_object, decompress, media_type, objects_in
from rolecall.proxy.writes.ownership import Owner, Ownership, ownership_of

logger = get_logger("proxy")

MAX_INSPECTED_BYTES = 8 << 20


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

    async def inspect(self, session: Session, info: RequestInfo, body: bytes) -> None:
        """Report the kind if the body contains dependents of the run's primary, and record the version of a GET."""
        spec, owner = session.spec, session.spec.owner
        body = decompress(body)
        if info.verb == "get":
            _record_version(session, info, body)
        if not spec.inject_owner:
            return
        if owner.uid.encode() not in body and PRIMARY_TYPE_ANNOTATION.encode() not in body:
            return
        resource = await self._resource(info)
        if resource is None or self._is_reported(spec, resource.gvk):
            return
        for ownership in _ownerships_in(body, owner):
            self._report(spec, resource, ownership)

    async def _resource(self, info: RequestInfo) -> ApiResource | None:
        """Return the kind that was read, None if discovery fails: the run still gets its response."""
        try:
            return await self.client.resource_for_path(info.group, info.version, info.resource)
        except KubeError as error:
            logger.debug("Cannot discover the kind of a read", resource=info.resource, reason=str(error))
            return None

    def _is_reported(self, spec: SessionSpec, gvk: GVK) -> bool:
        return all((spec.request_gvk, gvk, ownership) in self._reported for ownership in Ownership)

    def _report(self, spec: SessionSpec, resource: ApiResource, ownership: Ownership) -> None:
        if (spec.request_gvk, resource.gvk, ownership) not in self._reported:
            spec.on_dependent(resource, ownership)
            self._reported.add((spec.request_gvk, resource.gvk, ownership))


def _record_version(session: Session, info: RequestInfo, body: bytes) -> None:
    obj = decode_object(body, "application/json")
    if obj is not None and uid_of(obj):
        session.record_version(info, resource_version_of(obj))


def _ownerships_in(body: bytes, owner: Owner) -> list[Ownership]:
    content = decode(body, "application/json")
    found = {ownership_of(obj, owner) for obj in objects_in(content)}
    return [ownership for ownership in Ownership if ownership in found]
