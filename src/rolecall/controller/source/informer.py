"""The informer: knows all objects of one kind and tells its consumers of every change, with what was known before.

One informer serves everybody who is interested in its kind. Consumers hear of each change in order and once,
including those that happened while the API server was out of reach, which are told after the next list. Nothing that
a consumer or a missing permission does stops it. ``streams`` fetches, ``store`` remembers; which changes count is
decided by ``predicates``.
"""

import asyncio
from collections.abc import Callable

from rolecall.controller.clock import Clock, LoopClock, sleep
from rolecall.controller.field_paths import FieldPath
from rolecall.controller.source.changes import Change, ChangeType
from rolecall.controller.source.reflector import ListerWatcher, Reflector
from rolecall.controller.source.store import Entry, Store
from rolecall.controller.source.watch_retry import WatchRetry
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.logs import get_logger

logger = get_logger("informer")

Handler = Callable[[Change], None]


class Informer:
    """Lists and watches one kind, in the given namespaces or, with None, in all."""

    def __init__(
        self, client: ListerWatcher, gvk: GVK, namespaces: tuple[str, ...] | None = None, clock: Clock | None = None
    ) -> None:
        self.gvk = gvk
        self.store = Store()
        self._client = client
        self._namespaces = namespaces
        self._clock = clock or LoopClock()
        self._handlers: tuple[Handler, ...] = ()
        self._fields: dict[FieldPath, int] = {}
        self._unlisted: set[str | None] = set(namespaces or (None,))
        self._stuck: set[str | None] = set()
        self._synced = asyncio.Event()
        self._settled = asyncio.Event()

    @property
    def has_synced(self) -> bool:
        """Tell whether all that was there at the start is known."""
        return self._synced.is_set()

    def subscribe(self, handler: Handler, fields: tuple[FieldPath, ...] = ()) -> None:
        """Have a function called with every change from now on; ``fields`` are those that it wants to see compared.

        Subscribe before the informer runs to be told of the objects that are there already. A handler must not wait;
        what it raises is logged and stops nothing.
        """
        for path in fields:
            self._fields.setdefault(path, len(self._fields))
        self._handlers += (handler,)

    async def synced(self) -> None:
        """Wait until all objects that were there at the start are known, and told to the consumers."""
        await self._synced.wait()

    async def settled(self) -> None:
        """Wait until it is synced, or cannot be as long as nobody installs the kind or grants the permission."""
        await self._settled.wait()

    async def run(self) -> None:
        """List and watch until cancelled."""
        resource = await self._find_resource()
        namespaces = self._namespaces if resource.namespaced and self._namespaces is not None else (None,)
        self._unlisted = set(namespaces)
        async with asyncio.TaskGroup() as group:
            for namespace in namespaces:
                group.create_task(Reflector(self._client, self.gvk, namespace, self, self._clock).run())

    async def _find_resource(self) -> ApiResource:
        retry = WatchRetry(self.gvk, None)
        while True:
            try:
                resource = await self._client.resource(self.gvk)
            except KubeError as error:
                seconds = retry.failed(error)
                if retry.failure is not None and retry.failure.is_lasting:
                    self._settled.set()
                await sleep(self._clock, seconds)
            else:
                retry.recovered()
                return resource

    def listed(self, obj: RawObject) -> None:
        """Take one object of a list."""
        self._take(Entry.of(obj, self._fields), obj, live=False)

    def list_ended(self, namespace: str | None, seen: set[ObjectKey]) -> None:
        """Drop what a list no longer had; the first complete set of lists makes the informer synced."""
        known = self.store if namespace is None else self.store.in_namespace(namespace)
        for entry in [entry for entry in known if entry.key not in seen]:
            self.store.remove(entry.key)
            self._tell_of_loss(entry)
        self._unlisted.discard(namespace)
        self._see_where_we_are()

    def changed(self, event_type: str, obj: RawObject) -> None:
        """Take an event of a watch."""
        entry = Entry.of(obj, self._fields)
        if event_type == "DELETED":
            self._tell(self.store.remove(entry.key) or entry, None, obj, live=True)
            return
        self._take(entry, obj, live=True)

    def stuck(self, namespace: str | None) -> None:
        """Hear that a stream cannot go on until somebody does something about it."""
        self._stuck.add(namespace)
        self._see_where_we_are()

    def _take(self, entry: Entry, obj: RawObject, *, live: bool) -> None:
        before = self.store.put(entry)
        if before is not None and before.uid != entry.uid:
            self._tell_of_loss(before)
            before = None
        if before is None or before.resource_version != entry.resource_version:
            self._tell(before, entry, obj, live=live)

    def _see_where_we_are(self) -> None:
        if not self._unlisted and not self.has_synced:
            logger.debug("Informer is synced", gvk=str(self.gvk), objects=len(self.store))
            self._synced.set()
        if self._unlisted <= self._stuck:
            self._settled.set()

    def _tell_of_loss(self, entry: Entry) -> None:
        self._tell(entry, None, entry.as_object(self.gvk), live=False)

    def _tell(self, old: Entry | None, new: Entry | None, obj: RawObject, *, live: bool) -> None:
        kind = ChangeType.DELETED if new is None else ChangeType.ADDED if old is None else ChangeType.MODIFIED
        initial = not live and not self.has_synced
        change = Change(kind, self.gvk, old, new, obj, live=live, initial=initial, fields=self._fields)
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                logger.exception("Handler of a change failed", gvk=str(self.gvk), object=str(change.key))
