"""Asks the real cluster what it says to the writes of a plan, by server-side dry runs.

No request of a plan is forwarded: a new one is made from what it is for, always with ``dryRun=All``, and only for what
a dry run can do safely. A deletion is never sent, because the options in its body take precedence over the URL; nor is
what gives out tokens, opens connections or is served by somebody other than the API server. Each write that is not sent
has an answer that says why.
"""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl

from rolecall.kube.client import Client
from rolecall.kube.connection import Request
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ApiError, ForbiddenError, NotFoundError
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import ObjectKey
from rolecall.plan.results import Admission, AdmissionAnswer, ObjectPlan, Plan, PlannedWrite
from rolecall.proxy.request_info import RequestInfo, parse
from rolecall.proxy.writes.bodies import decode

DRY_RUN: Final = {"dryRun": "All"}

_SENT_VERBS: Final = frozenset({"create", "update", "patch"})
_SENT_SUBRESOURCES: Final = frozenset({"", "status", "scale"})
_KEPT_PARAMETERS: Final = frozenset({"fieldManager", "fieldValidation", "force"})
_OWN_GROUPS: Final = frozenset(
    {
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apps",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)
"""The groups that the API server itself serves, apart from reviews."""

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_OWN_FIELDS: Final = frozenset({"resourceVersion", "uid"})
"""What an object has in the shadow only."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*|")
"""Parts of a path that mean the same in any URL."""

_CREATED: Final = 201
_FIRST_ERROR: Final = 400
_Place = tuple[str, str, ObjectKey]


async def with_admission(plan: Plan, client: Client, report: Callable[[str], None]) -> Plan:
    """Return the plan with the cluster's answers to its writes. Raises KubeError if the cluster cannot be asked."""
    report("Asking the cluster about the planned writes")
    planned = {place for each in plan.objects for write in each.writes if (place := _created_by(write))}
    objects = [replace(each, admission=await _answers(each, client, planned)) for each in plan.objects]
    return replace(plan, objects=tuple(objects))


async def _answers(plan: ObjectPlan, client: Client, planned: set[_Place]) -> tuple[AdmissionAnswer, ...]:
    return tuple([answer async for answer in _Asker(plan, client, planned).answers()])


class _SkippedError(Exception):
    """A write is not sent; the text says why."""


@dataclass(slots=True)
class _Asker:
    """Asks about the writes of one object's runs. ``planned`` are the objects that only exist in the plan."""

    plan: ObjectPlan
    client: Client
    planned: set[_Place]
    _deleted: set[_Place] = field(default_factory=set)
    _is_served: dict[tuple[str, str], str] = field(default_factory=dict)

    async def answers(self) -> AsyncIterator[AdmissionAnswer]:
        """Yield an answer for each write; one that is repeated is asked about once."""
        for write in dict.fromkeys(self.plan.writes):
            try:
                yield await self._answer(write)
            except _SkippedError as reason:
                yield AdmissionAnswer(write, Admission.SKIPPED, str(reason))

    async def _answer(self, write: PlannedWrite) -> AdmissionAnswer:
        info = parse(write.method, write.target)
        if info.verb == "delete" and write.status < _FIRST_ERROR:
            self._deleted.add(_place(info, write))
        _check_request(write, info)
        self._check_object(write, info)
        request = await self._request(write, info)
        try:
            return AdmissionAnswer(write, Admission.ACCEPTED, warnings=await self.client.warnings_to(request))
        except ApiError as error:
            return AdmissionAnswer(write, Admission.REFUSED, str(error), error.warnings)

    def _check_object(self, write: PlannedWrite, info: RequestInfo) -> None:
        """Raise if the object is not in the cluster as the write would find it."""
        place = _place(info, write)
        if place in self._deleted:
            raise _SkippedError("the plan deletes the object before, and a deletion is never sent")
        if place in self.planned and write.status != _CREATED:
            raise _SkippedError("the object is only planned")
        if info.resource != "namespaces" and ("", "namespaces", ObjectKey("", info.namespace)) in self.planned:
            raise _SkippedError(f"the namespace {info.namespace} is only planned")

    async def _request(self, write: PlannedWrite, info: RequestInfo) -> Request:
        """Return the dry run for a write."""
        resource = await self._resource(info)
        body = decode(write.body, write.content_type)
        if not isinstance(body, dict | list):
            raise _SkippedError("its body cannot be decoded")
        namespace = info.namespace if resource.namespaced else ""
        path = resource.path(namespace, info.name, info.subresource)
        query = {name: value for name, value in _query(write.target).items() if name in _KEPT_PARAMETERS} | DRY_RUN
        if info.verb == "patch":
            return Request("PATCH", path, query, _unconditional(body), write.content_type)
        body = _unconditional(body)
        if info.verb == "update" and isinstance(body, dict):
            body = await self._with_current_version(body, resource, ObjectKey(namespace, info.name))
        return Request("POST" if info.verb == "create" else "PUT", path, query, body)

    async def _resource(self, info: RequestInfo) -> ApiResource:
        """Return the resource of a request, which the API server itself must serve and store."""
        resource = await self.client.resource_for_path(info.group, info.version, info.resource)
        if resource is None:
            raise _SkippedError("the cluster does not serve this resource")
        if resource.is_virtual:
            raise _SkippedError("nothing is stored by this request")
        wanted = (info.group, info.resource)
        if info.group not in _OWN_GROUPS and wanted not in self._is_served:
            self._is_served[wanted] = await self._why_not_served(info)
        if reason := self._is_served.get(wanted):
            raise _SkippedError(reason)
        return resource

    async def _why_not_served(self, info: RequestInfo) -> str:
        """Return why a resource is not known to be a custom resource, empty if it is one."""
        name = f"{info.resource}.{info.group}"
        try:
            await self.client.receive(Request("GET", f"{_DEFINITIONS}/{name}"))
        except NotFoundError:
            return "it has no CustomResourceDefinition, so another server may answer, which need not know dry runs"
        except ForbiddenError:
            return f"the CustomResourceDefinition {name} must not be read, so another server may answer"
        return ""

    async def _with_current_version(
        self, body: dict[str, Any], resource: ApiResource, key: ObjectKey
    ) -> dict[str, Any]:
        """Return an object with the version that it has in the cluster, which custom resources require."""
        try:
            version = resource_version_of(await self.client.get(resource.gvk, key))
        except ApiError:
            return body  # the dry run says why
        return body | {"metadata": metadata_of(body) | {"resourceVersion": version}}


def _check_request(write: PlannedWrite, info: RequestInfo) -> None:
    """Raise unless this sort of request may be sent."""
    if not info.is_resource:
        raise _SkippedError("it is for no resource")
    parts = (info.group, info.version, info.resource, info.namespace, info.name)
    if not all(map(_PLAIN.fullmatch, parts)):
        raise _SkippedError("its path has characters that names do not have")
    if info.is_removal:
        raise _SkippedError("a deletion is never sent")
    if info.subresource not in _SENT_SUBRESOURCES:
        raise _SkippedError(f"a request for {info.resource}/{info.subresource} is never sent")
    if info.verb not in _SENT_VERBS or bool(info.name) == (info.verb == "create"):
        raise _SkippedError("only creations, updates and patches of objects are sent")
    if not 0 < write.status < _FIRST_ERROR:
        raise _SkippedError(f"the plan itself got status {write.status}" if write.status else "the plan got no answer")


def _created_by(write: PlannedWrite) -> _Place | None:
    if write.status != _CREATED:
        return None
    return _place(parse(write.method, write.target), write)


def _place(info: RequestInfo, write: PlannedWrite) -> _Place:
    """Return the object that a write is for; its name is empty if the API server makes it."""
    body = decode(write.body, write.content_type) if not info.name else None
    name = info.name or str(metadata_of(body).get("name") or "" if isinstance(body, dict) else "")
    return *info.group_resource, info.key_of(name)


def _query(target: str) -> dict[str, str]:
    return dict(parse_qsl(target.partition("?")[2]))


def _unconditional(body: Any) -> Any:
    """Return a body without the version and the uid of an object, which differ in the shadow."""
    if isinstance(body, list):
        pointers = {f"/metadata/{name}" for name in _OWN_FIELDS}
        return [each for each in body if not (isinstance(each, dict) and each.get("path") in pointers)]
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return body
    return body | {"metadata": {key: value for key, value in metadata.items() if key not in _OWN_FIELDS}}
