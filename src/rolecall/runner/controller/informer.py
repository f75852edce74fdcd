"""The informer: keeps a store of all objects of one kind and calls handlers with every change.

All consumers of a kind share one informer. Handlers get each change once and in order. Changes that happened while the
API server was unreachable are reported after the next list. Neither a failing handler nor a missing permission stops
the informer. ``reflector`` lists and watches, ``store`` keeps the entries, ``predicates`` filter the changes.
"""

import asyncio
from collections.abc import Callable

from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.reflector import ListerWatcher, Reflector, ScopeChangedError, WatchRetry
from rolecall.runner.controller.store import Change, ChangeType, Entry, Store
from rolecall.system.clock import Clock, LoopClock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("informer")

Handler = Callable[[Change], None]


class Informer:
    """Lists and watches one kind, in the given namespaces or, with None, in all namespaces."""

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
        self._blocked: dict[str | None, str] = {}
        self._synced = asyncio.Event()
        self._settled = asyncio.Event()

    @property
    def has_synced(self) -> bool:
        """Return whether the first list is complete."""
        return self._synced.is_set()

    def subscribe(self, handler: Handler, fields: tuple[FieldPath, ...] = ()) -> None:
        """Call a handler with every change from now on; ``fields`` are those that ``Change.has_changed`` must compare.

        Subscribe before the informer runs to receive the existing objects too. A handler must not block. Exceptions it
        raises are logged and do not stop the informer.
        """
        for path in fields:
            self._fields.setdefault(path, len(self._fields))
        self._handlers += (handler,)

    async def synced(self) -> None:
        """Wait until the first list is complete and the handlers have received its objects."""
        await self._synced.wait()

    async def settled(self) -> None:
        """Wait until the informer is synced, or cannot sync for now, see ``blocked_reason``."""
        await self._settled.wait()

    @property
    def blocked_reason(self) -> str:
        """Why the first list is not complete for now, empty if it is, or if it may be soon."""
        return next((reason for namespace, reason in self._blocked.items() if namespace in self._unlisted), "")

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            resource = await self._find_resource()
            self._blocked.clear()
            namespaces = self._namespaces if resource.namespaced and self._namespaces is not None else (None,)
            self._unlisted = set(namespaces)
            try:
                async with asyncio.TaskGroup() as group:
                    for namespace in namespaces:
                        reflector = Reflector(self._client, self.gvk, namespace, self, self._clock)
                        reflector.namespaced = resource.namespaced
                        group.create_task(reflector.run())
            except* ScopeChangedError:
                logger.info("Scope of this kind has changed; listing again", gvk=str(self.gvk))
                self._forget_all()

    def _forget_all(self) -> None:
        """Notify that all objects are gone: the kind was removed with them."""
        for entry in list(self.store):
            self.store.remove(entry.key)
            self._notify_deleted(entry)

    async def _find_resource(self) -> ApiResource:
        retry = WatchRetry(self.gvk, None)
        while True:
            try:
                resource = await self._client.resource(self.gvk)
            except KubeError as error:
                seconds = retry.delay_after_failure(error)
                if retry.blocked_reason:
                    self._blocked = dict.fromkeys(self._unlisted, retry.blocked_reason)
                    self._update_sync_state()
                await sleep(self._clock, seconds)
            else:
                retry.record_success()
                return resource

    def on_listed(self, obj: RawObject) -> None:
        """Store an object from a list."""
        self._upsert(Entry.of(obj, self._fields), obj, from_watch=False)

    def on_list_complete(self, namespace: str | None, listed_keys: set[ObjectKey]) -> None:
        """Remove objects that are not in the list; the informer is synced when every namespace has been listed."""
        known = self.store if namespace is None else self.store.in_namespace(namespace)
        for entry in [entry for entry in known if entry.key not in listed_keys]:
            self.store.remove(entry.key)
            self._notify_deleted(entry)
        self._unlisted.discard(namespace)
        self._update_sync_state()

    def on_watch_event(self, event_type: str, obj: RawObject) -> None:
        """Store a watch event."""
        entry = Entry.of(obj, self._fields)
        if event_type == "DELETED":
            self._notify(self.store.remove(entry.key) or entry, None, obj, from_watch=True)
            return
        self._upsert(entry, obj, from_watch=True)

    def on_unreadable(self, key: ObjectKey) -> None:
        """Keep the last state of the object that could be read."""

    def on_blocked(self, namespace: str | None, reason: str) -> None:
        """Record that a namespace cannot be listed and watched for now."""
        self._blocked[namespace] = reason
        self._update_sync_state()

    def _upsert(self, entry: Entry, obj: RawObject, *, from_watch: bool) -> None:
        before = self.store.put(entry)
        if before is not None and before.uid != entry.uid:
            self._notify_deleted(before)
            before = None
        if before is None or before.resource_version != entry.resource_version:
            self._notify(before, entry, obj, from_watch=from_watch)

    def _update_sync_state(self) -> None:
        if not self._unlisted and not self.has_synced:
            logger.debug("Informer synced", gvk=str(self.gvk), objects=len(self.store))
            self._synced.set()
        if self._unlisted <= self._blocked.keys():
            self._settled.set()

    def _notify_deleted(self, entry: Entry) -> None:
        self._notify(entry, None, entry.tombstone(self.gvk), from_watch=False)

    def _notify(self, old: Entry | None, new: Entry | None, obj: RawObject, *, from_watch: bool) -> None:
        change_type = ChangeType.DELETED if new is None else ChangeType.ADDED if old is None else ChangeType.MODIFIED
        in_initial_list = not from_watch and not self.has_synced
        change = Change(
            change_type,
            self.gvk,
            old,
            new,
            obj,
            from_watch=from_watch,
            in_initial_list=in_initial_list,
            fields=self._fields,
        )
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                logger.exception("Event handler failed", gvk=str(self.gvk), object=str(change.key))
