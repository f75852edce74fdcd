"""Where the contents of a shadow come from. A source is only ever read."""

from typing import Protocol

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import ObjectKey, RawObject


class SourceError(Exception):
    """A source does not tell what was asked; the text is one line that says what, why and what to do."""


class Source(Protocol):
    """The cluster that a shadow stands in for.

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
