"""Writes under a condition: how a run's own change is told from somebody else's.

PATCH and PUT answer with the object's version also when they changed nothing, and then that version may be the work of
a user, which has to start a reconcile. So a write is sent on the condition that the object still has a known version:
if it succeeds and the version is another one, the change is the run's own, and nobody's beside it. If it fails for the
condition, it is sent again as the run meant it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from rolecall.kube.metadata import metadata_of, resource_version_of, uid_of
from rolecall.kube.references import RawObject
from rolecall.proxy.sessions import Session
from rolecall.proxy.transport.forward import Upstream
from rolecall.proxy.writes.bodies import decode, encode, media_type, objects_in
from rolecall.proxy.writes.owner_injection import METADATA_ONLY, WriteRequest

JSON_PATCH: Final = "application/json-patch+json"
_WITH_VERSION: Final = frozenset({"", "status", "scale"})
_REFUSED: Final = {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}


@dataclass(frozen=True, slots=True)
class Condition:
    """A body that is accepted only while the object has this version; ``is_ours`` if the run did not ask for that."""

    body: bytes
    version: str
    is_ours: bool


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The answer to a write, read to its end, and the objects in it that the write has changed."""

    answer: aiohttp.ClientResponse
    body: bytes
    changed: tuple[RawObject, ...] = ()


def with_condition(body: bytes, content_type: str, version: str) -> Condition | None:
    """Put the condition into a body that does not have one of its own; None where that cannot be done."""
    content = decode(body, content_type)
    if media_type(content_type) == JSON_PATCH:
        if not isinstance(content, list):
            return None
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        return Condition(encode([test, *content]), version, is_ours=True)
    if not isinstance(content, dict) or not isinstance(content.get("metadata", {}), dict):
        return None
    if own := resource_version_of(content):
        return Condition(body, own, is_ours=False)
    changed = content | {"metadata": metadata_of(content) | {"resourceVersion": version}}
    try:
        return Condition(encode(changed), version, is_ours=True)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ConditionalWrites:
    """Sends writes so that their answers tell what they have changed."""

    upstream: Upstream

    async def send(self, session: Session, write: WriteRequest, headers: Mapping[str, str]) -> WriteResult:
        """Send a write; the caller notes what it has changed. Raises aiohttp.ClientError and OSError."""
        if write.info.is_dry_run:
            return await self._send(session, write, headers)
        if write.info.verb not in {"update", "patch"} or write.info.subresource not in _WITH_VERSION:
            return _changed_unless(await self._send(session, write, headers), session.version_of(write.info))
        seen = session.version_of(write.info)
        if seen is None:
            seen = await self._current_version(session, write)
        outcome = await self._attempt(session, write, headers, seen)
        if outcome is None and (current := await self._current_version(session, write)) != seen:
            outcome = await self._attempt(session, write, headers, current)
        return outcome or await self._send(session, write, headers)

    async def _attempt(
        self, session: Session, write: WriteRequest, headers: Mapping[str, str], version: str
    ) -> WriteResult | None:
        """Send a write on the condition of this version (empty: not there); None if it failed for the condition."""
        condition = with_condition(write.body, write.content_type, version) if version else None
        if condition is None:
            outcome = await self._send(session, write, headers)
            is_created = outcome.answer.status == HTTPStatus.CREATED
            return _changed_unless(outcome, "") if is_created else outcome
        outcome = await self._send(session, replace(write, body=condition.body), headers)
        if condition.is_ours and outcome.answer.status in _REFUSED:
            return None
        return _changed_unless(outcome, condition.version)

    async def _send(self, session: Session, write: WriteRequest, headers: Mapping[str, str]) -> WriteResult:
        if session.is_revoked:
            raise ConnectionAbortedError("the run has been revoked before its write was sent")
        async with await self.upstream.send(write.method, write.target, headers, write.body or None) as answer:
            return WriteResult(answer, await answer.read())

    async def _current_version(self, session: Session, write: WriteRequest) -> str:
        """Look up the object's version, empty when it is not there or may not be read, and remember it."""
        async with await self.upstream.send("GET", write.object_path, {"Accept": METADATA_ONLY}) as answer:
            body = await answer.read()
        version = resource_version_of(json.loads(body)) if answer.status == HTTPStatus.OK else ""
        session.saw(write.info, version)
        return version


def _changed_unless(outcome: WriteResult, version: str | None) -> WriteResult:
    """Say that a successful write has changed every object whose version is not this one."""
    status, headers = outcome.answer.status, outcome.answer.headers
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return outcome
    answer: Any = decode(outcome.body, headers.get("Content-Type", ""))
    changed = (obj for obj in objects_in(answer) if uid_of(obj) and resource_version_of(obj) not in {"", version})
    return WriteResult(outcome.answer, outcome.body, tuple(changed))
