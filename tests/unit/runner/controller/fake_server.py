"""A fake API server in memory, with the three requests of informers, and every type of failure on demand."""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

from rolecall.kube.client import Client, Selection, is_partial, partial_object
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import GoneError, KubeError, UnreachableError
from rolecall.kube.references import GVK, ObjectKey, RawObject

WIDGET = GVK("example.com", "v1", "Widget")
_Event = tuple[str, RawObject] | Exception | None


class FakeServer(Client):
    """A client of a server with one kind; ``failure`` makes every call and stream fail.

    ``broken_kinds`` makes those of one kind fail, ``undiscoverable_kinds`` its discovery. With
    ``expiring`` a list expires after its first page.
    """

    def __init__(self, *, namespaced: bool = True, page_size: int = 2) -> None:
        self.namespaced = namespaced
        self.page_size = page_size
        self.failure: KubeError | None = None
        self.forget_everything = False
        self.expiring = False
        self.broken_kinds: dict[GVK, KubeError] = {}
        self.undiscoverable_kinds: dict[GVK, KubeError] = {}
        self.forbidden_namespaces: dict[str | None, KubeError] = {}
        self.objects: dict[ObjectKey, RawObject] = {}
        self.version = 100
        self.lists = 0
        self.watched_from: list[str] = []
        self._history: list[tuple[int, str, RawObject]] = []
        self._oldest = 0
        self._streams: list[tuple[str | None, asyncio.Queue[_Event]]] = []

    def put(self, name: str, namespace: str = "default", **fields: Any) -> RawObject:
        """Create or change an object; ``fields`` are its spec, status, labels, annotations, owners or uid.

        With ``unreadable`` the object comes with its metadata only.
        """
        self.version += 1
        key = ObjectKey(namespace if self.namespaced else "", name)
        known = self.objects.get(key)
        metadata: dict[str, Any] = {
            "name": name,
            "uid": fields.get("uid", f"uid-{name}"),
            "resourceVersion": str(self.version),
            "generation": known["metadata"]["generation"] + 1 if known else 1,
            "labels": fields.get("labels", {}),
            "annotations": fields.get("annotations", {}),
            "ownerReferences": fields.get("owners", []),
        }
        if self.namespaced:
            metadata["namespace"] = namespace
        obj = {"metadata": metadata, "spec": fields.get("spec", {}), "status": fields.get("status", {})}
        if fields.get("unreadable"):
            obj = partial_object(obj)
        self.objects[key] = obj
        self._record("MODIFIED" if known else "ADDED", obj)
        return obj

    def remove(self, name: str, namespace: str = "default") -> None:
        """Delete an object."""
        self.version += 1
        obj = self.objects.pop(ObjectKey(namespace if self.namespaced else "", name))
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._record("DELETED", obj)

    def bookmark(self) -> None:
        """Send a bookmark to every stream."""
        self.version += 1
        for _, stream in self._streams:
            stream.put_nowait(("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))

    def restore(self, version: int, *names: str) -> None:
        """Become an earlier version with only these objects, as etcd after a restore, and end every stream."""
        self.version = version
        self._history.clear()
        self.objects = {key: obj for key, obj in self.objects.items() if key.name in names}
        for obj in self.objects.values():
            obj["metadata"]["resourceVersion"] = str(version)
        self.end_streams(UnreachableError("reset"))

    def forget_history(self) -> None:
        """Respond with 410 to watches from an earlier version."""
        self.version += 1
        self._history.clear()
        self._oldest = self.version

    def end_streams(self, error: Exception | None = None) -> None:
        """End every stream, with an error if one is given."""
        for _, stream in self._streams:
            stream.put_nowait(error)

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the API resource of the kind."""
        failure = self.failure or self.undiscoverable_kinds.get(gvk)
        if failure is not None:
            raise failure
        return ApiResource(gvk, "widgets", self.namespaced, frozenset({"get", "list", "watch"}), frozenset())

    async def list_pages(
        self, gvk: GVK, namespace: str | None = None, _selection: Selection | None = None
    ) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield the objects page by page."""
        self._check(gvk, namespace)
        version = str(self.version)
        found = [copy.deepcopy(obj) for key, obj in self.objects.items() if namespace in (None, key.namespace)]
        for start in range(0, max(len(found), 1), self.page_size):
            if start and self.expiring:
                raise GoneError(410, "Expired", "the provided continue parameter is too old")
            yield found[start : start + self.page_size], version
        self.lists += 1  # only complete ones

    async def watch(
        self,
        gvk: GVK,
        namespace: str | None,
        resource_version: str,
        _timeout_seconds: float,
        _selection: Selection | None = None,
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield past and future events."""
        await self.resource(gvk)
        self._check(gvk, namespace)
        self.watched_from.append(resource_version)
        if int(resource_version) < self._oldest or self.forget_everything:
            raise GoneError(410, "Expired", "too old resource version")
        stream: asyncio.Queue[_Event] = asyncio.Queue()
        for version, event_type, obj in self._history:
            if version > int(resource_version) and namespace in (None, obj["metadata"].get("namespace", "")):
                stream.put_nowait((event_type, obj))
        entry = (namespace, stream)
        self._streams.append(entry)
        try:
            while (event := await stream.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event[0], copy.deepcopy(event[1])
        finally:
            self._streams.remove(entry)

    def _check(self, gvk: GVK, namespace: str | None) -> None:
        failure = self.failure or self.broken_kinds.get(gvk) or self.forbidden_namespaces.get(namespace)
        if failure is not None:
            raise failure

    def _record(self, event_type: str, obj: RawObject) -> None:
        kept = copy.deepcopy(obj)
        if not is_partial(obj) or event_type == "DELETED":
            kept |= {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind}
        self._history.append((self.version, event_type, kept))
        for namespace, stream in self._streams:
            if namespace in (None, obj["metadata"].get("namespace", "")):
                stream.put_nowait((event_type, kept))
