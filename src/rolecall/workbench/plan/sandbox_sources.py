"""A live cluster as the source of a sandbox: everything that is ever sent to it is a ``get`` or a ``list``.

The rights to read what the roles read are enough, and those to read the CustomResourceDefinitions of their kinds.

Where the contents of a sandbox come from. A source is only ever read.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rolecall.kube.client import Client
from rolecall.kube.connection import Request, read_object
from rolecall.kube.discovery import ApiResource, group_version_path
from rolecall.kube.errors import ForbiddenError, KubeError, NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject


class SourceError(Exception):
    """A source does not tell what was asked; the text is one line that says what, why and what to do."""


class Source(Protocol):
    """The cluster that a sandbox stands in for.

    Objects are whole, as the API server of the source stores them: with uid, managed fields and status.
    """

    async def groups(self) -> RawObject:
        """Return what the source serves at ``/apis``: an APIGroupList. Raises SourceError."""

    async def definitions(self, group: str) -> list[RawObject]:
        """Return the CustomResourceDefinitions of a group, none for a group without. Raises SourceError."""

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object, None if there is none. Raises SourceError."""

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return the objects that the selectors match, of all namespaces if it is empty. Raises SourceError."""


PAGE_OBJECTS: Final = 500
MAX_LIST_BYTES: Final = 128 << 20

DEFINITION: Final = ApiResource(
    GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    "customresourcedefinitions",
    namespaced=False,
    verbs=frozenset({"get"}),
    subresources=frozenset(),
)


@dataclass(slots=True)
class LiveSource:
    """Reads a cluster through a client of its own. Definitions and discovery are read once.

    A list that takes more than ``most_list_bytes`` is refused rather than imported in part.
    """

    client: Client
    most_list_bytes: int = MAX_LIST_BYTES
    _groups: RawObject | None = None
    _definitions: dict[str, list[RawObject]] = field(default_factory=dict)

    async def groups(self) -> RawObject:
        """Return what the cluster serves at ``/apis``."""
        if self._groups is None:
            self._groups = await self.read(Request("GET", "/apis"), "the API groups")
        return self._groups

    async def definitions(self, group: str) -> list[RawObject]:
        """Return the definitions of a group. They are read by name: a cluster may have hundreds of large ones."""
        if group not in self._definitions:
            found = [await self.get(DEFINITION, ObjectKey("", name)) for name in await _names_in(self, group)]
            self._definitions[group] = [each for each in found if each is not None]
        return self._definitions[group]

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object, None if there is none or its kind is not served."""
        try:
            return await self.read(Request("GET", resource.path_of(key)), f"{resource.plural} {key}")
        except _AbsentError:
            return None

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return the objects that the selectors match."""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE_OBJECTS)}
        request = Request("GET", resource.path(namespace), {name: value for name, value in query.items() if value})
        where = f" in namespace {namespace}" if namespace else ""
        found: list[RawObject] = []
        size = 0
        while True:
            try:
                page, length = await self._receive(request, f"the {resource.plural}{where}")
            except _AbsentError:
                return []
            size += length
            if size > self.most_list_bytes:
                limit = f"{self.most_list_bytes >> 20} MiB, the most that is imported"
                raise SourceError(f"the {resource.plural}{where} take more than {limit}; ask for fewer in the role")
            found += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return found
            request = Request("GET", request.path, {**(request.query or {}), "continue": str(token)})

    async def read(self, request: Request, what: str) -> dict[str, Any]:
        """Return an answer; ``what`` says in a message what it is. Raises SourceError."""
        return (await self._receive(request, what))[0]

    async def _receive(self, request: Request, what: str) -> tuple[dict[str, Any], int]:
        """Return an answer and its length in bytes. Raises SourceError."""
        try:
            body = await self.client.receive(request)
            return read_object(body, f"GET {request.path}"), len(body)
        except NotFoundError as error:
            raise _AbsentError(str(error)) from error
        except ForbiddenError as error:
            raise SourceError(f"{what} cannot be read: {error.message}; a plan needs the right to read it") from error
        except KubeError as error:
            raise SourceError(f"{what} cannot be read from {self.client.base_url}: {error}") from error


class _AbsentError(SourceError):
    """The cluster answered 404."""


async def _names_in(source: LiveSource, group: str) -> list[str]:
    """Return the names of the definitions that a group may have, from its discovery."""
    served = (each for each in (await source.groups()).get("groups") or () if each.get("name") == group)
    names: dict[str, None] = {}
    for version in (each["version"] for found in served for each in found.get("versions") or ()):
        try:
            resources = await source.read(Request("GET", group_version_path(group, version)), f"the group {group}")
        except _AbsentError:
            continue
        names |= {
            f"{each['name']}.{group}": None for each in resources.get("resources") or () if "/" not in each["name"]
        }
    return list(names)
