import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.discovery import ApiResource
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Finalizer, ReferenceType, Trigger, Watch
from rolecall.runner.controller.controller import Dispatcher
from rolecall.runner.controller.manager import Manager
from rolecall.runner.controller.work_queue import Cause, Priority
from rolecall.runner.election.shard_member import HeldShards
from rolecall.runner.proxy.ownership import Owner, Ownership
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import Read
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.context import PERIOD_ANNOTATION
from rolecall.runner.reconcile.kubernetes_events import EventRecorder
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.runner.watch_controller import (
    OperatorContext,
    WatchController,
    initial_priority,
)
from tests.support.reconciler_rig import ScriptedRunner
from tests.support.things import THING
from tests.unit.fake_cluster import VERBS, FakeCluster
from tests.unit.manual_clock import ManualClock, settle
from tests.unit.runner.controller.fake_server import FakeServer
from tests.unit.runner.proxy.conftest import until

POD, CONFIG_MAP = GVK("", "v1", "Pod"), GVK("", "v1", "ConfigMap")
NAMESPACE = GVK("", "v1", "Namespace")
CONFIG_MAPS = ApiResource(CONFIG_MAP, "configmaps", True, VERBS, frozenset())  # noqa: FBT003 - namespaced
NAMESPACES = ApiResource(NAMESPACE, "namespaces", False, VERBS, frozenset())  # noqa: FBT003 - cluster-scoped
ONE = ObjectKey("default", "one")
TYPE = "operator-sdk/primary-resource-type"
NAME = "operator-sdk/primary-resource"


class Bench:
    """A watch controller whose informers hear what the test tells them; nothing runs by itself."""

    def __init__(
        self,
        cluster: FakeCluster,
        root: Path,
        *,
        reads: ReadWatches | None = None,
        shards: HeldShards | None = None,
        **watch: Any,
    ) -> None:
        self.clock = ManualClock()
        self.manager = Manager(cluster, None, self.clock, Dispatcher(), 20, 10)
        self.manager.dispatcher.has_started = True
        self.own_writes = OwnWrites()
        nothing_read = ReadWatches(FakeServer(), self.clock, [THING], lambda *_: None)
        context = OperatorContext(
            settings=Settings(),
            proxy=Proxy(cluster),
            manager=self.manager,
            own_writes=self.own_writes,
            read_watches=reads or nothing_read,
            may_write=lambda: True,
            shards=shards,
            runner=ScriptedRunner(),
            root=root,
            environment={},
            discovery=None,
            metrics=OperatorMetrics("test", [watch.get("gvk", THING)]),
            events=EventRecorder(cluster),
            recorder=None,
            tracer=None,
        )
        watched = replace(Watch(THING, RoleContent(root)), **watch)
        self.controller = WatchController(watched, context)
        self._version = 100

    def tell(self, gvk: GVK, kind: str = "ADDED", name: str = "one", **fields: Any) -> RawObject:
        """Tell the informer of a kind about a change; ``fields`` are metadata, except for spec and status."""
        obj = self.version_of(gvk, name, **fields)
        self.manager.informer_for(gvk).on_watch_event(kind, obj)
        return obj

    def show(self, gvk: GVK, name: str = "one", **fields: Any) -> None:
        """Show an object to the informer of a kind in its first list."""
        self.manager.informer_for(gvk).on_listed(self.version_of(gvk, name, **fields))

    def version_of(self, gvk: GVK, name: str, **fields: Any) -> RawObject:
        """Return the next version of an object."""
        self._version += 1
        body = {key: fields.pop(key) for key in ("spec", "status") if key in fields}
        metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version)}
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata | fields} | body

    def urgency(self) -> dict[str, Priority | None]:
        """Return the names of what is due, each with its priority."""
        queue = self.controller.queue
        return {key.name: queue.look_up(key).priority for key in queue._order}

    async def due(self) -> dict[ObjectKey, list[str]]:
        """Take everything that is due: the keys and why."""
        found = {}
        while len(self.controller.queue):
            key, causes = self.controller.queue.take()
            found[key] = [cause.text for cause in causes]
            self.controller.queue.done(key, lambda _cause: False)
        return found


@pytest.fixture
def bench(cluster: FakeCluster, tmp_path: Path) -> Bench:
    return Bench(cluster, tmp_path)


async def test_created_changed_or_deleted_primary_is_reconciled(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    assert await bench.due() == {ONE: ["Thing default/one created"]}
    bench.tell(THING, "MODIFIED", generation=2, spec={"size": 2})
    assert await bench.due() == {ONE: ["Thing default/one: spec.size (generation 2)"]}
    bench.tell(THING, "DELETED", generation=2)
    assert await bench.due() == {ONE: ["Thing default/one deleted"]}


async def test_change_of_status_or_metadata_is_ignored(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    await bench.due()
    bench.tell(THING, "MODIFIED", generation=1, status={"a": 1})
    bench.tell(THING, "MODIFIED", generation=1, labels={"a": "1"}, annotations={"b": "2"})
    assert await bench.due() == {}


async def test_any_change_of_a_rejected_primary_triggers(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    await bench.due()
    bench.controller.reconciler.rejected.add(ONE)
    bench.tell(THING, "MODIFIED", generation=1, annotations={"b": "2"})
    assert await bench.due() == {ONE: ["Thing default/one: metadata.annotations"]}


@pytest.mark.parametrize("can_run", [True, False])
async def test_ignored_change_while_a_primary_is_read_triggers_only_if_it_cannot_run(
    bench: Bench, *, can_run: bool
) -> None:
    """Such as the status of another controller. Until the primary is read, nobody knows whether it can run."""
    bench.tell(THING, generation=1)
    queue, rejected = bench.controller.queue, bench.controller.reconciler.rejected
    queue.take()
    rejected.add(ONE)
    bench.tell(THING, "MODIFIED", generation=1, status={"a": 1})
    if can_run:
        rejected.discard(ONE)
    queue.done(ONE, lambda cause: not bench.controller._is_self_trigger(ONE, cause))
    assert await bench.due() == ({} if can_run else {ONE: ["Thing default/one: status.a"]})


async def test_annotation_for_the_period_triggers(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    await bench.due()
    bench.tell(THING, "MODIFIED", generation=1, annotations={PERIOD_ANNOTATION: "1m"})
    assert list(await bench.due()) == [ONE]


async def test_annotations_trigger_if_the_watch_enables_it(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = Bench(cluster, tmp_path, watch_annotations_changes=True)
    bench.tell(THING, generation=1)
    await bench.due()
    bench.tell(THING, "MODIFIED", generation=1, annotations={"b": "2"})
    assert await bench.due() == {ONE: ["Thing default/one: metadata.annotations"]}


async def test_only_selected_primaries_are_reconciled(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = Bench(cluster, tmp_path, selector=LabelSelector.compile({"matchLabels": {"tier": "web"}}))
    bench.tell(THING, name="other", generation=1)
    bench.tell(THING, generation=1, labels={"tier": "web"})
    assert list(await bench.due()) == [ONE]


async def test_own_write_triggers_only_if_it_changed_the_spec(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    await bench.due()
    for generation, expected in ((1, []), (2, [ONE])):
        own = {"metadata": {"uid": "uid-one", "resourceVersion": str(bench._version + 1)}}
        bench.own_writes.record_write((THING, ONE), own)
        bench.tell(THING, "MODIFIED", generation=generation, status={"a": generation})
        assert list(await bench.due()) == expected


async def test_cause_during_a_run_is_judged_at_its_end(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    key, _ = bench.controller.queue.take()
    changed = bench.tell(THING, "MODIFIED", generation=2)
    bench.controller.reconciler.self_triggers.run_started(ONE, changed)
    is_self_trigger = bench.controller.controller.is_self_trigger
    assert is_self_trigger is not None
    bench.controller.queue.done(key, lambda cause: not is_self_trigger(key, cause))
    assert await bench.due() == {}


def labels_trigger(*on: str) -> Trigger:
    """Return a trigger on pods by the labels that a primary names."""
    paths = tuple(map(FieldPath.parse, on))
    return Trigger(POD, ReferenceType.LABELS, FieldPath.parse("$.spec.selector"), paths)


async def test_trigger_enqueues_matching_primaries(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = Bench(cluster, tmp_path, triggers=(labels_trigger("$.status.phase"),))
    bench.tell(THING, generation=1, spec={"selector": {"app": "web"}})
    bench.tell(THING, name="other", generation=1, spec={"selector": {"app": "db"}})
    await bench.due()
    bench.tell(POD, name="pod", labels={"app": "web"}, status={"phase": "Pending"})
    assert await bench.due() == {ONE: ["Pod default/pod created"]}
    bench.tell(POD, "MODIFIED", name="pod", labels={"app": "web"}, status={"phase": "Pending", "note": "x"})
    assert await bench.due() == {}
    bench.tell(POD, "MODIFIED", name="pod", labels={"app": "web"}, status={"phase": "Running"})
    assert await bench.due() == {ONE: ["Pod default/pod: status.note, status.phase"]}
    bench.tell(POD, "MODIFIED", name="pod", labels={"app": "db"}, status={"phase": "Running"})
    assert set(await bench.due()) == {ONE, ObjectKey("default", "other")}


async def test_trigger_forgets_deleted_and_deselected_primaries(cluster: FakeCluster, tmp_path: Path) -> None:
    selector = LabelSelector.compile({"matchLabels": {"tier": "web"}})
    bench = Bench(cluster, tmp_path, triggers=(labels_trigger(),), selector=selector)
    spec = {"selector": {"app": "web"}}
    bench.tell(THING, generation=1, spec=spec, labels={"tier": "web"})
    bench.tell(THING, name="gone", generation=1, spec=spec, labels={"tier": "web"})
    bench.tell(THING, "MODIFIED", generation=1, spec=spec, labels={"tier": "db"})
    bench.tell(THING, "DELETED", name="gone", generation=1, spec=spec, labels={"tier": "web"})
    await bench.due()
    bench.tell(POD, name="pod", labels={"app": "web"})
    assert await bench.due() == {}


def owned(name: str = "one") -> list[dict[str, str]]:
    """Return owner references to a Thing."""
    return [{"apiVersion": THING.api_version, "kind": THING.kind, "name": name, "uid": f"uid-{name}"}]


async def test_dependents_are_watched_from_the_first_one(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    await bench.due()
    assert CONFIG_MAP not in bench.manager.informers
    for _ in range(2):
        bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.OWNER_REFERENCE)
    bench.tell(CONFIG_MAP, name="made", ownerReferences=owned())
    assert await bench.due() == {}
    bench.tell(CONFIG_MAP, "MODIFIED", name="made", ownerReferences=owned(), labels={"a": "b"})
    assert await bench.due() == {ONE: ["dependent ConfigMap default/made: metadata.labels"]}
    bench.tell(CONFIG_MAP, "DELETED", name="made", ownerReferences=owned())
    assert await bench.due() == {ONE: ["dependent ConfigMap default/made deleted"]}


async def test_dependent_of_another_uid_triggers_only_when_deleted(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    await bench.due()
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.OWNER_REFERENCE)
    foreign = [reference | {"uid": "uid-of-the-one-before"} for reference in owned()]
    bench.tell(CONFIG_MAP, name="made", ownerReferences=foreign)
    bench.tell(CONFIG_MAP, "MODIFIED", name="made", ownerReferences=foreign, labels={"a": "b"})
    assert await bench.due() == {}
    bench.tell(CONFIG_MAP, "DELETED", name="made", ownerReferences=foreign)
    assert await bench.due() == {ONE: ["dependent ConfigMap default/made deleted"]}


async def test_dependent_of_missing_or_deselected_primary_triggers_nothing(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    bench = Bench(cluster, tmp_path, selector=LabelSelector.compile({"matchLabels": {"tier": "web"}}))
    bench.tell(THING, generation=1)
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.OWNER_REFERENCE)
    for owner in ("one", "nobody"):
        bench.tell(CONFIG_MAP, name=owner, ownerReferences=owned(owner))
        bench.tell(CONFIG_MAP, "DELETED", name=owner, ownerReferences=owned(owner))
    assert await bench.due() == {}


@pytest.mark.parametrize(
    "watch", [{"watch_dependent_resources": False}, {"blacklist": frozenset({CONFIG_MAP})}], ids=["off", "blacklist"]
)
async def test_dependents_are_not_watched_if_the_watch_disables_it(
    cluster: FakeCluster, tmp_path: Path, watch: dict[str, Any]
) -> None:
    bench = Bench(cluster, tmp_path, **watch)
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.OWNER_REFERENCE)
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.ANNOTATION)
    assert CONFIG_MAP not in bench.manager.informers


async def test_dependent_triggers_cluster_scoped_primary(bench: Bench) -> None:
    bench.tell(THING, generation=1, namespace="")
    await bench.due()
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.OWNER_REFERENCE)
    bench.tell(CONFIG_MAP, name="made", ownerReferences=owned())
    bench.tell(CONFIG_MAP, "DELETED", name="made", ownerReferences=owned())
    assert await bench.due() == {ObjectKey("", "one"): ["dependent ConfigMap default/made deleted"]}


@pytest.mark.parametrize(("cluster_scoped", "expected"), [(False, []), (True, [ONE])])
async def test_cluster_scoped_dependents_trigger_if_the_watch_enables_it(
    cluster: FakeCluster, tmp_path: Path, *, cluster_scoped: bool, expected: list[ObjectKey]
) -> None:
    bench = Bench(cluster, tmp_path, watch_cluster_scoped_resources=cluster_scoped)
    bench.tell(THING, generation=1)
    await bench.due()
    annotations = {TYPE: "Thing.test.rolecall.dev", NAME: "default/one"}
    bench.controller._on_dependent_kind(NAMESPACES, Ownership.ANNOTATION)
    assert (NAMESPACE in bench.manager.informers) is cluster_scoped
    bench.tell(NAMESPACE, name="made", namespace="", annotations=annotations)
    bench.tell(NAMESPACE, "MODIFIED", name="made", namespace="", annotations=annotations, labels={"a": "b"})
    assert list(await bench.due()) == expected


async def test_annotated_dependent_in_another_namespace_triggers(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    await bench.due()
    annotations = {TYPE: "Thing.test.rolecall.dev", NAME: "default/one"}
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.ANNOTATION)
    bench.tell(CONFIG_MAP, name="made", namespace="other", annotations=annotations)
    bench.tell(CONFIG_MAP, "DELETED", name="made", namespace="other", annotations=annotations)
    assert await bench.due() == {ONE: ["dependent ConfigMap other/made deleted"]}


async def test_changed_role_is_retried_within_a_second(bench: Bench) -> None:
    queue = bench.controller.queue
    for _ in range(5):
        queue.add(ONE, Cause("test"))
        key, _ = queue.take()
        queue.add_rate_limited(key, Cause("retry after a failure"))
        queue.done(key)
    bench.controller.content_changed()
    assert await bench.due() == {}
    bench.clock.advance(1)
    assert await bench.due() == {ONE: ["files of the role changed"]}


@pytest.mark.parametrize("name", ["rolecall.dev/paused", "rolecall.dev/reconcile-requested-at"])
async def test_rolecall_annotations_always_trigger(bench: Bench, name: str) -> None:
    bench.tell(THING, generation=1)
    await bench.due()
    for value in ("true", "2026-01-01", None):
        annotations = {name: value} if value else {}
        bench.tell(THING, "MODIFIED", generation=1, annotations=annotations)
        assert list(await bench.due()) == [ONE]
        bench.tell(THING, "MODIFIED", generation=1, annotations=annotations | {"other": "changes"})
        assert await bench.due() == {}


async def test_deletion_of_deselected_object_with_finalizer_triggers(cluster: FakeCluster, tmp_path: Path) -> None:
    selector = LabelSelector.compile({"matchLabels": {"tier": "web"}})
    finalizer = Finalizer("example.com/finalizer", None, {"state": "absent"})
    bench = Bench(cluster, tmp_path, selector=selector, finalizer=finalizer)
    bench.tell(THING, generation=1, labels={"tier": "web"})
    bench.tell(THING, "MODIFIED", generation=1)
    await bench.due()
    bench.tell(THING, "MODIFIED", generation=2, deletionTimestamp="2026-01-01T12:00:00Z")
    assert list(await bench.due()) == [ONE]


async def test_newly_selected_object_is_reconciled(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = Bench(cluster, tmp_path, selector=LabelSelector.compile({"matchLabels": {"tier": "web"}}))
    bench.tell(THING, generation=1)
    assert await bench.due() == {}
    bench.tell(THING, "MODIFIED", generation=1, labels={"tier": "web"})
    assert await bench.due() == {ONE: ["Thing default/one: metadata.labels"]}


async def test_dependent_triggers_only_if_deleted_by_another_client(bench: Bench) -> None:
    bench.tell(THING, generation=1)
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.OWNER_REFERENCE)
    for name in ("mine", "theirs"):
        bench.tell(CONFIG_MAP, name=name, ownerReferences=owned())
    await bench.due()
    bench.own_writes.record_removal((THING, ONE), "uid-mine")
    bench.tell(CONFIG_MAP, "DELETED", name="mine", ownerReferences=owned())
    assert await bench.due() == {}
    bench.tell(CONFIG_MAP, "DELETED", name="theirs", ownerReferences=owned())
    assert await bench.due() == {ONE: ["dependent ConfigMap default/theirs deleted"]}


HIGH, MEDIUM, LOW = Priority.HIGH, Priority.MEDIUM, Priority.LOW
DONE = {"observedGeneration": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2, "spec": {"size": 2}},
        {"generation": 1, "annotations": {"rolecall.dev/paused": "true"}},
        {"generation": 1, "annotations": {"rolecall.dev/reconcile-requested-at": "now"}},
        {"generation": 2, "deletionTimestamp": "2026-01-01T12:00:00Z"},
    ],
    ids=["spec", "pause", "reconcile-requested-at", "deletion"],
)
async def test_change_by_a_user_has_high_priority(bench: Bench, change: dict[str, Any]) -> None:
    bench.tell(THING, generation=1)
    assert bench.urgency() == {"one": HIGH}
    await bench.due()
    bench.tell(THING, "MODIFIED", status=DONE, **change)
    assert bench.urgency() == {"one": HIGH}
    await bench.due()
    bench.tell(THING, "DELETED", status=DONE, **change)
    assert bench.urgency() == {"one": HIGH}


async def test_triggers_and_dependents_have_medium_priority(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = Bench(cluster, tmp_path, triggers=(labels_trigger(),))
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.OWNER_REFERENCE)
    bench.tell(THING, generation=1, spec={"selector": {"app": "web"}})
    bench.tell(CONFIG_MAP, name="made", ownerReferences=owned())
    await bench.due()
    bench.tell(POD, name="pod", labels={"app": "web"})
    assert bench.urgency() == {"one": MEDIUM}
    await bench.due()
    bench.tell(CONFIG_MAP, "DELETED", name="made", ownerReferences=owned())
    assert bench.urgency() == {"one": MEDIUM}
    bench.tell(THING, "MODIFIED", generation=2, spec={"selector": {"app": "web"}})
    assert bench.urgency() == {"one": HIGH}


def list_all(bench: Bench) -> None:
    """Show a first list in which some objects have changed since their last run."""
    bench.show(THING, "same", generation=3, status={"observedGeneration": 3})
    bench.show(THING, "changed", generation=4, status={"observedGeneration": 3})
    bench.show(THING, "new", generation=1)
    bench.show(THING, "gone", generation=3, status={"observedGeneration": 3}, deletionTimestamp="2026-01-01T12:00:00Z")


FIRST_ROUND = {"changed": HIGH, "new": HIGH, "gone": HIGH, "same": LOW}


@pytest.mark.parametrize("has_started", [False, True])
async def test_initial_reconcile_has_high_priority_only_for_changed_objects(bench: Bench, *, has_started: bool) -> None:
    bench.manager.dispatcher.has_started = has_started
    list_all(bench)
    assert bench.urgency() == FIRST_ROUND


async def test_initial_list_of_a_trigger_has_low_priority(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = Bench(cluster, tmp_path, triggers=(labels_trigger(),))
    bench.show(THING, generation=1, status=DONE, spec={"selector": {"app": "web"}})
    bench.show(POD, "pod", labels={"app": "web"})
    assert bench.urgency() == {"one": LOW}
    assert (await bench.due())[ONE] == ["Thing default/one found at startup", "Pod default/pod found at startup"]


async def test_change_during_the_initial_reconcile_has_high_priority(bench: Bench) -> None:
    list_all(bench)
    bench.tell(THING, "MODIFIED", "same", generation=4, status={"observedGeneration": 3})
    assert bench.urgency() == FIRST_ROUND | {"same": HIGH}


async def test_follower_lowers_priority_of_objects_that_the_leader_reconciled(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    bench = Bench(cluster, tmp_path, triggers=(labels_trigger(),))
    bench.manager.dispatcher.has_started = False
    spec = {"selector": {"app": "web"}}
    bench.tell(THING, generation=1, spec=spec)
    assert bench.urgency() == {"one": HIGH}
    bench.tell(THING, "MODIFIED", generation=1, spec=spec, status=DONE)
    assert bench.urgency() == {"one": LOW}
    bench.tell(POD, name="pod", labels={"app": "web"})
    assert bench.urgency() == {"one": LOW}
    bench.tell(THING, "MODIFIED", generation=2, spec=spec, status=DONE)
    assert bench.urgency() == {"one": HIGH}


async def test_follower_forgets_deleted_objects(cluster: FakeCluster, tmp_path: Path) -> None:
    """It may follow for months, and its queue would have every object that ever was."""
    bench = Bench(cluster, tmp_path)
    bench.manager.dispatcher.has_started = False
    bench.tell(THING, generation=1)
    bench.tell(THING, name="two", generation=1)
    bench.tell(THING, "DELETED", generation=1)
    assert bench.urgency().keys() == {"two"}


async def test_new_object_without_managed_status_has_low_initial_priority(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = Bench(cluster, tmp_path, manage_status=False)
    list_all(bench)
    assert bench.urgency() == FIRST_ROUND | {"new": LOW}


# Reads


class ReadBench(Bench):
    """A watch controller with ``watchReads`` whose object ``one`` has read the ConfigMap ``config``."""

    def __init__(self, cluster: FakeCluster, root: Path, **watch: Any) -> None:
        self.server = FakeServer()
        self.count_subscriptions: Callable[[], int] = lambda: 0
        self.watches = ReadWatches(self.server, ManualClock(), [THING], self._report)
        super().__init__(cluster, root, reads=self.watches, watch_reads=True, **watch)

    def _report(self, _gvk: str, _watches: Callable[[], int], subscriptions: Callable[[], int]) -> None:
        self.count_subscriptions = subscriptions

    async def read(self) -> None:
        """Reconcile the object once, with a run that reads."""
        self.tell(THING, generation=1, labels={"tier": "web"})
        await self.due()
        sets = self.controller.reconciler.launcher.reads
        assert sets is not None
        pending = sets.start(Owner(THING, ONE, "uid-one", namespaced=True)).register(
            Read(CONFIG_MAPS, "get", ObjectKey("default", "config"))
        )
        if pending is not None:
            pending.record_response(404, None, None)
        sets.end(ONE, successful=True)
        await settle()


async def test_change_of_a_read_object_triggers(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = ReadBench(cluster, tmp_path)
    async with bench.watches.running():
        await bench.read()
        bench.server.put("config")
        await settle()
        assert await bench.due() == {ONE: ["read ConfigMap default/config created"]}


@pytest.mark.parametrize(
    "watch", [{"blacklist": frozenset({CONFIG_MAP})}, {"triggers": (Trigger(CONFIG_MAP, ReferenceType.OWNER),)}]
)
async def test_blacklisted_and_trigger_kinds_are_not_watched_as_reads(
    cluster: FakeCluster, tmp_path: Path, watch: dict[str, Any]
) -> None:
    bench = ReadBench(cluster, tmp_path, **watch)
    async with bench.watches.running():
        await bench.read()
        assert bench.server.lists == 0


async def test_reads_are_not_tracked_without_watch_reads(bench: Bench) -> None:
    assert bench.controller.reconciler.launcher.reads is None


async def test_deselected_object_has_no_read_subscriptions(cluster: FakeCluster, tmp_path: Path) -> None:
    bench = ReadBench(cluster, tmp_path, selector=LabelSelector.compile({"matchLabels": {"tier": "web"}}))
    async with bench.watches.running():
        await bench.read()
        assert bench.count_subscriptions() == 1
        bench.tell(THING, "MODIFIED", generation=1, labels={"tier": "db"})
        assert bench.count_subscriptions() == 0


async def test_late_event_of_a_deselected_version_leaves_the_reads_of_a_later_run(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """The version that matches again starts no run, because the run has read it."""
    bench = ReadBench(cluster, tmp_path, selector=LabelSelector.compile({"matchLabels": {"tier": "web"}}))
    async with bench.watches.running():
        late = bench.version_of(THING, "one", generation=1, labels={"tier": "db"})
        current = bench.version_of(THING, "one", generation=1, labels={"tier": "web"})
        bench.controller.reconciler.self_triggers.run_started(ONE, current)
        await bench.read()
        for obj in (late, current):
            bench.manager.informer_for(THING).on_watch_event("MODIFIED", obj)
        assert await bench.due() == {}
        assert bench.count_subscriptions() == 1


def sharded(cluster: FakeCluster, root: Path) -> tuple[Bench, HeldShards, dict[str, int]]:
    """Return a controller of two shards, and the shard of each of ten objects."""
    shards = HeldShards(2, 0.0, Dispatcher())
    names = [f"thing-{number}" for number in range(10)]
    index = {name: shards.shard_of(THING, ObjectKey("default", name)) for name in names}
    assert set(index.values()) == {0, 1}
    return Bench(cluster, root, shards=shards), shards, index


async def test_only_objects_of_held_shards_are_reconciled(cluster: FakeCluster, tmp_path: Path) -> None:
    bench, shards, index = sharded(cluster, tmp_path)
    shards.take(1)
    for name in index:
        bench.tell(THING, name=name, generation=1)
    assert {key.name for key in await bench.due()} == {name for name in index if index[name] == 1}


async def test_objects_of_a_taken_shard_get_initial_priorities(cluster: FakeCluster, tmp_path: Path) -> None:
    bench, shards, index = sharded(cluster, tmp_path)
    first, second, *others = [name for name in index if index[name] == 0]
    for name in (first, second, *others):
        bench.tell(THING, name=name, generation=1, status={"observedGeneration": 1})
    bench.tell(THING, "MODIFIED", name=first, generation=2, spec={"size": 2}, status={"observedGeneration": 1})
    bench.tell(THING, "DELETED", name=second, generation=1)
    assert await bench.due() == {}
    shards.take(0)
    assert bench.urgency() == {first: Priority.HIGH} | dict.fromkeys(others, Priority.LOW)


async def test_requests_of_a_released_shard_are_dropped(cluster: FakeCluster, tmp_path: Path) -> None:
    bench, shards, index = sharded(cluster, tmp_path)
    shards.take(0)
    shards.take(1)
    for name in index:
        bench.tell(THING, name=name, generation=1)
    await shards.drain(0)
    assert {key.name for key in await bench.due()} == {name for name in index if index[name] == 1}
    shards.take(0)
    assert {key.name for key in await bench.due()} == {name for name in index if index[name] == 0}


async def test_dependents_trigger_only_objects_of_held_shards(cluster: FakeCluster, tmp_path: Path) -> None:
    bench, shards, index = sharded(cluster, tmp_path)
    for name in index:
        bench.tell(THING, name=name, generation=1)
    bench.controller._on_dependent_kind(CONFIG_MAPS, Ownership.ANNOTATION)
    shards.take(1)
    await bench.due()
    for name in index:
        owner = {TYPE: f"Thing.{THING.group}", NAME: f"default/{name}"}
        bench.tell(CONFIG_MAP, name=f"of-{name}", annotations=owner)
        bench.tell(CONFIG_MAP, "DELETED", name=f"of-{name}", annotations=owner)
    assert {key.name for key in await bench.due()} == {name for name in index if index[name] == 1}


@pytest.mark.parametrize("is_deleted_first", [False, True])
async def test_workspace_of_object_deleted_around_a_handoff_is_removed(
    cluster: FakeCluster, tmp_path: Path, *, is_deleted_first: bool
) -> None:
    bench, shards, index = sharded(cluster, tmp_path)
    name = next(name for name in index if index[name] == 0)
    shards.take(0)
    bench.manager.informer_for(THING).on_list_complete(None, set(), "")
    bench.tell(THING, name=name, generation=1)
    await bench.due()
    removed = asyncio.create_task(bench.controller.orphaned_workspaces.keep_removing())
    await settle()
    workspace = Workspace(tmp_path, THING, ObjectKey("default", name))
    workspace.prepare("7", {})
    if is_deleted_first:
        bench.tell(THING, "DELETED", name=name, generation=1)
    await shards.drain(0)
    if not is_deleted_first:
        bench.tell(THING, "DELETED", name=name, generation=1)
    await until(lambda: not workspace.path.exists())
    removed.cancel()
    assert await bench.due() == {}


async def test_workspace_of_object_that_is_deleted_without_matching_labels_is_removed(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """No reconcile of it follows that would remove the workspace."""
    bench = Bench(cluster, tmp_path, selector=LabelSelector.compile({"matchLabels": {"tier": "web"}}))
    bench.manager.informer_for(THING).on_list_complete(None, set(), "")
    bench.tell(THING, labels={"tier": "web"})
    await bench.due()
    bench.tell(THING, "MODIFIED", labels={})
    removed = asyncio.create_task(bench.controller.orphaned_workspaces.keep_removing())
    await settle()
    workspace = Workspace(tmp_path, THING, ObjectKey("default", "one"))
    workspace.prepare("7", {})
    bench.tell(THING, "DELETED", labels={})
    await until(lambda: not workspace.path.exists())
    removed.cancel()
    assert await bench.due() == {}


DELETED = "2026-01-01T12:00:00Z"


def conditions(*types: str) -> dict[str, Any]:
    """Return a status with these conditions."""
    return {"conditions": [{"type": each, "status": "True"} for each in types]}


@pytest.mark.parametrize(
    ("status", "deleted", "expected"),
    [
        ({"observedGeneration": 3}, None, Priority.LOW),
        ({"observedGeneration": 2}, None, Priority.HIGH),
        ({"observedGeneration": 3}, DELETED, Priority.HIGH),
        ({"observedGeneration": 2} | conditions("Successful"), None, Priority.HIGH),
        (None, None, Priority.HIGH),
        ("text", None, Priority.HIGH),
        ({}, None, Priority.HIGH),
        (conditions("Running"), None, Priority.HIGH),
        (conditions("Running", "Successful"), None, Priority.LOW),
        (conditions("Failure"), None, Priority.LOW),
        (conditions("Failure"), DELETED, Priority.HIGH),
    ],
)
def test_new_changed_and_deleting_objects_have_high_initial_priority(
    status: object, deleted: str | None, expected: Priority
) -> None:
    obj = {"metadata": {"generation": 3} | ({"deletionTimestamp": deleted} if deleted else {}), "status": status}
    assert initial_priority(obj, manages_status=True) is expected


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("True", "Running", Priority.HIGH),
        ("False", "Interrupted", Priority.HIGH),
        ("True", "Successful", Priority.LOW),
        ("False", "Running", Priority.LOW),
    ],
)
def test_object_with_unfinished_run_has_high_initial_priority(status: str, reason: str, expected: Priority) -> None:
    running = {"type": "Running", "status": status, "reason": reason}
    obj = {"metadata": {"generation": 3}, "status": {"observedGeneration": 3, "conditions": [running]}}
    assert initial_priority(obj, manages_status=True) is expected


@pytest.mark.parametrize(
    ("status", "expected"), [({}, Priority.LOW), ({"observedGeneration": 2}, Priority.HIGH), (None, Priority.LOW)]
)
def test_missing_status_without_managed_status_has_low_initial_priority(status: object, expected: Priority) -> None:
    obj = {"metadata": {"generation": 3}, "status": status}
    assert initial_priority(obj, manages_status=False) is expected


def test_kind_without_generations_is_judged_by_conditions() -> None:
    obj = {"metadata": {}, "status": conditions("Successful")}
    assert initial_priority(obj, manages_status=True) is Priority.LOW
