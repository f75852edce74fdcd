"""The owner, put into the objects that a run creates.

POST creates. PUT and server-side apply create when the object is not there, so its metadata is read first. An object
that exists is left alone, with two exceptions: one that names the owner already keeps doing so, because PUT and apply
drop what they do not mention; and one whose new text carries the adoption annotation is taken over. The same
annotation, said to be false, keeps the owner out of what is created. A body that cannot be read passes as it is.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.logs import get_logger
from rolecall.proxy.request_info import RequestInfo
from rolecall.proxy.sessions import Session
from rolecall.proxy.transport.forward import Upstream
from rolecall.proxy.writes.bodies import decode_object, encode_changed, media_type
from rolecall.proxy.writes.ownership import (
    ADOPT_ANNOTATION,
    Owner,
    Ownership,
    asks_for_adoption,
    asks_for_no_owner,
    is_report,
    ownership_between,
    ownership_of,
    with_owner,
)

logger = get_logger("proxy")

APPLY: Final = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
MERGE: Final = frozenset({"application/merge-patch+json", "application/strategic-merge-patch+json"})
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A request that may create or change an object, with its body read."""

    method: str
    info: RequestInfo
    target: str
    content_type: str
    body: bytes

    @property
    def object_path(self) -> str:
        """The path of the object, without its subresource."""
        path = self.target.partition("?")[0]
        return path.removesuffix(f"/{self.info.subresource}") if self.info.subresource else path

    @property
    def is_create(self) -> bool:
        """Tell whether the request creates an object and can do nothing else."""
        return self.info.verb == "create"

    @property
    def is_merge(self) -> bool:
        """Tell whether the body is merged into an object that has to exist."""
        return self.info.verb == "patch" and media_type(self.content_type) in MERGE

    @property
    def may_need_owner(self) -> bool:
        """Tell whether the body has to be looked at; plain patches, the most frequent writes, need not."""
        if not self.info.is_resource or self.info.subresource:
            return False
        if self.is_merge:
            return ADOPT_ANNOTATION.partition("/")[0].encode() in self.body
        is_apply = self.info.verb == "patch" and media_type(self.content_type) in APPLY
        return is_apply or self.info.verb == "update" or (self.is_create and not self.info.name)


@dataclass(frozen=True, slots=True)
class OwnerInjector:
    """Gives the body that goes to the API server for the body that a run sent."""

    client: Client
    upstream: Upstream

    async def body_for(self, session: Session, write: WriteRequest) -> bytes:
        """Return the body to send; the run hears of a dependent's kind before the object can exist.

        Raises KubeError and aiohttp.ClientError when the API server does not say what is there.
        """
        if not (session.run.inject_owner and write.may_need_owner):
            return write.body
        info = write.info
        resource = await self.client.resource_for_path(info.group, info.version, info.resource)
        if resource is None or resource.is_virtual or is_report(resource.gvk):
            return write.body
        obj = decode_object(write.body, write.content_type)
        if obj is None:
            logger.debug("Owner not injected, body unreadable", target=write.target, content_type=write.content_type)
            return write.body
        return await self._with_owner(session, write, resource, obj)

    async def _with_owner(self, session: Session, write: WriteRequest, resource: ApiResource, obj: RawObject) -> bytes:
        run = session.run
        key = _key_of(write.info, resource, obj)
        if run.owner.is_object(resource.gvk, key):
            return write.body
        existing = None if write.is_create else await self._existing(session, write)
        if write.is_merge and existing is None:
            return write.body
        ownership = _ownership_to_be(run.owner, key, obj, existing)
        if ownership is None:
            return write.body
        run.on_dependent(resource, ownership)
        try:
            changed = with_owner(_with_kept(write, obj, existing, run.owner), run.owner, ownership)
            body = write.body if changed is obj else encode_changed(write.body, write.content_type, obj, changed)
        except (TypeError, ValueError) as error:
            logger.debug("Owner not injected, object malformed", target=write.target, reason=str(error))
            return write.body
        logger.debug("Injecting owner reference", dependent=f"{resource.gvk.kind} {key}", how=ownership.value)
        return body

    async def _existing(self, session: Session, write: WriteRequest) -> RawObject | None:
        """Return the metadata of the object that a write is for, None when there is no such object."""
        path = write.object_path
        async with await self.upstream.send("GET", path, {"Accept": METADATA_ONLY}) as answer:
            body = await answer.read()
        if answer.status == 404:  # noqa: PLR2004 - not found
            session.saw(write.info, "")
            return None
        if answer.status != 200:  # noqa: PLR2004 - what is there cannot be told: it counts as somebody else's
            logger.debug("Owner not injected, object unreadable", target=path, status=answer.status)
            return {}
        found: RawObject = json.loads(body)
        session.saw(write.info, resource_version_of(found))
        return found


def _key_of(info: RequestInfo, resource: ApiResource, obj: RawObject) -> ObjectKey:
    """Return the key that the object will have; its name may be empty, because the API server generates it."""
    named = ObjectKey.of_object({"metadata": metadata_of(obj)})
    namespace = (info.namespace or named.namespace) if resource.namespaced else ""
    return ObjectKey(namespace, info.name or named.name)


def _ownership_to_be(owner: Owner, key: ObjectKey, obj: RawObject, existing: RawObject | None) -> Ownership | None:
    """Return how the object is to name its owner after the write, None when the write is to pass as it is."""
    if existing is not None and not asks_for_adoption(obj):
        found = ownership_of(existing, owner)
        says_itself = "ownerReferences" in metadata_of(obj)
        return None if found is Ownership.OWNER_REFERENCE and says_itself else found
    named = ownership_of(obj, owner)
    if named is None and asks_for_no_owner(obj):
        return None
    return named or ownership_between(owner, key.namespace)


def _with_kept(write: WriteRequest, obj: RawObject, existing: RawObject | None, owner: Owner) -> RawObject:
    """Return the object with those owner references of the existing one that the write must not drop.

    A write that says itself what they are is left as it is. A merge replaces the list, so it has to hold all of them;
    after PUT and apply the owner's own reference has to be there, in the words that it has.
    """
    metadata = metadata_of(obj)
    if existing is None or "ownerReferences" in metadata:
        return obj
    references: list[Any] = metadata_of(existing).get("ownerReferences") or []
    kept = references if write.is_merge else [raw for raw in references if raw.get("uid") == owner.uid]
    return obj | {"metadata": metadata | {"ownerReferences": kept}} if kept else obj
