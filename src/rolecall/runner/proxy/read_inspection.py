"""Reads of a run: their registration with an observer, and the inspection of their responses.

If everything is in place, a role creates nothing, but it reads its dependents. So the proxy inspects the responses to
GET and LIST for objects that name the run's primary, so that their kinds are watched again after the operator restarts.
Each dependent kind is reported once per primary kind. The same inspection finds the version of an object, and the
content that an observer of reads needs.

**A read is followed, or it fails**: if the API server can't be asked for the kind, which a watch needs, or if it says
that the kind isn't served but returns its objects, the run gets an error. Otherwise, nothing would start another run
after a change of what it has read.

A list is decoded object by object, so that the event loop gets its turn in between: Python's JSON parser lets no other
thread run.
"""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

import aiohttp

from rolecall.kube.bodies import MAX_INSPECTED_BYTES, decode, decode_list, decompress, media_type, objects_in
from rolecall.kube.client import Client
from rolecall.kube.errors import ApiError, ForbiddenError, KubeError
from rolecall.kube.metadata import PRIMARY_TYPE_ANNOTATION, resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.bodies import BodyWorker
from rolecall.runner.proxy.forward import discovered
from rolecall.runner.proxy.ownership import Owner, Ownership, ownership_of
from rolecall.runner.proxy.request_info import READ_VERBS, RequestInfo
from rolecall.runner.proxy.seen_objects import SeenObject, seen_object
from rolecall.runner.proxy.sessions import PendingRead, ProxiedRequest, Read
from rolecall.system.logs import get_logger

logger = get_logger("proxy")

_READABLE: Final = frozenset({"", "status", "scale"})
"""The subresources that show the object itself."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """The content of a response, of a list without its objects, and how the objects in it name the primary.

    ``content`` is None if it could not be decoded. ``keys`` are those of the objects in a list, None if they were not
    requested. ``seen`` has what matters of the objects after the run, None for an incomplete response.
    """

    content: Any = None
    ownerships: frozenset[Ownership] = field(default_factory=frozenset)
    keys: frozenset[ObjectKey] | None = None
    seen: tuple[SeenObject, ...] | None = None


def inspect_read(  # noqa: PLR0913 - each of the last three is what one of the observers needs
    body: bytes,
    info: RequestInfo,
    owner: Owner,
    now: float,
    *,
    needs_content: bool,
    needs_keys: bool = False,
    needs_all: bool = False,
) -> Inspection:
    """Inspect the JSON of a response, which may be compressed; a body beyond the limit shows nothing.

    A list that does not mention the owner is only decoded if its content is needed, or all its objects are. ``now`` is
    the wall clock time in seconds.
    """
    plain = decompress(body, MAX_INSPECTED_BYTES)
    if plain is None or len(plain) > MAX_INSPECTED_BYTES:
        return Inspection()
    may_name_owner = owner.uid.encode() in plain or PRIMARY_TYPE_ANNOTATION.encode() in plain
    if info.verb == "list" and not (may_name_owner or needs_content or needs_all or info.name):
        return Inspection(seen=())
    found: set[Ownership] = set()
    keys: set[ObjectKey] = set()
    seen: list[SeenObject] = []

    def visit(obj: RawObject) -> None:
        if may_name_owner and (ownership := ownership_of(obj, owner)) is not None:
            found.add(ownership)
        if needs_keys:
            keys.add(ObjectKey.of_object(obj))
        if may_name_owner or needs_all or info.verb != "list" or info.name:
            each = seen_object(info, obj, owner, now)
            if info.verb != "list" or each.is_own or each.waits_for or (info.name and each.made_for):
                seen.append(each)

    if info.verb == "list":
        content = decode_list(plain, visit)
        is_complete = content is not None and content.get("kind") != "Table"  # which may have rows without objects
        return Inspection(
            content,
            frozenset(found),
            frozenset(keys) if needs_keys and content else None,
            tuple(seen) if is_complete else None,
        )
    content = decode(plain, "application/json")
    for obj in objects_in(content):
        visit(obj)
    is_complete = bool(seen) or _names_absent_object(content)
    return Inspection(content, frozenset(found), seen=tuple(seen) if is_complete else None)


def _names_absent_object(content: Any) -> bool:
    """Return whether this is the Status of an absent object; that of a kind that isn't served has no name."""
    return isinstance(content, dict) and content.get("kind") == "Status" and "name" in (content.get("details") or {})


@dataclass(frozen=True, slots=True)
class ReadInspector:
    """Registers the reads of runs, and reports the kinds of the dependents that they show."""

    client: Client
    _reported: set[tuple[GVK, GVK, Ownership]] = field(default_factory=set)

    async def register(self, request: ProxiedRequest) -> tuple[PendingRead | None, bool]:
        """Register a request with its run; None if it isn't a read, not a relevant one, or one that can't be followed.

        The second value is whether the kind isn't served, according to discovery: its response must not show the
        contrary, see ``read_unserved``. Raise KubeError if discovery fails for now.
        """
        run, info = request.run, request.info
        is_read = info.is_resource and info.verb in READ_VERBS and info.subresource in _READABLE
        if not (run.observes_reads and is_read):  # otherwise discovery of the kind would be in vain
            return None, False
        try:
            resource = await discovered(self.client, info)
        except ForbiddenError:  # an account that may never discover gets its response, without being followed
            return None, False
        if resource is None:
            return None, True
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        is_in_all_namespaces = resource.namespaced and not info.key.namespace  # also if the request has a name
        key = ObjectKey("", "") if is_in_all_namespaces else info.key
        start = query.get("resourceVersion", "") if info.verb == "watch" else ""
        return run.reading(Read(resource, info.verb, key, query.get("labelSelector", ""), start)), False

    def should_inspect(self, info: RequestInfo, response: aiohttp.ClientResponse) -> bool:
        """Return whether a response may contain dependents or the version of an object, or tell of its absence."""
        is_read = info.verb in {"get", "list"} and not info.is_long_running
        is_json = media_type(response.headers.get("Content-Type", "")) == "application/json"
        return is_read and is_json and response.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND)

    async def report(self, request: ProxiedRequest, found: Inspection) -> None:
        """Report the kind if a response shows dependents of the run's primary, and record the version of a GET."""
        run, info = request.run, request.info
        if info.verb == "get" and isinstance(found.content, dict) and uid_of(found.content):
            request.session.record_version(info, resource_version_of(found.content))
        if not run.inject_owner or not found.ownerships:
            return
        try:
            resource = await discovered(self.client, info)
        except ForbiddenError:
            return
        except KubeError as error:
            message = "Failed to discover a kind of dependents; it is watched from the next run that reads one"
            logger.warning(message, resource=info.resource, reason=str(error))
            return
        if resource is None:
            return
        for ownership in Ownership:
            reported = (run.owner.gvk, resource.gvk, ownership)
            if ownership in found.ownerships and reported not in self._reported:
                run.found_dependent(resource, ownership)
                self._reported.add(reported)
        if info.verb == "get" and isinstance(found.content, dict):
            run.saw_dependent(found.content)


async def read_unserved(info: RequestInfo, response: aiohttp.ClientResponse, worker: BodyWorker) -> bytes:
    """Return the body of a response to a read of a kind that isn't served, according to discovery.

    Raise ApiError if it shows the kind: a stored object, a list of them, or the name of an absent one. A gateway may
    hide a kind from discovery only. What isn't stored, such as external metrics, may be served without being listed.
    """
    is_watch = response.status == HTTPStatus.OK and info.is_long_running
    body = b"" if is_watch else await response.read()
    content = await worker.run(body, lambda: decode(decompress(body, MAX_INSPECTED_BYTES) or b"", "application/json"))
    if response.status == HTTPStatus.OK:
        shows_kind = not isinstance(content, dict) or bool(resource_version_of(content))
    else:
        shows_kind = response.status == HTTPStatus.NOT_FOUND and _names_absent_object(content)
    if shows_kind:
        message = (
            f"the API server returned {info.resource}, but lists no such kind in {info.api_version}: changes of what "
            "was read couldn't be noticed, so the response was discarded; the next run tries again"
        )
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    return body
