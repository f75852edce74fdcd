"""Dependents that a run reads: how watches on them come back after the operator has been restarted.

A role that finds everything in place creates nothing, yet it reads what it owns. So answers to GET and LIST are
looked through for objects that name the run's primary. A search for the owner's uid in the raw bytes comes first and
ends most of them; only an answer that has it is decoded, and no kind is reported twice for the same kind of primary.
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
from rolecall.proxy.writes.bodies import decode, decode_object, media_type, objects_in, unpacked
from rolecall.proxy.writes.ownership import Owner, Ownership, ownership_of

logger = get_logger("proxy")

LOOKED_THROUGH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class DependentDiscovery:
    """Reports the kinds of the dependents in answers that pass by."""

    client: Client
    _reported: set[tuple[GVK, GVK, Ownership]] = field(default_factory=set)

    def is_worth_a_copy(self, info: RequestInfo, answer: aiohttp.ClientResponse) -> bool:
        """Tell whether an answer may show dependents, or the version of an object."""
        is_read = info.verb in {"get", "list"} and not info.is_long_running
        is_json = media_type(answer.headers.get("Content-Type", "")) == "application/json"
        return is_read and is_json and answer.status == 200  # noqa: PLR2004 - a plain success

    async def look_through(self, session: Session, info: RequestInfo, body: bytes) -> None:
        """Report the kind if objects of the answer name the run's primary, and remember the version of a single one."""
        run, owner = session.run, session.run.owner
        body = unpacked(body)
        if info.verb == "get":
            _remember_version(session, info, body)
        if not run.inject_owner:
            return
        if owner.uid.encode() not in body and PRIMARY_TYPE_ANNOTATION.encode() not in body:
            return
        resource = await self._resource(info)
        if resource is None or self._is_known(run, resource.gvk):
            return
        for ownership in _ownerships_in(body, owner):
            self._report(run, resource, ownership)

    async def _resource(self, info: RequestInfo) -> ApiResource | None:
        """Return what was read, None when that cannot be told: the answer is the run's, whatever comes of looking."""
        try:
            return await self.client.resource_for_path(info.group, info.version, info.resource)
        except KubeError as error:
            logger.debug("The kind of what was read is not known", resource=info.resource, reason=str(error))
            return None

    def _is_known(self, run: SessionSpec, gvk: GVK) -> bool:
        return all((run.request_gvk, gvk, ownership) in self._reported for ownership in Ownership)

    def _report(self, run: SessionSpec, resource: ApiResource, ownership: Ownership) -> None:
        if (run.request_gvk, resource.gvk, ownership) not in self._reported:
            run.on_dependent(resource, ownership)
            self._reported.add((run.request_gvk, resource.gvk, ownership))


def _remember_version(session: Session, info: RequestInfo, body: bytes) -> None:
    obj = decode_object(body, "application/json")
    if obj is not None and uid_of(obj):
        session.saw(info, resource_version_of(obj))


def _ownerships_in(body: bytes, owner: Owner) -> list[Ownership]:
    answer = decode(body, "application/json")
    found = {ownership_of(obj, owner) for obj in objects_in(answer)}
    return [ownership for ownership in Ownership if ownership in found]
