"""Injection of the owner into the objects that a run creates.

POST creates an object. PUT and server-side apply create it if it does not exist, so its metadata is read first. The
owners of an existing object are not changed, with two exceptions: an object that already names the owner keeps naming
it, because PUT and apply drop fields that the request does not contain; and an object is adopted if the request has the
adoption annotation with the value ``"true"``. With the value ``"false"``, a new object gets no owner. A body that
cannot be decoded is forwarded unchanged.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.bodies import MAX_YAML_BYTES, BodyWorker, decode_object, encode_changed, media_type
from rolecall.runner.proxy.forward import read_metadata
from rolecall.runner.proxy.ownership import (
    ADOPT_ANNOTATION,
    Owner,
    Ownership,
    is_event,
    opts_out_of_ownership,
    ownership_of,
    requests_adoption,
    required_ownership,
    with_owner,
)
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.sessions import ProxiedRequest
from rolecall.system.logs import get_logger

logger = get_logger("proxy")

APPLY_MEDIA_TYPES: Final = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
MERGE_MEDIA_TYPES: Final = frozenset({"application/merge-patch+json", "application/strategic-merge-patch+json"})


@dataclass(frozen=True, slots=True)
class OwnerInjector:
    """Injects the owner into the bodies of writes."""

    client: Client
    worker: BodyWorker

    async def inject(self, request: ProxiedRequest) -> bytes:
        """Return the body to send to the API server; report the kind of a dependent before the object can exist.

        Raises KubeError and aiohttp.ClientError if discovery or the read of the existing object fails.
        """
        body, spec, info = request.body, request.spec, request.info
        if not (spec.inject_owner and _may_need_owner(request)):
            return body
        resource = await self.client.resource_for_path(info.group, info.version, info.resource)
        if resource is None or resource.is_virtual or is_event(resource.gvk):
            return body
        obj = await self.worker.run(body, lambda: decode_object(body, request.content_type))
        if obj is None:
            # Most clients never send YAML, so an undecodable YAML body is worth a warning.
            log = logger.warning if "yaml" in request.content_type else logger.debug
            reason = f"unknown format, malformed, or YAML of more than {MAX_YAML_BYTES} bytes with its aliases expanded"
            log("Cannot inject owner", target=request.target, content_type=request.content_type, reason=reason)
            return body
        return await self._inject_into(request, resource, obj)

    async def _inject_into(self, request: ProxiedRequest, resource: ApiResource, obj: RawObject) -> bytes:
        body, spec, info = request.body, request.spec, request.info
        key = _key_of(info, resource, obj)
        if spec.owner.refers_to(resource.gvk, key):
            return body
        existing = None if info.verb == "create" else await self._existing_metadata(request)
        if existing is None and _is_merge(request):
            return body
        ownership = _target_ownership(spec.owner, key, obj, existing)
        if ownership is None:
            return body
        spec.on_dependent(resource, ownership)
        try:
            changed = with_owner(_with_existing_references(request, obj, existing), spec.owner, ownership)
            if changed is not obj:
                body = await self.worker.run(body, lambda: encode_changed(body, request.content_type, obj, changed))
        except (TypeError, ValueError, RecursionError) as error:
            logger.debug("Cannot inject owner: malformed object", target=request.target, reason=str(error))
            return request.body
        logger.debug("Injecting owner reference", dependent=f"{resource.gvk.kind} {key}", ownership=ownership.value)
        return body

    async def _existing_metadata(self, request: ProxiedRequest) -> RawObject | None:
        """Return the metadata of the object to write, None if it does not exist."""
        status, found = await read_metadata(self.client, request.object_path)
        if status == HTTPStatus.NOT_FOUND:
            request.session.record_version(request.info, "")
            return None
        if status != HTTPStatus.OK:  # without its metadata, the object is treated as not ours
            logger.debug("Cannot inject owner: failed to read object", target=request.object_path, status=status)
            return {}
        request.session.record_version(request.info, resource_version_of(found))
        return found


def _is_merge(request: ProxiedRequest) -> bool:
    """Return whether the body is merged into an object, which must exist."""
    return request.info.verb == "patch" and media_type(request.content_type) in MERGE_MEDIA_TYPES


def _may_need_owner(request: ProxiedRequest) -> bool:
    """Return whether the body must be decoded; plain patches, the most frequent writes, need not be."""
    info = request.info
    if not info.is_resource or info.subresource:
        return False
    if _is_merge(request):
        return ADOPT_ANNOTATION.partition("/")[0].encode() in request.body
    is_apply = info.verb == "patch" and media_type(request.content_type) in APPLY_MEDIA_TYPES
    return is_apply or info.verb == "update" or (info.verb == "create" and not info.name)


def _key_of(info: RequestInfo, resource: ApiResource, obj: RawObject) -> ObjectKey:
    """Return the object's key; its name is empty if the API server generates it."""
    in_body = ObjectKey.of_object({"metadata": metadata_of(obj)})
    namespace = (info.namespace or in_body.namespace) if resource.namespaced else ""
    return ObjectKey(namespace, info.name or in_body.name)


def _target_ownership(owner: Owner, key: ObjectKey, obj: RawObject, existing: RawObject | None) -> Ownership | None:
    """Return how the object must name its owner after the write, None if the write is forwarded unchanged."""
    if existing is not None and not requests_adoption(obj):
        current = ownership_of(existing, owner)
        sets_references = "ownerReferences" in metadata_of(obj)
        return None if current is Ownership.OWNER_REFERENCE and sets_references else current
    requested = ownership_of(obj, owner)
    if requested is None and opts_out_of_ownership(obj):
        return None
    return requested or required_ownership(owner, key.namespace)


def _with_existing_references(request: ProxiedRequest, obj: RawObject, existing: RawObject | None) -> RawObject:
    """Return the object with those owner references of the existing object that the write must not drop.

    A write that sets the owner references itself is not changed. A merge patch replaces the list, so it must contain
    all of them. PUT and apply must contain the reference to the owner as it is in the existing object.
    """
    metadata = metadata_of(obj)
    if existing is None or "ownerReferences" in metadata:
        return obj
    references: list[Any] = metadata_of(existing).get("ownerReferences") or []
    uid = request.spec.owner.uid
    kept = references if _is_merge(request) else [raw for raw in references if raw.get("uid") == uid]
    return obj | {"metadata": metadata | {"ownerReferences": kept}} if kept else obj
