"""An object whose runs read from a cluster in memory, step by step."""

import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from rolecall.kube.client import Selection
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.sessions import PendingRead, Read
from rolecall.runner.reads.read_sets import ObjectReads, ReadCause, ReadRules, ReadSets
from rolecall.runner.reads.read_watches import ReadWatches
from tests.unit.manual_clock import ManualClock, settle
from tests.unit.runner.controller.fake_server import WIDGET, FakeServer

SONG = GVK("example.com", "v1", "Song")
ONE = Owner(SONG, ObjectKey("default", "one"), "uid-one", namespaced=True)
VERBS = frozenset({"get", "list", "watch"})


@dataclass
class NamedSource:
    """What the server has of one name, or everything."""

    server: FakeServer
    selection: Selection

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return how a kind is served."""
        return await self.server.resource(gvk)

    async def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield the pages of the selection."""
        async for items, version in self.server.list_pages(gvk, namespace):
            yield [item for item in items if self._selects(item)], version

    async def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield the events of the selection, and bookmarks."""
        async for kind, obj in self.server.watch(gvk, namespace, resource_version, timeout_seconds):
            if kind == "BOOKMARK" or self._selects(obj):
                yield kind, obj

    def _selects(self, obj: RawObject) -> bool:
        return self.selection.name in ("", obj["metadata"]["name"])


@dataclass
class SteppedRead:
    """A read whose steps the test takes one by one."""

    rig: "Rig"
    key: ObjectKey
    selector: str
    pending: PendingRead | None
    status: int = 0
    content: RawObject | None = None
    keys: frozenset[ObjectKey] | None = None

    def look(self) -> None:
        """Let the API server answer; the answer is on its way."""
        if not self.key.name:
            self.status = 200
            self.content = {"kind": "List", "metadata": {"resourceVersion": str(self.rig.server.version)}}
            if self.pending is not None and self.pending.needs_keys:
                self.keys = frozenset(key for key in self.rig.server.objects if key.namespace == self.key.namespace)
            return
        found = self.rig.server.objects.get(self.key)
        self.status, self.content = (404, None) if found is None else (200, _typed(copy.deepcopy(found)))

    def arrive(self) -> None:
        """Let the answer arrive."""
        if self.pending is not None:
            self.pending.record_response(self.status, self.content, self.keys)


@dataclass
class Rig:
    """The read set of one object, and what has woken it."""

    server: FakeServer = field(default_factory=FakeServer)
    clock: ManualClock = field(default_factory=ManualClock)
    woken: list[ReadCause] = field(default_factory=list)
    rules: ReadRules = field(default_factory=ReadRules)
    reads: ObjectReads = field(init=False)

    def __post_init__(self) -> None:
        """Make the watches, which are not started."""
        kinds = [SONG]
        self.watches = ReadWatches(lambda selection: NamedSource(self.server, selection), self.clock, kinds)
        self.sets = ReadSets(self.watches, self.rules, lambda _key, cause: self.woken.append(cause))

    def start(self) -> None:
        """Begin a run."""
        self.reads = self.sets.start(ONE)

    def ask(self, name: str = "", namespace: str = "default", selector: str = "", verb: str = "") -> SteppedRead:
        """Register a read of the run that is on."""
        key = ObjectKey(namespace, name)
        resource = ApiResource(WIDGET, "widgets", self.server.namespaced, VERBS, frozenset())
        read = Read(resource, verb or ("get" if name else "list"), key, selector)
        return SteppedRead(self, key, selector, self.reads.register(read))

    def read(self, name: str = "", namespace: str = "default", selector: str = "") -> SteppedRead:
        """Take all steps of a read."""
        read = self.ask(name, namespace, selector)
        read.look()
        read.arrive()
        return read

    def end(self, *, successful: bool = True) -> list[str]:
        """End the run, and return why it has to run again."""
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
        """Return what has woken the object since the last time."""
        await settle()
        found = [cause.text for cause in self.woken]
        self.woken.clear()
        return found


def _typed(obj: RawObject) -> RawObject:
    return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind} | obj
