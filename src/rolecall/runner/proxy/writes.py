"""Writes of a run: the owner in created objects, and preconditions that distinguish its changes from those of others.

POST creates an object. PUT and server-side apply create it if it does not exist, so its metadata is read first. **An
object may have several owners, and no write removes one that its body doesn't mention**: PUT drops all fields that the
body does not contain, apply those that its field manager owns, and a merge patch replaces the whole list. So the proxy
repeats them, see ``ownership.with_kept``; for built-in kinds, also in a PUT of the status. The run's own owner is added
only to an object that the run creates or, with the annotation ``rolecall.dev/adopt: "true"``, adopts. With ``"false"``,
a new object gets no owner. A body that cannot be decoded is forwarded unchanged.

What was read, the body made from it, and the precondition belong together. If the precondition fails, the body is made
again from another read. If it fails repeatedly, the run gets the conflict, because a write without it could drop what
was added in between. This process sends one such write of an object at a time.

Parsers differ on a key that an object has twice. A body with an owner to inject is sent as the proxy has read it, with
the last value, except where the API server rejects such keys. Any other body is forwarded unchanged, without a
precondition.

PATCH and PUT return the object's resourceVersion even if they changed nothing. That version may then come from a user,
whose change must trigger a reconcile. So the proxy adds a precondition: the object must still have a known version. If
the write succeeds and returns another version, only the run has changed the object. If the precondition of a write that
keeps nothing fails, the proxy retries once with the current version, and then sends the write as the run sent it.

The precondition must not change what the API server accepts or stores; without it, the run's own change only causes one
more run. Most kinds reject a PUT without a version, so a dry run of the PUT as the run sent it comes first. Where a
body sets the version to nothing, it stays so. Of server-side apply by kubectl, the API server stores the whole body in
the last-applied annotation, so such a body gets no precondition.

The DELETED watch event has a resourceVersion that the response to the DELETE does not contain. So the run's own
deletions are recognized by the object's uid. Only a deletion that is complete in the response is recorded, because only
then the run knows that the object no longer exists. If a finalizer or a terminating pod delays the deletion, the event
comes later and must trigger a reconcile. A dry run deletes nothing. The API server reads the options of a deletion from
its body, and from the query only if there is no body; those of an eviction from both.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode
from weakref import WeakValueDictionary

import aiohttp

from rolecall.kube.bodies import (
    MAX_YAML_BYTES,
    decode,
    decode_delete_options,
    decode_object,
    encode,
    encode_changed,
    media_type,
    objects_in,
)
from rolecall.kube.client import MERGE_PATCH, Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ApiError, KubeError
from rolecall.kube.metadata import (
    PRIMARY_ANNOTATION,
    PRIMARY_TYPE_ANNOTATION,
    annotation_of,
    applied_metadata,
    is_being_deleted,
    metadata_of,
    resource_version_of,
    uid_of,
)
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.bodies import BodyWorker
from rolecall.runner.proxy.forward import discovered, read_metadata, send
from rolecall.runner.proxy.made_for import (
    MADE_FOR_ANNOTATION,
    PRUNE_ANNOTATION,
    mark_for,
    may_get_mark,
    with_mark,
    without_marks_in,
    without_removed_word,
)
from rolecall.runner.proxy.ownership import (
    ADOPT_ANNOTATION,
    Ownership,
    is_event,
    ownership_of,
    primary_named_by,
    target_ownership,
    with_kept,
    with_owner,
)
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.sessions import ProxiedRequest, ProxiedRun
from rolecall.system.logs import get_logger

logger = get_logger("proxy")

APPLY_MEDIA_TYPES: Final = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
MERGE_MEDIA_TYPES: Final = frozenset({MERGE_PATCH, "application/strategic-merge-patch+json"})

JSON_PATCH: Final = "application/json-patch+json"
_KUBECTL: Final = ("fieldManager", "kubectl")
_MARKING: Final = urlencode({"fieldManager": "rolecall"})
_MARK: Final = MADE_FOR_ANNOTATION.partition("/")[2].encode()
_ADOPT: Final = ADOPT_ANNOTATION.partition("/")[0].encode()
_NO_ANNOTATIONS: Final = re.compile(rb'"annotations"\s*:\s*null')
_OF_PRIMARY: Final = (PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION)
_KEPT_BY_PUT: Final = (*_OF_PRIMARY, ADOPT_ANNOTATION, PRUNE_ANNOTATION)
_BACKGROUND: Final = "Background"
_ATTEMPTS: Final = 4
"""How often a write that keeps owners is sent: three times with a body made again."""
_VERSIONED_SUBRESOURCES: Final = frozenset({"", "status", "scale"})

# A failed ``test`` operation of a JSON patch gives 422 instead of 409; with the precondition, a body can be too long.
_PRECONDITION_FAILED: Final = {
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The response to a write, its body, the objects in it that the write has changed, and all, None if unreadable."""

    response: aiohttp.ClientResponse
    body: bytes
    changed: tuple[RawObject, ...] = ()
    objects: tuple[RawObject, ...] | None = None
    is_outdated: bool = False
    """Whether the precondition that the proxy has added may have failed."""


@dataclass(frozen=True, slots=True)
class Writes:
    """Injects the owner into bodies, and sends writes so that their responses show what they have changed."""

    client: Client
    worker: BodyWorker
    _locks: WeakValueDictionary[tuple[str, str, ObjectKey], asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _warn_once: Callable[..., None] = field(default_factory=lambda: lru_cache(1024)(logger.warning))

    async def _inject(self, request: ProxiedRequest) -> bool:
        """Set the body to send to the API server; report the kind of a dependent before the object can exist.

        Return whether the body repeats something of the existing object. Raises KubeError and aiohttp.ClientError if
        discovery or the read of the existing object fails.
        """
        body, run, info = request.body, request.run, request.info
        request.sent = None
        if run.inject_owner and _MARK in body and media_type(request.content_type) == JSON_PATCH:
            request.sent = await self.worker.run(body, lambda: _without_marks(body, request.content_type))
        if not (run.inject_owner and _may_need_owner(request)):
            return False
        resource = await discovered(self.client, info)
        if resource is None:
            raise _not_served(info)
        if resource.is_virtual or is_event(resource.gvk):
            return False
        # Then the API server must see duplicate keys, because it rejects them.
        is_strict = ("fieldValidation", "Strict") in parse_qsl(request.query)
        obj = await self.worker.run(body, lambda: decode_object(body, request.content_type, unique=is_strict))
        if obj is None:
            # Most clients never send YAML, so an undecodable YAML body is worth a warning.
            log = logger.warning if "yaml" in request.content_type else logger.debug
            reason = f"unknown format, malformed, or YAML of more than {MAX_YAML_BYTES} bytes with its aliases expanded"
            log("Failed to inject owner", target=request.target, content_type=request.content_type, reason=reason)
            return False
        return await self._inject_into(request, resource, obj)

    async def _inject_into(self, request: ProxiedRequest, resource: ApiResource, obj: RawObject) -> bool:
        body, run, info = request.body, request.run, request.info
        key = _key_of(info, resource, obj)
        if info.subresource and not (resource.gvk.is_built_in and obj.get("kind") == resource.gvk.kind):
            return False  # the body isn't the object, or, of a custom resource, its metadata doesn't count
        if info.verb == "create":
            request.key_in_body = key if key.name else None
        existing = None if info.verb == "create" else await self._existing_metadata(request)
        if existing is None and _is_merge(request):
            return False
        name = f"{resource.gvk.kind} {key}"
        ownership = None
        if not (info.subresource or run.owner.refers_to(resource.gvk, key)):
            ownership = target_ownership(run.owner, key.namespace, obj, existing)
        if ownership is Ownership.ANNOTATION and existing is not None and self._is_taken(run, existing, name):
            ownership = None
        if ownership is not None:
            run.found_dependent(resource, ownership)
        try:
            references, annotations = _dropped(request, obj, existing or {}, ownership)
            given = without_removed_word(obj)
            kept = with_kept(given, references, annotations, run.owner)
            changed = kept if ownership is None else with_owner(kept, run.owner, ownership)
            changed = _with_own_annotations(request, resource, key, changed, existing)
            keeps = kept is not given or (
                info.verb == "update" and annotation_of(changed, MADE_FOR_ANNOTATION) is not None
            )
            if changed is not obj:
                request.sent = await self.worker.run(
                    body, lambda: encode_changed(body, request.content_type, obj, changed)
                )
        except (TypeError, ValueError, RecursionError) as error:
            logger.debug("Failed to inject owner: malformed object", target=request.target, reason=str(error))
            return False
        if ownership is not None:
            logger.debug("Injecting owner reference", dependent=name, ownership=ownership.value)
        return keeps

    def _is_taken(self, run: ProxiedRun, existing: RawObject, name: str) -> bool:
        """Return whether the annotations of an object, which hold only one primary, name another one."""
        kind, primary = primary_named_by(existing)
        if not primary or (kind, primary) == (run.owner.type_annotation, str(run.owner.key)):
            return False
        if run.is_gone(kind, primary):
            return False
        message = "Not adopting an object: its annotations name another primary, which may exist; logged once"
        self._warn_once(
            message, dependent=name, primary=f"{kind} {primary}", adopter=f"{run.owner.gvk.kind} {run.owner.key}"
        )
        return True

    async def _existing_metadata(self, request: ProxiedRequest) -> RawObject | None:
        """Return the metadata of the object to write, None if it does not exist."""
        status, found = await read_metadata(self.client, request.object_path)
        if status == HTTPStatus.NOT_FOUND:
            request.session.record_version(request.info, "")
            return None
        if status != HTTPStatus.OK:  # without its metadata, the object is treated as not ours
            logger.debug("Failed to inject owner: object not readable", target=request.object_path, status=status)
            return {}
        request.session.record_version(request.info, resource_version_of(found))
        return found

    async def send(self, request: ProxiedRequest, headers: Mapping[str, str]) -> WriteResult:
        """Send a write with its owners; the caller records what it has changed.

        Raises KubeError, aiohttp.ClientError and OSError.
        """
        info = request.info
        async with self._turn(request):
            keeps = await self._inject(request)
            if info.is_dry_run:
                return await self._send(request, headers)
            known = request.session.last_seen_version(info)
            if info.verb in {"update", "patch"} and info.subresource in _VERSIONED_SUBRESOURCES:
                result = await self._send_with_precondition(request, headers, known, keeps=keeps)
            else:
                result = await self._with_changed_objects(await self._send(request, headers), known)
            return await self._marked(request, headers, result)

    async def _marked(self, request: ProxiedRequest, headers: Mapping[str, str], result: WriteResult) -> WriteResult:
        """Mark an object that the run has created, and return it with the status of its creation.

        The body of the creation can't have the mark: the object has no uid yet, apply would own the mark, and another
        write would decide whether the object of a PUT is new. If the mark can't be written, the object stays without,
        and is never pruned.
        """
        run, info = request.run, request.info
        is_new = result.response.status == HTTPStatus.CREATED and not info.subresource and result.objects
        if not (is_new and result.objects and run.inject_owner and run.prunes) or request.session.is_revoked:
            return result
        obj = result.objects[0]
        resource = await self._known_kind(info)
        has_given_name = bool(info.name or (request.key_in_body and request.key_in_body.name))
        is_owned = has_given_name and ownership_of(obj, run.owner) is not None
        if resource is None or not is_owned or not may_get_mark(resource.gvk.group, resource.gvk.kind, obj):
            return result
        key = _key_of(info, resource, obj)
        mark = mark_for(run.owner.uid, resource.gvk.group, resource.gvk.kind, key, uid_of(obj))
        patch_headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        patch_headers["Content-Type"] = MERGE_PATCH
        path, reason = resource.path_of(key), ""
        target = f"{path}?{_MARKING}"
        try:
            for _ in range(_ATTEMPTS):
                known = {"uid": uid_of(obj), "resourceVersion": resource_version_of(obj)}
                data = encode({"metadata": {**known, "annotations": {MADE_FOR_ANNOTATION: mark}}})
                async with await send(self.client, "PATCH", target, patch_headers, data=data) as response:
                    status, body = response.status, await response.read()
                if status == HTTPStatus.OK:
                    return await self._with_changed_objects(WriteResult(result.response, body), "")
                reason = f"the status {status}"
                _, found = await read_metadata(self.client, path)
                if status != HTTPStatus.CONFLICT or uid_of(found) != uid_of(obj):
                    break
                obj = found  # its controller has already written its status
        except (aiohttp.ClientError, KubeError, OSError) as error:
            reason = str(error)
        logger.warning("Failed to mark a new object, which is never pruned", target=path, reason=reason)
        return result

    async def _known_kind(self, info: RequestInfo) -> ApiResource | None:
        try:
            return await discovered(self.client, info)
        except KubeError:
            return None

    @asynccontextmanager
    async def _turn(self, request: ProxiedRequest) -> AsyncIterator[None]:
        """Wait until no other such write of the object is between its read and its response."""
        info = request.info
        if not (request.run.inject_owner and info.name and _may_need_owner(request)):
            yield
            return
        async with self._locks.setdefault((*info.group_resource, info.key), asyncio.Lock()):
            yield

    async def _send_with_precondition(
        self, request: ProxiedRequest, headers: Mapping[str, str], known: str | None, *, keeps: bool
    ) -> WriteResult:
        if known is None:
            known = await self._current_version(request)
        result = await self._send_conditionally(request, headers, known)
        for _ in range(_ATTEMPTS - 1 if keeps else 1):
            if not result.is_outdated:
                return result
            request.session.forget_version(request.info)
            keeps = await self._inject(request)
            seen = request.session.last_seen_version(request.info)
            previous, known = known, await self._current_version(request) if seen is None else seen
            if known == previous:  # the conflict has another reason
                break
            result = await self._send_conditionally(request, headers, known)
        return result if keeps or not result.is_outdated else await self._send(request, headers)

    async def _send_conditionally(
        self, request: ProxiedRequest, headers: Mapping[str, str], version: str
    ) -> WriteResult:
        """Send a write with this version (empty: no object) as its precondition."""
        body, content_type = request.sent or request.body, request.content_type
        conditional = None
        if version and not _stores_whole_body(request):
            conditional = await self.worker.run(body, lambda: with_precondition(body, content_type, version))
        if conditional is None:
            result = await self._with_changed_objects(await self._send(request, headers), "")
            is_created = result.response.status == HTTPStatus.CREATED
            return result if is_created else replace(result, changed=())  # who changed it isn't known
        sent, required = conditional
        if sent is not body and request.info.verb == "update" and not await self._is_accepted(request, headers):
            return await self._send(request, headers)
        result = await self._send(request, headers, sent)
        if sent is not body and result.response.status in _PRECONDITION_FAILED:
            return replace(result, is_outdated=True)
        return await self._with_changed_objects(result, required)

    async def _with_changed_objects(self, result: WriteResult, version: str | None) -> WriteResult:
        return await self.worker.run(result.body, lambda: _with_changed_objects(result, version))

    async def _is_accepted(self, request: ProxiedRequest, headers: Mapping[str, str]) -> bool:
        """Return whether the API server accepts a write as the run sent it, in a dry run."""
        target = f"{request.path}?{request.query}&dryRun=All"
        result = await self._send(replace(request, target=target), headers)
        return result.response.status < HTTPStatus.MULTIPLE_CHOICES

    async def _send(
        self, request: ProxiedRequest, headers: Mapping[str, str], body: bytes | None = None
    ) -> WriteResult:
        if request.session.is_revoked:
            raise ConnectionAbortedError("the run was revoked before its write was sent")
        data = body or request.sent or request.body or None
        async with await send(self.client, request.method, request.target, headers, data=data) as response:
            return WriteResult(response, await response.read())

    async def _current_version(self, request: ProxiedRequest) -> str:
        """Read and record the object's current version, empty if it does not exist or is unreadable."""
        _, found = await read_metadata(self.client, request.object_path)
        version = resource_version_of(found)
        request.session.record_version(request.info, version)
        return version


def _is_merge(request: ProxiedRequest) -> bool:
    """Return whether the body is merged into an object, which must exist."""
    return request.info.verb == "patch" and media_type(request.content_type) in MERGE_MEDIA_TYPES


def _may_need_owner(request: ProxiedRequest) -> bool:
    """Return whether the body must be decoded; most merge patches, the most frequent writes, need not be."""
    info = request.info
    if not info.is_resource or info.subresource:
        return info.is_resource and (info.verb, info.subresource) == ("update", "status")
    if _is_merge(request):
        replaces_lists = media_type(request.content_type) == MERGE_PATCH  # a strategic one merges owners by uid
        removes = request.run.prunes and _NO_ANNOTATIONS.search(request.body)
        return bool(removes) or _ADOPT in request.body or (replaces_lists and b"ownerReferences" in request.body)
    is_apply = info.verb == "patch" and media_type(request.content_type) in APPLY_MEDIA_TYPES
    return is_apply or info.verb == "update" or (info.verb == "create" and not info.name)


def _not_served(info: RequestInfo) -> ApiError:
    """Return the response to a write of a kind that discovery doesn't list, as that of the API server.

    A gateway may hide a kind from discovery only, and then a new object would stay without its owner. So the write
    isn't sent: there is nothing in it that shows the contradiction before it has happened.
    """
    message = (
        f"the server could not find the requested resource: it lists no kind {info.resource} in {info.api_version}"
    )
    return ApiError(HTTPStatus.NOT_FOUND, "NotFound", message)


def _key_of(info: RequestInfo, resource: ApiResource, obj: RawObject) -> ObjectKey:
    """Return the object's key; its name is empty if the API server generates it."""
    in_body = ObjectKey.of_object({"metadata": metadata_of(obj)})
    namespace = (info.namespace or in_body.namespace) if resource.namespaced else ""
    return ObjectKey(namespace, info.name or in_body.name)


def _dropped(
    request: ProxiedRequest, obj: RawObject, existing: RawObject, ownership: Ownership | None
) -> tuple[list[Any], dict[str, str | None]]:
    """Return the owner references and the annotations that a write drops from the existing object, unless repeated.

    A merge patch replaces the whole list of references, if it has one, and null annotations, such as those of a
    template without a value, remove all: instead, the others are removed one by one. Apply drops what its field manager
    owns; the reference to the owner is repeated in any case, so that the owner stays if other managers drop it.
    """
    metadata = metadata_of(existing)
    references: list[Any] = metadata.get("ownerReferences") or []
    annotations: dict[str, str] = metadata.get("annotations") or {}
    if request.info.verb == "update":
        return references, {name: annotations[name] for name in _KEPT_BY_PUT if name in annotations}
    if _is_merge(request):
        is_replaced = ownership is Ownership.OWNER_REFERENCE or "ownerReferences" in metadata_of(obj)
        given = metadata_of(obj)
        removed = annotations if "annotations" in given and given["annotations"] is None else {}
        left = {
            name: value if name in {*_KEPT_BY_PUT, MADE_FOR_ANNOTATION} else None for name, value in removed.items()
        }
        return references if is_replaced else [], left
    uids, names = applied_metadata(existing, dict(parse_qsl(request.query)).get("fieldManager", ""))
    kept = [raw for raw in references if raw.get("uid") in uids | {request.run.owner.uid}]
    names &= {*_OF_PRIMARY, PRUNE_ANNOTATION}
    return kept, {name: annotations[name] for name in sorted(names) if name in annotations}


def _with_own_annotations(
    request: ProxiedRequest, resource: ApiResource, key: ObjectKey, obj: RawObject, existing: RawObject | None
) -> RawObject:
    """Return a body with the mark of a new object, or with that of the existing one; no other write sets a mark."""
    info, gvk = request.info, resource.gvk
    if _is_merge(request):
        given = (metadata_of(obj).get("annotations") or {}).get(MADE_FOR_ANNOTATION)
        return obj if given is None else with_mark(obj, None)
    mark = None
    if info.verb == "create":
        is_marked = not (info.is_dry_run or request.run.prunes)  # a role that prunes gets a mark with the uid, later
        if is_marked and key.name and may_get_mark(gvk.group, gvk.kind, obj):
            mark = mark_for(request.run.owner.uid, gvk.group, gvk.kind, key)
    elif info.verb == "update":
        mark = annotation_of(existing or {}, MADE_FOR_ANNOTATION)
    return with_mark(obj, mark)


def _without_marks(body: bytes, content_type: str) -> bytes | None:
    """Return a JSON patch that sets no mark; None if it is malformed, which the API server rejects."""
    operations = decode(body, content_type, unique=True)
    return encode(without_marks_in(operations)) if isinstance(operations, list) else None


def with_precondition(body: bytes, content_type: str, version: str) -> tuple[bytes, str] | None:
    """Return a body with a precondition, and the version that it requires; None if the body cannot express it.

    A body that has a precondition is returned unchanged, with its own version.
    """
    content = decode(body, content_type, unique=True)
    if media_type(content_type) == JSON_PATCH:
        if not isinstance(content, list):
            return None
        content = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *content]
    elif not isinstance(content, dict) or not isinstance(content.get("metadata", {}), dict):
        return None
    elif "resourceVersion" in metadata_of(content):
        own = resource_version_of(content)
        return None if own in {"", "0"} else (body, own)
    else:
        content |= {"metadata": metadata_of(content) | {"resourceVersion": version}}
    try:
        return encode(content), version
    except (TypeError, ValueError, RecursionError):
        return None


def _stores_whole_body(request: ProxiedRequest) -> bool:
    """Return whether the API server may store the body of a write as it is, in the last-applied annotation."""
    return media_type(request.content_type) in APPLY_MEDIA_TYPES and _KUBECTL in parse_qsl(request.query)


def _with_changed_objects(result: WriteResult, version: str | None) -> WriteResult:
    """Add the changed objects to the result of a successful write: those whose version differs from this one."""
    status, headers = result.response.status, result.response.headers
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return result
    content: Any = decode(result.body, headers.get("Content-Type", ""))
    objects = tuple(obj for obj in objects_in(content) if uid_of(obj))
    changed = tuple(obj for obj in objects if resource_version_of(obj) not in {"", version})
    return WriteResult(result.response, result.body, changed, None if content is None else objects)


def with_delete_options(info: RequestInfo, body: bytes, content_type: str) -> RequestInfo:
    """Return the info of a write with the flag that the options in its body set, if it deletes or evicts.

    An unreadable body counts as a dry run: the API server rejects it. If it did not, the run's own deletion would only
    cause one more run.
    """
    is_eviction = info.subresource == "eviction"
    if not body or not (info.is_removal or is_eviction):
        return info
    options = decode_delete_options(body, content_type, is_eviction=is_eviction)
    is_dry_run = options is None or bool(options.get("dryRun"))
    return replace(info, is_dry_run=is_dry_run or (is_eviction and info.is_dry_run))


def removed_uids(request: ProxiedRequest, result: WriteResult) -> tuple[str, ...]:
    """Return the uids of the objects that the request has removed, without those whose deletion is pending.

    The response to the deletion of a collection lists its objects as they were before. Those that their finalizers, a
    grace period, or the options of the deletion may delay are left out.
    """
    info, response = request.info, result.response
    if not info.is_removal or info.subresource or info.is_dry_run or response.status != HTTPStatus.OK:
        return ()
    content = decode(result.body, response.headers.get("Content-Type", ""))
    if not isinstance(content, dict):
        return ()
    if info.verb == "deletecollection":
        options = decode_delete_options(request.body, request.content_type, is_eviction=False) if request.body else {}
        options = dict(parse_qsl(request.query)) | (options or {})
        is_delayed = options.get("propagationPolicy", _BACKGROUND) != _BACKGROUND or "orphanDependents" in options
        if is_delayed or info.group_resource == ("", "pods"):
            return ()
        return tuple(uid_of(obj) for obj in objects_in(content) if uid_of(obj) and not _is_pending(obj))
    if content.get("kind") == "Status":
        details = content.get("details")
        uid = str(details.get("uid") or "") if isinstance(details, dict) else ""
    else:
        uid = "" if _is_pending(content) else uid_of(content)
    return (uid,) if uid else ()


def _is_pending(obj: RawObject) -> bool:
    """Return whether a finalizer or a grace period delays the deletion of an object."""
    metadata = metadata_of(obj)
    has_grace_period = is_being_deleted(obj) and metadata.get("deletionGracePeriodSeconds") != 0
    return has_grace_period or bool(metadata.get("finalizers"))
