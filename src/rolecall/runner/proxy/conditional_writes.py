"""Writes with a precondition, which distinguish a run's own changes from those of other clients.

PATCH and PUT return the object's resourceVersion even if they changed nothing. That version may then come from a user,
whose change must trigger a reconcile. So the proxy adds a precondition: the object must still have a known version. If
the write succeeds and returns another version, only the run has changed the object. If the precondition fails, the
proxy retries once with the current version, and then sends the write as the run sent it.

The DELETED watch event has a resourceVersion that the response to the DELETE does not contain. So the run's own
deletions are recognized by the object's uid. Only a deletion that is complete in the response is recorded, because only
then the run knows that the object no longer exists. If a finalizer or a terminating pod delays the deletion, the event
comes later and must trigger a reconcile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from rolecall.kube.client import Client
from rolecall.kube.metadata import is_being_deleted, metadata_of, resource_version_of, uid_of
from rolecall.kube.references import RawObject
from rolecall.runner.proxy.bodies import BodyWorker, decode, encode, media_type, objects_in
from rolecall.runner.proxy.forward import read_metadata, send
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.sessions import ProxiedRequest

JSON_PATCH: Final = "application/json-patch+json"
_VERSIONED_SUBRESOURCES: Final = frozenset({"", "status", "scale"})
# A failed ``test`` operation of a JSON patch gives 422 instead of 409.
_PRECONDITION_FAILED: Final = {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}


@dataclass(frozen=True, slots=True)
class ConditionalBody:
    """A body with the precondition that the object has this version; ``is_added`` if the run's body had none."""

    body: bytes
    version: str
    is_added: bool


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The response to a write, its body, and the objects in it that the write has changed."""

    response: aiohttp.ClientResponse
    body: bytes
    changed: tuple[RawObject, ...] = ()


def with_precondition(body: bytes, content_type: str, version: str) -> ConditionalBody | None:
    """Add the precondition to a body that does not have one; return None if the body cannot express it."""
    content = decode(body, content_type)
    if media_type(content_type) == JSON_PATCH:
        if not isinstance(content, list):
            return None
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        return _encoded([test, *content], version)
    if not isinstance(content, dict) or not isinstance(content.get("metadata", {}), dict):
        return None
    if own := resource_version_of(content):
        return ConditionalBody(body, own, is_added=False)
    return _encoded(content | {"metadata": metadata_of(content) | {"resourceVersion": version}}, version)


def _encoded(content: object, version: str) -> ConditionalBody | None:
    try:
        return ConditionalBody(encode(content), version, is_added=True)
    except (TypeError, ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class ConditionalWrites:
    """Sends writes so that their responses show what they have changed."""

    client: Client
    worker: BodyWorker

    async def send(self, request: ProxiedRequest, headers: Mapping[str, str]) -> WriteResult:
        """Send a write; the caller records what it has changed. Raises aiohttp.ClientError and OSError."""
        session, info = request.session, request.info
        if info.is_dry_run:
            return await self._send(request, headers)
        known = session.last_seen_version(info)
        if info.verb not in {"update", "patch"} or info.subresource not in _VERSIONED_SUBRESOURCES:
            return await self._with_changed_objects(await self._send(request, headers), known)
        if known is None:
            known = await self._current_version(request)
        result = await self._send_conditionally(request, headers, known)
        if result is None and (current := await self._current_version(request)) != known:
            result = await self._send_conditionally(request, headers, current)
        return result or await self._send(request, headers)

    async def _send_conditionally(
        self, request: ProxiedRequest, headers: Mapping[str, str], version: str
    ) -> WriteResult | None:
        """Send a write with this version (empty: no object) as its precondition; return None if that failed."""
        body, content_type = request.sent or b"", request.content_type
        conditional = None
        if version:
            conditional = await self.worker.run(body, lambda: with_precondition(body, content_type, version))
        if conditional is None:
            result = await self._send(request, headers)
            is_created = result.response.status == HTTPStatus.CREATED
            return await self._with_changed_objects(result, "") if is_created else result
        result = await self._send(request, headers, conditional.body)
        if conditional.is_added and result.response.status in _PRECONDITION_FAILED:
            return None
        return await self._with_changed_objects(result, conditional.version)

    async def _with_changed_objects(self, result: WriteResult, version: str | None) -> WriteResult:
        return await self.worker.run(result.body, lambda: _with_changed_objects(result, version))

    async def _send(
        self, request: ProxiedRequest, headers: Mapping[str, str], body: bytes | None = None
    ) -> WriteResult:
        if request.session.is_revoked:
            raise ConnectionAbortedError("the run was revoked before its write was sent")
        data = body or request.sent or None
        async with await send(self.client, request.method, request.target, headers, data=data) as response:
            return WriteResult(response, await response.read())

    async def _current_version(self, request: ProxiedRequest) -> str:
        """Read and record the object's current version, empty if it does not exist or is unreadable."""
        _, found = await read_metadata(self.client, request.object_path)
        version = resource_version_of(found)
        request.session.record_version(request.info, version)
        return version


def _with_changed_objects(result: WriteResult, version: str | None) -> WriteResult:
    """Add the changed objects to the result of a successful write: those whose version differs from this one."""
    status, headers = result.response.status, result.response.headers
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return result
    content: Any = decode(result.body, headers.get("Content-Type", ""))
    changed = (obj for obj in objects_in(content) if uid_of(obj) and resource_version_of(obj) not in {"", version})
    return WriteResult(result.response, result.body, tuple(changed))


def removed_uid(info: RequestInfo, result: WriteResult) -> str:
    """Return the uid of the object that the request has removed, empty if there is none or its deletion is pending."""
    if info.verb != "delete" or info.subresource or info.is_dry_run or result.response.status != HTTPStatus.OK:
        return ""
    content = decode(result.body, result.response.headers.get("Content-Type", ""))
    if not isinstance(content, dict):
        return ""
    if content.get("kind") == "Status":
        details = content.get("details")
        return str(details.get("uid") or "") if isinstance(details, dict) else ""
    metadata = metadata_of(content)
    has_grace_period = is_being_deleted(content) and metadata.get("deletionGracePeriodSeconds") != 0
    return "" if has_grace_period or metadata.get("finalizers") else uid_of(content)
