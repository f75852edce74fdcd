"""Injection of the owner into the objects that a run creates.

POST creates an object. PUT and server-side apply create it if it does not exist, so its metadata is read first. The
owners of an existing object are not changed, with two exceptions: an object that already names the owner keeps naming
it, because PUT and apply drop fields that the request does not contain; and an object is adopted if the request has the
adoption annotation with the value ``"true"``. With the value ``"false"``, a new object gets no owner. A body that
cannot be decoded is forwarded unchanged.
"""

from dataclasses import dataclass
from typing import Any, Final

from rolecall.kube.client import Client, without_managed_fields
from rolecall.kube.connection import read_object
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import UnreadableError
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.bodies import MAX_YAML_BYTES, BodyWorker, decode_object, encode_changed, media_type
from rolecall.runner.proxy.forward import Upstream
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
from rolecall.runner.proxy.sessions import Session
from rolecall.system.logs import get_logger

logger = get_logger("proxy")

APPLY_MEDIA_TYPES: Final = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
MERGE_MEDIA_TYPES: Final = frozenset({"application/merge-patch+json", "application/strategic-merge-patch+json"})
ACCEPT_PARTIAL_METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A request that creates, changes or deletes objects, with its body."""

    method: str
    info: RequestInfo
    target: str
    content_type: str
    body: bytes

    @property
    def object_path(self) -> str:
        """The path of the object, without the subresource."""
        path = self.target.partition("?")[0]
        return path.removesuffix(f"/{self.info.subresource}") if self.info.subresource else path

    @property
    def is_create(self) -> bool:
        """Return whether the request can only create an object."""
        return self.info.verb == "create"

    @property
    def is_merge(self) -> bool:
        """Return whether the body is merged into an object, which must exist."""
        return self.info.verb == "patch" and media_type(self.content_type) in MERGE_MEDIA_TYPES

    @property
    def may_need_owner(self) -> bool:
        """Return whether the body must be decoded; plain patches, the most frequent writes, need not be."""
        if not self.info.is_resource or self.info.subresource:
            return False
        if self.is_merge:
            return ADOPT_ANNOTATION.partition("/")[0].encode() in self.body
        is_apply = self.info.verb == "patch" and media_type(self.content_type) in APPLY_MEDIA_TYPES
        return is_apply or self.info.verb == "update" or (self.is_create and not self.info.name)


@dataclass(frozen=True, slots=True)
class OwnerInjector:
    """Injects the owner into the bodies of writes."""

    client: Client
    upstream: Upstream
    worker: BodyWorker

    async def inject(self, session: Session, write: WriteRequest) -> bytes:
        """Return the body to send to the API server; report the kind of a dependent before the object can exist.

        Raises KubeError and aiohttp.ClientError if discovery or the read of the existing object fails.
        """
        if not (session.spec.inject_owner and write.may_need_owner):
            return write.body
        info = write.info
        resource = await self.client.resource_for_path(info.group, info.version, info.resource)
        if resource is None or resource.is_virtual or is_event(resource.gvk):
            return write.body
        obj = await self.worker.run(write.body, lambda: decode_object(write.body, write.content_type))
        if obj is None:
            # Most clients never send YAML, so a body in YAML that cannot be decoded is worth a line.
            log = logger.warning if "yaml" in write.content_type else logger.debug
            reason = f"unknown format, malformed, or YAML of more than {MAX_YAML_BYTES} bytes with its aliases expanded"
            log("Cannot inject owner", target=write.target, content_type=write.content_type, reason=reason)
            return write.body
        return await self._inject_into(session, write, resource, obj)

    async def _inject_into(self, session: Session, write: WriteRequest, resource: ApiResource, obj: RawObject) -> bytes:
        spec = session.spec
        key = _key_of(write.info, resource, obj)
        if spec.owner.refers_to(resource.gvk, key):
            return write.body
        existing = None if write.is_create else await self._existing_metadata(session, write)
        if write.is_merge and existing is None:
            return write.body
        ownership = _target_ownership(spec.owner, key, obj, existing)
        if ownership is None:
            return write.body
        spec.on_dependent(resource, ownership)
        try:
            changed = with_owner(_with_existing_references(write, obj, existing, spec.owner), spec.owner, ownership)
            body = await self.worker.run(write.body, lambda: _body_of(write, obj, changed))
        except (TypeError, ValueError, RecursionError) as error:
            logger.debug("Cannot inject owner: malformed object", target=write.target, reason=str(error))
            return write.body
        logger.debug("Injecting owner reference", dependent=f"{resource.gvk.kind} {key}", ownership=ownership.value)
        return body

    async def _existing_metadata(self, session: Session, write: WriteRequest) -> RawObject | None:
        """Return the metadata of the object to write, None if it does not exist."""
        path = write.object_path
        async with await self.upstream.send("GET", path, {"Accept": ACCEPT_PARTIAL_METADATA}) as response:
            body = await response.read()
        if response.status == 404:  # noqa: PLR2004 - not found
            session.record_version(write.info, "")
            return None
        if response.status != 200:  # noqa: PLR2004 - without its metadata, the object is treated as not ours
            logger.debug("Cannot inject owner: failed to read object", target=path, status=response.status)
            return {}
        found = read_metadata(body)
        session.record_version(write.info, resource_version_of(found))
        return found


def read_metadata(body: bytes) -> RawObject:
    """Return an object's PartialObjectMetadata, without its managed fields if they are nested too deeply."""
    what = "the metadata of the object"
    try:
        return read_object(body, what)
    except UnreadableError:
        return read_object(without_managed_fields(body, b"}}"), what)


def _body_of(write: WriteRequest, obj: RawObject, changed: RawObject) -> bytes:
    return write.body if changed is obj else encode_changed(write.body, write.content_type, obj, changed)


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


def _with_existing_references(
    write: WriteRequest, obj: RawObject, existing: RawObject | None, owner: Owner
) -> RawObject:
    """Return the object with those owner references of the existing object that the write must not drop.

    A write that sets the owner references itself is not changed. A merge patch replaces the list, so it must contain
    all of them. PUT and apply must contain the reference to the owner as it is in the existing object.
    """
    metadata = metadata_of(obj)
    if existing is None or "ownerReferences" in metadata:
        return obj
    references: list[Any] = metadata_of(existing).get("ownerReferences") or []
    kept = references if write.is_merge else [raw for raw in references if raw.get("uid") == owner.uid]
    return obj | {"metadata": metadata | {"ownerReferences": kept}} if kept else obj
