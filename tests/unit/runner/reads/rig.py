"""An object whose runs read from a cluster in memory, step by step."""

import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from rolecall.kube.client import Selection
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.sessions import PendingRead, Read
from rolecall.runner.reads.read_sets import ObjectReads, ReadCause, ReadSets
from rolecall.runner.reads.read_watches import ReadWatches
from tests.unit.manual_clock import ManualClock, settle
from tests.unit.runner.controller.fake_server import WIDGET, FakeServer

SONG = GVK("example.com", "v1", "Song")
ONE = Owner(SONG, ObjectKey("default", "one"), "uid-one", namespaced=True)
VERBS = frozenset({"get", "list", "watch"})


class SelectingServer(FakeServer):
    """A server that reads selections by name; ``watched`` lists the namespaces and names of open watches."""

    def __init__(self, watched: list[tuple[str | None, str]]) -> None:
        super().__init__()
        self.watched = watched

    async def list_pages(
        self, gvk: GVK, namespace: str | None = None, selection: Selection | None = None
    ) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield the pages of the selection."""
        async for items, version in super().list_pages(gvk, namespace):
            yield [item for item in items if _selects(selection, item)], version

    async def watch(
        self,
        gvk: GVK,
        namespace: str | None,
        resource_version: str,
        timeout_seconds: float,
        selection: Selection | None = None,
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield the events of the selection, and bookmarks."""
        key = (namespace, selection.name if selection else "")
        self.watched.append(key)
        try:
            async for kind, obj in super().watch(gvk, namespace, resource_version, timeout_seconds):
                if kind == "BOOKMARK" or _selects(selection, obj):
                    yield kind, obj
        finally:
            self.watched.remove(key)


def _selects(selection: Selection | None, obj: RawObject) -> bool:
    return selection is None or selection.name in ("", obj["metadata"]["name"])


@dataclass
class SteppedRead:
    """A read that the test performs step by step."""

    rig: "Rig"
    key: ObjectKey
    selector: str
    pending: PendingRead | None
    status: int = 0
    content: RawObject | None = None
    keys: frozenset[ObjectKey] | None = None

    def look(self) -> None:
        """Let the API server respond; the response is on its way."""
        if not self.key.name:
            self.status = 200
            self.content = {"kind": "List", "metadata": {"resourceVersion": str(self.rig.server.version)}}
            if self.pending is not None and self.pending.needs_keys:
                self.keys = frozenset(key for key in self.rig.server.objects if key.namespace == self.key.namespace)
            return
        found = self.rig.server.objects.get(self.key)
        self.status, self.content = (404, None) if found is None else (200, _typed(copy.deepcopy(found)))

    def arrive(self) -> None:
        """Let the response arrive."""
        if self.pending is not None:
            self.pending.record_response(self.status, self.content, self.keys)


@dataclass
class Rig:
    """The read set of one object, and the causes that were enqueued for it."""

    server: SelectingServer = field(init=False)
    clock: ManualClock = field(default_factory=ManualClock)
    enqueued: list[ReadCause] = field(default_factory=list)
    watched: list[tuple[str | None, str]] = field(default_factory=list)
    reads: ObjectReads = field(init=False)
    count_subscriptions: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        """Create the watches without starting them."""
        self.server = SelectingServer(self.watched)
        self.watches = ReadWatches(self.server, self.clock, [SONG], self._report)
        self.sets = ReadSets(self.watches, frozenset({("", "Pod")}), lambda _key, cause: self.enqueued.append(cause))

    def _report(self, _gvk: str, _watches: Callable[[], int], subscriptions: Callable[[], int]) -> None:
        self.count_subscriptions = subscriptions

    def start(self) -> None:
        """Start a run."""
        self.reads = self.sets.start(ONE)

    def ask(self, name: str = "", namespace: str = "default", selector: str = "", verb: str = "") -> SteppedRead:
        """Register a read of the current run."""
        key = ObjectKey(namespace, name)
        resource = ApiResource(WIDGET, "widgets", self.server.namespaced, VERBS, frozenset())
        read = Read(resource, verb or ("get" if name else "list"), key, selector)
        return SteppedRead(self, key, selector, self.reads.register(read))

    def read(self, name: str = "", namespace: str = "default", selector: str = "") -> SteppedRead:
        """Perform all steps of a read."""
        read = self.ask(name, namespace, selector)
        read.look()
        read.arrive()
        return read

    def end(self, *, successful: bool = True) -> list[str]:
        """End the run, and return the causes of another one."""
        return [cause.text for cause in self.sets.end(ONE.key, successful=successful)]

    async def run(self, *names: str, successful: bool = True) -> list[str]:
        """Run once and read these objects, or everything in the namespace with an empty name."""
        self.start()
        for name in names:
            self.read(name)
        await settle()
        return self.end(successful=successful)

    async def recover(self) -> None:
        """Let broken watches list and watch again."""
        for _ in range(5):
            await self.clock.advance_and_settle(20)

    async def causes(self) -> list[str]:
        """Return the causes that were enqueued since the last call."""
        await settle()
        found = [cause.text for cause in self.enqueued]
        self.enqueued.clear()
        return found


def _typed(obj: RawObject) -> RawObject:
    return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind} | obj
