"""The source of a sandbox's objects, which is only read, and a live cluster as such a source.

A live cluster receives nothing but ``get`` and ``list``. An account needs permission to read the objects that the roles
read, and the CustomResourceDefinitions of their kinds.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rolecall.kube.client import Client
from rolecall.kube.connection import Request, read_object
from rolecall.kube.discovery import ApiResource, group_version_path
from rolecall.kube.errors import ForbiddenError, KubeError, NotFoundError, NotServedError
from rolecall.kube.references import GVK, ObjectKey, RawObject

PAGE_OBJECTS: Final = 500
MAX_LIST_BYTES: Final = 128 << 20

DEFINITION: Final = ApiResource(
    GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    "customresourcedefinitions",
    namespaced=False,
    verbs=frozenset({"get"}),
    subresources=frozenset(),
)


class SourceError(Exception):
    """A source cannot be read; the text is one line with the object, the reason and the remedy."""


class _AbsentError(SourceError):
    """The cluster responded with 404."""


class Source(Protocol):
    """The cluster that a sandbox stands in for.

    Objects are whole, as the API server of the source stores them: with uid, managed fields and status.
    """

    async def groups(self) -> RawObject:
        """Return the APIGroupList that the source serves at ``/apis``. Raises SourceError."""

    async def definitions(self, group: str) -> list[RawObject]:
        """Return the CustomResourceDefinitions of a group, none for a group without. Raises SourceError."""

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object, None if it does not exist. Raises SourceError."""

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return the objects that the selectors match, of all namespaces if it is empty. Raises SourceError."""


@dataclass(slots=True)
class LiveSource:
    """Reads a cluster through its own client. Definitions and discovery are read once.

    A list of more than ``max_list_bytes`` is rejected rather than imported in part.
    """

    client: Client
    max_list_bytes: int = MAX_LIST_BYTES
    _groups: RawObject | None = None
    _definitions: dict[str, list[RawObject]] = field(default_factory=dict)

    async def groups(self) -> RawObject:
        """Return the APIGroupList of the cluster."""
        if self._groups is None:
            self._groups, _ = await self._read(Request("GET", "/apis"), "the API groups")
        return self._groups

    async def definitions(self, group: str) -> list[RawObject]:
        """Return the definitions of a group.

        They are read by name, which discovery shows: a cluster may have hundreds of large ones.
        """
        if group not in self._definitions:
            versions = [
                version["version"]
                for each in (await self.groups()).get("groups") or ()
                for version in each.get("versions") or ()
                if each.get("name") == group
            ]
            plurals: dict[str, None] = {}
            for version in versions:
                try:
                    resources, _ = await self._read(
                        Request("GET", group_version_path(group, version)), f"the group {group}"
                    )
                except _AbsentError:
                    continue
                names = (each["name"] for each in resources.get("resources") or ())
                plurals |= {name: None for name in names if "/" not in name}
            found = [await self.get(DEFINITION, ObjectKey("", f"{plural}.{group}")) for plural in plurals]
            self._definitions[group] = [each for each in found if each is not None]
        return self._definitions[group]

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object, None if it does not exist or its kind is not served."""
        try:
            return (await self._read(Request("GET", resource.path_of(key)), f"{resource.plural} {key}"))[0]
        except _AbsentError:
            return None

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return the objects that the selectors match."""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE_OBJECTS)}
        request = Request("GET", resource.path(namespace), {name: value for name, value in query.items() if value})
        subject = f"the {resource.plural}{f' in namespace {namespace}' if namespace else ''}"
        found: list[RawObject] = []
        size = 0
        while True:
            try:
                page, length = await self._read(request, subject)
            except _AbsentError:
                return []
            size += length
            if size > self.max_list_bytes:
                limit = f"{self.max_list_bytes >> 20} MiB, the maximum that is imported"
                raise SourceError(f"{subject} take more than {limit}; request fewer in the role")
            found += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return found
            request = Request("GET", request.path, {**(request.query or {}), "continue": str(token)})

    async def _read(self, request: Request, subject: str) -> tuple[dict[str, Any], int]:
        """Return a response and its length in bytes; messages name the subject. Raises SourceError."""
        try:
            body = await self.client.receive(request)
            return read_object(body, f"GET {request.path}"), len(body)
        except (NotFoundError, NotServedError) as error:  # only the plan may have defined the kind
            raise _AbsentError(str(error)) from error
        except ForbiddenError as error:
            needed = "a plan needs permission to read it"
            raise SourceError(f"{subject} cannot be read: {error.message}; {needed}") from error
        except KubeError as error:
            raise SourceError(f"{subject} cannot be read from {self.client.base_url}: {error}") from error


@dataclass(slots=True)
class RememberingSource(LiveSource):
    """Reads each object and list of a cluster once, for sandboxes filled repeatedly.

    An object that a list has shown isn't read again, so that its state is the same in both.
    """

    _objects: dict[tuple[str, str, ObjectKey], RawObject | None] = field(default_factory=dict)
    _lists: dict[tuple[str, str, str, str, str], list[RawObject]] = field(default_factory=dict)

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object as it was first read."""
        ident = (resource.gvk.group, resource.plural, key)
        if ident not in self._objects:
            self._objects[ident] = await LiveSource.get(self, resource, key)
        return self._objects[ident]

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return a list as it was first read."""
        kind = (resource.gvk.group, resource.plural)
        ident = (*kind, namespace, labels, fields)
        if ident not in self._lists:
            self._lists[ident] = await LiveSource.list(self, resource, namespace, labels=labels, fields=fields)
            for obj in self._lists[ident]:
                self._objects.setdefault((*kind, ObjectKey.of_object(obj)), obj)
        return self._lists[ident]
