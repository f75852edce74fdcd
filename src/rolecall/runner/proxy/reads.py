"""What a response to a read shows: the version of an object or list, and how objects name the run's primary.

All functions are pure and run in any thread. A list is decoded object by object, so that the event loop gets its turn
in between: Python's JSON parser lets no other thread run.

Discovery of dependents in the responses to reads, so that they are watched again after the operator restarts.

If everything is in place, a role creates nothing, but it reads its dependents. So the proxy inspects the responses to
GET and LIST for objects that name the run's primary, see ``inspection``. Each dependent kind is reported once per
primary kind.
"""

from dataclasses import dataclass, field
from typing import Any

import aiohttp

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import PRIMARY_TYPE_ANNOTATION, resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.bodies import MAX_INSPECTED_BYTES, decode, decode_list, decompress, media_type, objects_in
from rolecall.runner.proxy.ownership import Owner, Ownership, ownership_of
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.sessions import Session
from rolecall.system.logs import get_logger


@dataclass(frozen=True, slots=True)
class Inspection:
    """The content of a response, of a list without its objects, and how the objects in it name the primary.

    ``content`` is None if it could not be decoded. ``keys`` are those of the objects in a list, None if it was not
    asked for them.
    """

    content: Any = None
    ownerships: frozenset[Ownership] = field(default_factory=frozenset)
    keys: frozenset[ObjectKey] | None = None


def inspect_read(
    body: bytes, info: RequestInfo, owner: Owner, *, needs_content: bool, needs_keys: bool = False
) -> Inspection:
    """Inspect the JSON of a response, which may be compressed; a body beyond the limit shows nothing.

    A list that does not mention the owner is only decoded if its content is needed.
    """
    plain = decompress(body, MAX_INSPECTED_BYTES)
    if plain is None or len(plain) > MAX_INSPECTED_BYTES:
        return Inspection()
    may_name_owner = owner.uid.encode() in plain or PRIMARY_TYPE_ANNOTATION.encode() in plain
    found: set[Ownership] = set()
    keys: set[ObjectKey] = set()

    def visit(obj: RawObject) -> None:
        if may_name_owner and (ownership := ownership_of(obj, owner)) is not None:
            found.add(ownership)
        if needs_keys:
            keys.add(ObjectKey.of_object(obj))

    if info.verb == "list" and not may_name_owner and not needs_content:
        return Inspection()
    if info.verb == "list":
        content = decode_list(plain, visit)
        return Inspection(content, frozenset(found), frozenset(keys) if needs_keys and content else None)
    content = decode(plain, "application/json")
    for obj in objects_in(content):
        visit(obj)
    return Inspection(content, frozenset(found))


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
