"""How far a list and watch has come: the version up to which nothing is missing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.controller.reflector import ListerWatcher
from rolecall.runner.reads.observed_state import UNKNOWN, version_of


@dataclass(slots=True)
class PositionedSource:
    """Passes lists and watches on, and knows their position.

    ``position`` is the version up to which everything was passed on and taken, ``UNKNOWN`` before the first list.
    ``listing`` is the version of the last list, from its first page on.
    """

    source: ListerWatcher
    position: int = UNKNOWN
    listing: int = UNKNOWN

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the API resource of a kind."""
        return await self.source.resource(gvk)

    async def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield the objects page by page."""
        is_first = True
        async for items, version in self.source.list_pages(gvk, namespace):
            if is_first:
                self.listing, is_first = version_of(version), False
            yield items, version

    async def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield (type, object) for each event and bookmark."""
        async for event_type, obj in self.source.watch(gvk, namespace, resource_version, timeout_seconds):
            yield event_type, obj
            self.position = max(self.position, version_of(resource_version_of(obj)))

    def record_list(self) -> None:
        """Take note that the last list was taken to its end."""
        self.position = max(self.position, self.listing)
