import asyncio
import errno
import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from rolecall.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    NotServedError,
    UnknownKindError,
    UnreachableError,
    UnreadableError,
)
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.metadata import (
    FINALIZER_OF_ANNOTATION,
    annotation_of,
    generation_of,
    has_finalizer,
    resource_version_of,
    status_of,
    uid_of,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.store import Entry
from rolecall.runner.controller.work_queue import Cause, Priority
from rolecall.runner.reconcile import status_writer
from rolecall.runner.reconcile.context import PAUSED_ANNOTATION, PERIOD_ANNOTATION, ReconcileContext
from rolecall.runner.reconcile.kubernetes_events import EventSpec
from rolecall.runner.reconcile.reconciler import after_success, period_seconds
from rolecall.runner.reconcile.status import condition_of
from rolecall.runner.runs.outcome import Counts, Outcome
from rolecall.runner.runs.own_writes import PrimaryCause
from rolecall.runner.watch_controller import initial_priority
from tests.support.reconciler_contract import PERIOD, SUCCESSFUL
from tests.support.reconciler_rig import (
    DEFAULT_PERIOD_SECONDS,
    FAILURE,
    FINALIZER,
    SUCCESS,
    Rig,
    do_nothing,
    finalizer,
    make_rig,
)
from tests.support.things import MANIFEST, THING
from tests.support.world import World
from tests.unit.fake_cluster import FakeCluster

UNREACHABLE = UnreachableError("nobody there")
CONFLICT = ConflictError(409, "Conflict", "the object has been modified")
FORBIDDEN = ForbiddenError(403, "Forbidden", "you may not")
INVALID = InvalidError(422, "Invalid", "status.phase: Required value")
OVERLOADED = ApiError(429, "TooManyRequests", "slow down")
BROKEN = ApiError(500, "InternalError", "etcd is away")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "FIRST_DELAY_SECONDS", 0.0)


@pytest.fixture
async def rig(world: World, tmp_path: Path) -> Rig:
    await world.create(MANIFEST)
    return make_rig(world, tmp_path)


@pytest.fixture
async def finalized(world: World, tmp_path: Path) -> Rig:
    """Return a rig with a finalizer, and an object that carries it and is being deleted."""
    await world.create(MANIFEST.replace("name: one", f"name: one, finalizers: [{FINALIZER}]"))
    await world.delete(THING, "one")
    return make_rig(world, tmp_path, finalizer=finalizer())


def workspace(root: Path) -> Path:
    """Return where the runs of the object ``one`` lie."""
    return root / "test.rolecall.dev" / "v1" / "Thing" / "default" / "one"


async def start(rig: Rig) -> "asyncio.Task[Result]":
    """Start a reconcile, and wait until its play starts; it never ends."""
    began = asyncio.Event()

    async def go_on() -> None:
        began.set()
        await asyncio.Event().wait()

    rig.runner.play = go_on
    task = asyncio.create_task(rig.reconcile())
    await began.wait()
    return task


async def test_deleted_object_is_forgotten(rig: Rig, world: World, tmp_path: Path) -> None:
    await rig.reconcile()
    thing = await rig.thing()
    assert workspace(tmp_path).is_dir()
    await world.delete(THING, "one")
    assert await rig.reconcile() == Result()
    assert not workspace(tmp_path).exists()
    assert not rig.own_writes.contains((THING, rig.key), uid_of(thing), resource_version_of(thing))
    assert rig.runs == 1


NOT_SERVED = NotServedError(404, "", "404 page not found")
NOT_FOUND = NotFoundError(404, "NotFound", 'things "one" not found', {"name": "one"})


@pytest.mark.parametrize("error", [NOT_SERVED, NOT_FOUND], ids=["not served", "not found"])
@pytest.mark.parametrize("call", ["get", "replace status", "replace"])
async def test_object_of_the_informer_is_never_forgotten(
    world: World, cluster: FakeCluster, tmp_path: Path, error: KubeError, call: str
) -> None:
    """Whichever request is answered with 404: another attempt follows, and the object keeps what is known of it."""
    [thing] = await world.create(MANIFEST)
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    rig.known[rig.key] = Entry.of(thing)
    await rig.reconcile()
    for _ in range(3):
        await world.patch(THING, "one", {"metadata": {"finalizers": None}, "spec": {"size": len(cluster.calls)}})
        cluster.troubles += [(call, error)] * (2 if call == "replace status" else 1)  # the first one marks the run
        result = await rig.reconcile()
        assert result.failed or result.requeue_after_seconds == 1.0 or await rig.conditions() == SUCCESSFUL
        assert workspace(tmp_path).is_dir()
        assert await rig.reconcile() == Result(DEFAULT_PERIOD_SECONDS, cause=Cause("period", priority=Priority.LOW))
        assert await rig.conditions() == SUCCESSFUL


@pytest.mark.parametrize("current", [0, 1, 2, 3])
@pytest.mark.parametrize("outdated", [0, 1, 2, 5])
async def test_run_gets_the_version_that_the_informer_has(
    rig: Rig, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, current: int, outdated: int
) -> None:
    """A cache on the way may lag behind the watch. The earlier version needs no mark of a run, so none is written.

    ``outdated`` responses follow ``current`` ones.
    """
    await rig.reconcile()
    await rig.world.patch(THING, "one", {"spec": {"size": 7}})
    reported = [{"type": "Running", "status": "True", "reason": "Running", "message": "Running reconciliation"}]
    old = {**await rig.thing(), "status": {"conditions": reported, "observedGeneration": 2}}
    await rig.world.patch(THING, "one", {"spec": {"size": 8}})
    new, get = await rig.thing(), cluster.get
    rig.known[rig.key] = Entry.of(new)
    left = [True] * current + [False] * outdated

    async def lagging(gvk: GVK, key: ObjectKey) -> RawObject:
        is_current = left.pop(0) if left else True
        return await get(gvk, key) if is_current else old

    monkeypatch.setattr(cluster, "get", lagging)
    monkeypatch.setattr(status_writer, "REREAD_SECONDS", (0.0, 0.0))
    await rig.reconcile()
    assert rig.runs == 2
    status = status_of(await get(THING, rig.key))
    assert status["observedGeneration"] == generation_of(new)
    assert [each["reason"] for each in status["conditions"] if each["type"] == "Running"] == ["Successful"]


async def test_run_starts_although_a_cache_lags_indefinitely(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    known = await rig.thing()
    rig.known[rig.key] = Entry.of({**known, "metadata": known["metadata"] | {"resourceVersion": "999999"}})
    monkeypatch.setattr(status_writer, "REREAD_SECONDS", (0.0, 0.0))
    await rig.reconcile()
    assert rig.runs == 1


@pytest.mark.parametrize("error", [NOT_SERVED, NOT_FOUND], ids=["not served", "not found"])
async def test_object_that_the_informer_lacks_is_forgotten(
    rig: Rig, cluster: FakeCluster, tmp_path: Path, error: KubeError
) -> None:
    """Also if the server of an aggregated API doesn't name it."""
    await rig.reconcile()
    cluster.troubles += [("get", error)]
    assert await rig.reconcile() == Result()
    assert not workspace(tmp_path).exists()


async def test_failed_workspace_removal_is_retried(
    rig: Rig, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.reconcile()
    await world.delete(THING, "one")

    def refuse(*_: object, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", refuse)
        assert (await rig.reconcile()).failed
    assert workspace(tmp_path).is_dir()
    assert not (await rig.reconcile()).failed
    assert not workspace(tmp_path).exists()


async def test_unreadable_object_fails_without_a_run(rig: Rig, cluster: FakeCluster) -> None:
    cluster.troubles = [("get", UNREACHABLE)]
    assert await rig.reconcile() == Result(failed=True)
    assert rig.runs == 0
    assert cluster.writes == []


async def test_deleting_object_without_own_finalizer_is_not_run(
    world: World, cluster: FakeCluster, tmp_path: Path
) -> None:
    await world.create(MANIFEST.replace("name: one", "name: one, finalizers: [somebody.else/s]"))
    await world.delete(THING, "one")
    for rig in (make_rig(world, tmp_path), make_rig(world, tmp_path, finalizer=finalizer())):
        assert await rig.reconcile() == Result()
        assert rig.runs == 0
    assert cluster.writes == []


async def test_finalizer_is_added_once_before_the_run(world: World, cluster: FakeCluster, tmp_path: Path) -> None:
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    await rig.reconcile()
    await rig.reconcile()
    assert [call for call, _ in cluster.writes] == ["replace", "replace status", "replace status"]
    assert has_finalizer(cluster.writes[0][1], FINALIZER)
    assert rig.runs == 2


async def test_conflict_over_finalizer_keeps_the_other_change(
    world: World, cluster: FakeCluster, tmp_path: Path
) -> None:
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    cluster.troubles = [("replace", CONFLICT)]
    assert not (await rig.reconcile()).failed
    assert has_finalizer(await rig.thing(), FINALIZER)
    assert rig.runs == 1


async def test_forbidden_finalizer_fails_without_a_run(world: World, cluster: FakeCluster, tmp_path: Path) -> None:
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    cluster.troubles = [("replace", FORBIDDEN)]
    assert await rig.reconcile() == Result(failed=True)
    message = "Reconcile failed outside Ansible: 403 Forbidden: you may not"
    assert (await rig.conditions())["Failure"] == ("True", "Failed", message)
    assert rig.runs == 0


@pytest.mark.parametrize("wish", [{"requeue_after_seconds": 3.0}, {"requeue_at": 1_800_000_000.5}])
async def test_finalizer_stays_while_its_run_requests_requeues(
    finalized: Rig, world: World, wish: dict[str, Any]
) -> None:
    finalized.runner.outcome = replace(SUCCESS, **wish)
    assert await finalized.reconcile() == Result(**wish)
    assert has_finalizer(await finalized.thing(), FINALIZER)
    finalized.runner.outcome = SUCCESS
    await finalized.reconcile()
    assert finalized.runs == 2
    assert await world.find(THING, "one") is None


async def test_foreign_finalizers_stay(world: World, tmp_path: Path) -> None:
    await world.create(MANIFEST.replace("name: one", f"name: one, finalizers: [a.b/c, {FINALIZER}, d.e/f]"))
    await world.delete(THING, "one")
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    await rig.reconcile()
    assert (await rig.thing())["metadata"]["finalizers"] == ["a.b/c", "d.e/f"]
    assert await rig.conditions() == SUCCESSFUL


@pytest.mark.parametrize("error", [CONFLICT, UNREACHABLE, BROKEN, OVERLOADED])
async def test_finalizer_removal_is_retried_without_a_second_run(
    finalized: Rig, cluster: FakeCluster, world: World, error: KubeError
) -> None:
    cluster.troubles = [("replace", error), ("replace", error)]
    await finalized.reconcile()
    assert await world.find(THING, "one") is None
    assert finalized.runs == 1


async def test_object_deleted_during_its_run_is_finalized_soon(world: World, tmp_path: Path) -> None:
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    rig.runner.play = lambda: world.delete(THING, "one")
    assert await rig.reconcile() == Result(requeue_after_seconds=5)
    assert await rig.conditions() == SUCCESSFUL


async def test_object_recreated_during_the_run_gets_no_status(rig: Rig, world: World, cluster: FakeCluster) -> None:
    async def make_anew() -> None:
        await world.delete(THING, "one")
        await world.create(MANIFEST)
        cluster.writes.clear()

    rig.runner.play = make_anew
    assert await rig.reconcile() == Result()
    assert "status" not in await rig.thing()
    thing = await rig.thing()
    assert not rig.self_triggers.is_self_trigger(
        rig.key, PrimaryCause("added", uid_of(thing), resource_version_of(thing))
    )


@pytest.mark.parametrize("deleting", [False, True])
async def test_object_recreated_during_an_outage_gets_no_status(
    world: World, tmp_path: Path, cluster: FakeCluster, *, deleting: bool
) -> None:
    manifest = MANIFEST.replace("name: one", f"name: one, finalizers: [{FINALIZER}]")
    await world.create(manifest)
    if deleting:
        await world.delete(THING, "one")
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    calls = len(cluster.calls)

    async def make_anew() -> None:
        del cluster.objects()[THING, rig.key]
        await world.create(manifest)
        cluster.writes.clear()
        cluster.troubles = [("get", UNREACHABLE)]

    rig.runner.play = make_anew
    await rig.reconcile()
    assert cluster.calls[calls:].count("get") > 2
    assert cluster.writes == []
    thing = await rig.thing()
    assert has_finalizer(thing, FINALIZER)
    assert "status" not in thing


async def test_nothing_is_written_after_losing_leadership(world: World, tmp_path: Path, cluster: FakeCluster) -> None:
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path, lambda: False, finalizer=finalizer())
    assert await rig.reconcile() == Result(failed=True)
    assert cluster.writes == []


async def test_failed_preparation_is_a_failure(world: World, tmp_path: Path) -> None:
    await world.create(MANIFEST)
    root = tmp_path / "root"
    root.write_text("a file where a directory should be")
    rig = make_rig(world, root)
    assert await rig.reconcile() == Result(failed=True)
    state, reason, message = (await rig.conditions())["Failure"]
    assert (state, reason) == ("True", "Failed")
    assert message.startswith("Unable to run reconciliation: ")


REJECTED = {
    "spec": {"omit": 1},
    "metadata": {"annotations": {PERIOD_ANNOTATION: "soon"}},
    "other": {"__ansible_vault": "x"},
}


@pytest.mark.parametrize("field", REJECTED)
async def test_failure_because_of_the_object_is_final(world: World, tmp_path: Path, field: str) -> None:
    rig = make_rig(world, tmp_path, ready_conditions=True)
    await world.create(MANIFEST)
    await world.patch(THING, "one", {field: REJECTED[field]})
    with capture_logs() as logs:
        assert await rig.reconcile() == Result(failed=True, is_final=True)
    assert not [line for line in logs if "exc_info" in line]
    assert (await rig.conditions())["Stalled"][0] == "True"
    await world.patch(THING, "one", {field: {"omit": None, "annotations": None, "__ansible_vault": None}})
    assert not (await rig.reconcile()).failed
    assert rig.reconciler.rejected == set()
    assert rig.runs == 1


async def test_object_changed_while_it_was_rejected_is_retried(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rig.reconciler.launcher.run

    async def run_while_another_client_writes(*arguments: Any, **options: Any) -> Outcome:
        summary = await run(*arguments, **options)
        await rig.world.patch(THING, "one", {"spec": {"omit": None}})
        return summary

    await rig.world.patch(THING, "one", {"spec": {"omit": 1}})
    launcher = SimpleNamespace(run=run_while_another_client_writes)
    monkeypatch.setattr(rig.reconciler, "launcher", launcher)
    assert await rig.reconcile() == Result(failed=True)


async def test_unreadable_object_is_not_retried(rig: Rig, cluster: FakeCluster) -> None:
    cluster.troubles = [("get", UnreadableError("too deeply nested"))]
    assert await rig.reconcile() == Result(failed=True, is_final=True)
    assert rig.reconciler.rejected == {rig.key}


async def test_failure_without_reason_is_reported(rig: Rig) -> None:
    rig.runner.outcome = Outcome("error")
    assert (await rig.reconcile()).failed
    assert (await rig.conditions())["Failure"][2] == "the run failed without a message"


async def test_each_exit_is_counted_once_by_its_result(rig: Rig) -> None:
    await rig.reconcile()
    rig.runner.outcome = FAILURE
    await rig.reconcile()
    await rig.world.patch(THING, "one", {"metadata": {"annotations": {PERIOD_ANNOTATION: "soon"}}})
    await rig.reconcile()
    counted = {
        result: rig.metrics.registry.get_sample_value(
            "ansible_operator_reconcile_result", {"GVK": str(THING), "result": result}
        )
        for result in ("succeeded", "failed")
    }
    assert counted == {"succeeded": 1, "failed": 2}


@pytest.mark.parametrize(
    ("watch", "annotation", "seconds"),
    [
        (None, None, DEFAULT_PERIOD_SECONDS),
        (15.0, None, 15.0),
        (15.0, "1m", 60.0),
        (15.0, "0s", None),
        (None, "0", None),
        (None, "1500ms", 1.5),
    ],
)
async def test_period_is_annotation_then_watch_then_flag(
    world: World, tmp_path: Path, watch: float | None, annotation: str | None, seconds: float | None
) -> None:
    annotations = f', annotations: {{{PERIOD}: "{annotation}"}}' if annotation else ""
    await world.create(MANIFEST.replace("name: one", f"name: one{annotations}"))
    rig = make_rig(world, tmp_path, reconcile_period_seconds=watch)
    assert await rig.reconcile() == Result(requeue_after_seconds=seconds)


async def test_negative_period_annotation_is_rejected(world: World, tmp_path: Path) -> None:
    await world.create(MANIFEST.replace("name: one", f'name: one, annotations: {{{PERIOD}: "-1s"}}'))
    rig = make_rig(world, tmp_path)
    assert await rig.reconcile() == Result(failed=True, is_final=True)
    expected = "Unable to parse reconcile period annotation: a duration cannot be negative: '-1s'"
    assert (await rig.conditions())["Failure"][2] == expected


async def test_own_spec_change_triggers_a_run_unless_requeue_is_requested(rig: Rig, world: World) -> None:
    async def patch() -> None:
        written = await world.patch(THING, "one", {"spec": {"size": rig.runs + 1}})
        rig.own_writes.record_write((THING, rig.key), written)
        versions.append(resource_version_of(written))

    versions: list[str] = []
    rig.runner.play = patch
    uid = uid_of(await rig.thing())
    await rig.reconcile()
    assert not rig.self_triggers.is_self_trigger(rig.key, PrimaryCause("own", uid, versions[-1], changed_spec=True))
    rig.runner.outcome = replace(SUCCESS, requeue_after_seconds=3.0)
    await rig.reconcile()
    assert rig.self_triggers.is_self_trigger(rig.key, PrimaryCause("own", uid, versions[-1], changed_spec=True))


async def test_own_writes_of_a_reconcile_trigger_nothing(world: World, cluster: FakeCluster, tmp_path: Path) -> None:
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    await rig.reconcile()
    assert len(cluster.writes) == 3
    for _, obj in cluster.writes:
        assert rig.self_triggers.is_self_trigger(rig.key, PrimaryCause("own", uid_of(obj), resource_version_of(obj)))


async def test_only_new_or_changed_object_is_marked_as_running(rig: Rig, cluster: FakeCluster) -> None:
    seen = []

    async def look() -> None:
        seen.append((await rig.conditions()).get("Running"))

    rig.runner.play = look
    rig.runner.outcome = replace(SUCCESS, completion="2999-01-01T00:00:00+00:00")
    await rig.reconcile()
    cluster.writes.clear()
    await rig.reconcile()
    assert seen == [("True", "Running", "Running reconciliation"), SUCCESSFUL["Running"]]
    assert cluster.writes == []


async def test_object_whose_last_run_was_long_is_marked_before_its_next_run(rig: Rig, cluster: FakeCluster) -> None:
    rig.runner.outcome = replace(SUCCESS, completion="2999-01-01T00:00:00+00:00", duration_seconds=1.5)
    await rig.reconcile()
    cluster.writes.clear()
    seen: list[int] = []

    async def look() -> None:
        seen.append(len(cluster.writes))

    rig.runner.play = look
    await rig.reconcile()
    running = next(item for item in cluster.writes[0][1]["status"]["conditions"] if item["type"] == "Running")
    assert running["reason"] == "Running"
    assert seen == [1]
    assert await rig.conditions() == SUCCESSFUL


async def test_run_gets_the_marked_object(rig: Rig, tmp_path: Path) -> None:
    await rig.reconcile()
    variables = (workspace(tmp_path) / "env" / "extravars").read_text()
    assert '"reason": {"__ansible_unsafe": "Running"}' in variables


@pytest.mark.parametrize("error", [CONFLICT, UNREACHABLE, FORBIDDEN, UnknownKindError(THING)])
async def test_run_does_not_depend_on_the_mark(rig: Rig, cluster: FakeCluster, error: KubeError) -> None:
    cluster.troubles = [("replace status", error)]
    assert not (await rig.reconcile()).failed
    assert rig.runs == 1
    assert await rig.conditions() == SUCCESSFUL


@pytest.mark.parametrize("error", [CONFLICT, UNREACHABLE, OVERLOADED, BROKEN])
async def test_status_write_is_retried_without_a_second_run(rig: Rig, cluster: FakeCluster, error: KubeError) -> None:
    async def break_down() -> None:
        cluster.troubles = [("replace status", error)] * 3

    rig.runner.play = break_down
    assert not (await rig.reconcile()).failed
    assert cluster.troubles == []
    assert await rig.conditions() == SUCCESSFUL
    assert rig.runs == 1


@pytest.mark.parametrize("error", [FORBIDDEN, INVALID])
async def test_rejected_status_is_reported_and_retried(rig: Rig, cluster: FakeCluster, error: KubeError) -> None:
    async def reject() -> None:
        cluster.troubles = [("replace status", error)] * 2

    rig.runner.play = reject
    with capture_logs() as logs:
        assert await rig.reconcile() == Result(failed=True)
    assert [line["error"] for line in logs if line["event"] == "Failed to write the status"] == [str(error)]
    assert rig.reports == [f"The status could not be written: {error}"]
    rig.runner.play = do_nothing
    cluster.troubles = []
    assert not (await rig.reconcile()).failed
    assert await rig.conditions() == SUCCESSFUL


async def test_status_is_written_when_the_api_server_is_back(rig: Rig, cluster: FakeCluster) -> None:
    async def break_down() -> None:
        cluster.troubles = [("get", UNREACHABLE)] * 4

    rig.runner.play = break_down
    assert not (await rig.reconcile()).failed
    assert await rig.conditions() == SUCCESSFUL
    assert rig.runs == 1


async def test_kind_without_status_subresource_runs_with_a_warning(rig: Rig, cluster: FakeCluster) -> None:
    cluster.subresources = frozenset()
    with capture_logs() as logs:
        assert not (await rig.reconcile()).failed
    assert cluster.writes == []
    assert any(line["event"].startswith("Kind has no status subresource") for line in logs)
    assert rig.runs == 1


async def test_mapping_document_has_stats_resource_and_run(world: World, tmp_path: Path) -> None:
    await world.create(MANIFEST)
    paths = {"pods": "$.stats.pods", "size": "$.resource.spec.size", "took": "$.run.durationSeconds", "ok": "$.run.ok"}
    rig = make_rig(world, tmp_path, status={name: FieldPath.parse(path) for name, path in paths.items()})
    rig.runner.outcome = replace(SUCCESS, stats={"pods": 4}, duration_seconds=0.12345)
    await rig.reconcile()
    status = (await rig.thing())["status"]
    assert {name: status[name] for name in paths} == {"pods": 4, "size": 1, "took": 0.123, "ok": 2}


@pytest.mark.parametrize(("outcome", "failed"), [(SUCCESS, False), (FAILURE, True)])
async def test_no_status_is_written_without_managed_status(
    world: World, cluster: FakeCluster, tmp_path: Path, outcome: Outcome, *, failed: bool
) -> None:
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path, manage_status=False)
    rig.runner.outcome = outcome
    assert (await rig.reconcile()).failed is failed
    assert cluster.writes == []
    assert rig.runs == 1


@pytest.mark.parametrize("before", ["new", "succeeded", "failed", "edited"])
async def test_stop_during_a_run_is_reported_as_interruption_and_keeps_the_last_result(
    world: World, tmp_path: Path, before: str
) -> None:
    rig = make_rig(world, tmp_path, ready_conditions=True)
    await world.create(MANIFEST)
    if before != "new":
        rig.runner.outcome = FAILURE if before == "failed" else replace(SUCCESS, duration_seconds=1.5)
        await rig.reconcile()
    if before == "edited":
        await world.patch(THING, "one", {"spec": {"size": 7}})
    old = await rig.thing()
    rig.events.clear()
    task = await start(rig)
    task.cancel("another replica takes the object over")
    with pytest.raises(asyncio.CancelledError):
        await task
    new = await rig.thing()
    reason = "The run was interrupted: another replica takes the object over"
    assert (await rig.conditions())["Running"] == ("False", "Interrupted", reason)
    assert new["status"].get("observedGeneration") == old.get("status", {}).get("observedGeneration")
    kept = {"succeeded": ("Successful", "Failure", "Ready", "Stalled"), "failed": ("Failure", "Ready", "Stalled")}
    for kind in kept.get(before, ()):
        assert condition_of(new["status"], kind) == condition_of(old["status"], kind)
    if before in ("new", "edited"):
        assert (await rig.conditions())["Ready"][:2] == ("Unknown", "RunInProgress")
        assert (await rig.conditions()).get("Successful", ("False",))[0] == "False"
    assert rig.events == []
    assert initial_priority(new, manages_status=True) is Priority.HIGH


async def test_run_that_another_process_ended_is_retried_without_a_failure(rig: Rig) -> None:
    rig.runner.outcome = Outcome.of_failure("the run was asked to end", "canceled")
    assert (await rig.reconcile()).failed
    assert (await rig.conditions())["Running"][:2] == ("False", "Interrupted")
    assert "Failure" not in await rig.conditions()
    assert rig.events == []


async def test_reconcile_cancelled_after_its_run_writes_the_outcome(
    rig: Rig, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel_at_the_next_read() -> None:
        cluster.before = cancel

    def cancel(call: str) -> None:
        if call == "get":
            cluster.before = lambda _call: None
            task.cancel()

    rig.runner.play = cancel_at_the_next_read
    quick_get = cluster.get

    async def get_slowly(gvk: GVK, key: ObjectKey) -> RawObject:
        answer = await quick_get(gvk, key)
        await asyncio.sleep(0)  # where a cancellation arrives
        return answer

    monkeypatch.setattr(cluster, "get", get_slowly)
    task = asyncio.create_task(rig.reconcile())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await rig.conditions() == SUCCESSFUL


async def test_second_cancellation_does_not_end_the_status_write(
    rig: Rig, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard is handed over, and then the operator stops: the condition is true all the same."""
    quick_replace, writing = cluster.replace, asyncio.Event()

    async def replace_slowly(obj: RawObject, subresource: str = "") -> RawObject:
        writing.set()
        for _ in range(5):  # where cancellations arrive
            await asyncio.sleep(0)
        return await quick_replace(obj, subresource)

    task = await start(rig)
    monkeypatch.setattr(cluster, "replace", replace_slowly)
    task.cancel("another replica takes the object over")
    await writing.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await rig.conditions())["Running"][:2] == ("False", "Interrupted")


OF_TEAM_A = LabelSelector.compile({"matchLabels": {"team": "a"}})
NOTES = {"none": "", "own": OF_TEAM_A.text, "other": "team in (b)"}


@pytest.mark.parametrize("deleting", [False, True])
@pytest.mark.parametrize("matches", [False, True])
@pytest.mark.parametrize("note", NOTES)
async def test_operator_cleans_up_what_its_selector_matches_or_what_has_its_note(
    world: World, tmp_path: Path, *, deleting: bool, matches: bool, note: str
) -> None:
    """The finalizer's name doesn't say whose it is: another operator with another selector may use it too."""
    labels = f"labels: {{team: {'a' if matches else 'b'}}}"
    annotations = f"annotations: {{{FINALIZER_OF_ANNOTATION}: '{NOTES[note]}'}}" if note != "none" else ""
    metadata = ", ".join(filter(None, ("name: one", labels, f"finalizers: [{FINALIZER}]", annotations)))
    await world.create(MANIFEST.replace("name: one", metadata))
    if deleting:
        await world.delete(THING, "one")
    before = await world.get(THING, "one")
    rig = make_rig(world, tmp_path, selector=OF_TEAM_A, finalizer=finalizer())
    result = await rig.reconcile()
    is_ours = matches or (deleting and note == "own")
    assert rig.runs == int(is_ours)
    if not is_ours:
        assert (result, await world.get(THING, "one")) == (Result(), before)
    elif not deleting:
        assert annotation_of(await rig.thing(), FINALIZER_OF_ANNOTATION) == OF_TEAM_A.text


@pytest.mark.parametrize("has_finalizer", [False, True])
@pytest.mark.parametrize(
    "change", [{"labels": {"team": "b"}}, {"annotations": {PAUSED_ANNOTATION: "true"}}], ids=["unselected", "paused"]
)
async def test_object_that_changes_before_its_run_is_judged_again(  # noqa: PLR0913 - fixtures
    world: World,
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    *,
    has_finalizer: bool,
) -> None:
    """The second read is that of the finalizer's write, or of the status that marks the run."""
    await world.create(MANIFEST.replace("name: one", "name: one, labels: {team: a}"))
    rig = make_rig(world, tmp_path, selector=OF_TEAM_A, finalizer=finalizer() if has_finalizer else None)
    get, reads = cluster.get, itertools.count(1)

    async def get_with_change(gvk: GVK, key: ObjectKey) -> RawObject:
        if next(reads) == 2:
            await world.patch(THING, "one", {"metadata": change})
        return await get(gvk, key)

    monkeypatch.setattr(cluster, "get", get_with_change)
    await rig.reconcile()
    assert rig.runs == 0
    await rig.reconcile()
    assert rig.runs == 0
    assert (await rig.conditions()).get("Running", ("False",))[0] == "False"


@pytest.mark.parametrize(
    "change", [{"labels": {"team": "b"}}, {"annotations": {PAUSED_ANNOTATION: "true"}}], ids=["unselected", "paused"]
)
async def test_any_change_of_an_object_that_did_not_run_is_judged(
    world: World, tmp_path: Path, change: dict[str, Any]
) -> None:
    """The informer may see it only after the label is back: then nothing has changed for it, and the run is missing."""
    await world.create(MANIFEST.replace("name: one", "name: one, labels: {team: a}"))
    rig = make_rig(world, tmp_path, selector=OF_TEAM_A)
    await world.patch(THING, "one", {"metadata": change})
    await rig.reconcile()
    assert rig.reconciler.rejected == {world.key("one")}
    await world.patch(THING, "one", {"metadata": {"labels": {"team": "a"}, "annotations": {PAUSED_ANNOTATION: None}}})
    await rig.reconcile()
    assert (rig.runs, rig.reconciler.rejected) == (1, set())


async def test_finalizer_and_note_are_one_write(world: World, cluster: FakeCluster, tmp_path: Path) -> None:
    await world.create(MANIFEST.replace("name: one", "name: one, labels: {team: a}"))
    rig = make_rig(world, tmp_path, selector=OF_TEAM_A, finalizer=finalizer())
    await rig.reconcile()
    assert has_finalizer(cluster.writes[0][1], FINALIZER)
    assert annotation_of(cluster.writes[0][1], FINALIZER_OF_ANNOTATION) == "team in (a)"


async def test_reconcile_cancelled_before_its_run_runs_nothing(
    rig: Rig, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_get = cluster.get

    async def cancel_and_get(gvk: GVK, key: ObjectKey) -> RawObject:
        monkeypatch.setattr(cluster, "get", quick_get)
        task.cancel()
        await asyncio.sleep(0)
        return await quick_get(gvk, key)

    monkeypatch.setattr(cluster, "get", cancel_and_get)
    task = asyncio.create_task(rig.reconcile())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.runs == 0
    assert (await rig.conditions())["Running"][2] == "The run was interrupted: the operator is stopping"


async def test_log_lines_have_the_job(rig: Rig) -> None:
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
        await rig.reconcile()
    assert {line.get("job") for line in logs} == {rig.runner.jobs[0].ident}


PAUSED = MANIFEST.replace("name: one", 'name: one, annotations: {rolecall.dev/paused: "true"}')


async def test_paused_object_has_condition_and_no_run_until_resumed(world: World, tmp_path: Path) -> None:
    await world.create(PAUSED)
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    assert await rig.reconcile() == Result()
    assert rig.runs == 0
    assert list(await rig.conditions()) == ["Paused"]
    assert not has_finalizer(await rig.thing(), FINALIZER)
    await world.patch(THING, "one", {"metadata": {"annotations": {"rolecall.dev/paused": None}}})
    await rig.reconcile()
    assert rig.runs == 1
    assert await rig.conditions() == SUCCESSFUL


@pytest.mark.parametrize("value", ["false", "", "True", "yes"])
async def test_only_the_string_true_pauses(world: World, tmp_path: Path, value: str) -> None:
    await world.create(PAUSED.replace('"true"', f'"{value}"'))
    rig = make_rig(world, tmp_path)
    await rig.reconcile()
    assert rig.runs == 1


async def test_deleted_paused_object_is_finalized(world: World, tmp_path: Path) -> None:
    metadata = f'name: one, finalizers: [{FINALIZER}], annotations: {{rolecall.dev/paused: "true"}}'
    await world.create(MANIFEST.replace("name: one", metadata))
    await world.delete(THING, "one")
    rig = make_rig(world, tmp_path, finalizer=finalizer())
    await rig.reconcile()
    assert rig.runs == 1
    assert await world.find(THING, "one") is None


async def test_pause_without_managed_status_writes_nothing(world: World, cluster: FakeCluster, tmp_path: Path) -> None:
    await world.create(PAUSED)
    rig = make_rig(world, tmp_path, manage_status=False)
    assert await rig.reconcile() == Result()
    assert (rig.runs, cluster.writes) == (0, [])


async def test_failed_finalizer_is_named_in_the_condition(finalized: Rig) -> None:
    finalized.runner.outcome = FAILURE
    assert await finalized.reconcile() == Result(failed=True)
    assert (await finalized.conditions())["Failure"][2] == f"Finalizer {FINALIZER}: Task 'Boom': no more coffee"


async def test_events_are_failures_recoveries_and_changes(rig: Rig) -> None:
    caused_by_pod = (Cause("Pod default/web: status.phase", "uid", "7"),)
    rig.runner.outcome = FAILURE
    await rig.reconciler.reconcile(rig.key, caused_by_pod)
    await rig.reconciler.reconcile(rig.key, (Cause("retry 1"),))
    rig.runner.outcome = replace(SUCCESS, counts=Counts(ok=2))
    await rig.reconciler.reconcile(rig.key, (Cause("retry 2"),))
    await rig.reconciler.reconcile(rig.key, caused_by_pod)
    rig.runner.outcome = SUCCESS
    await rig.reconciler.reconcile(rig.key, caused_by_pod)
    message = "Task 'Boom': no more coffee"
    assert rig.events == [
        EventSpec("Warning", "ReconcileFailed", f"{message}; started by Pod default/web: status.phase"),
        EventSpec("Warning", "ReconcileFailed", message),
        EventSpec("Normal", "ReconcileRecovered", "Reconciled after a failure"),
        EventSpec("Normal", "Reconciled", "1 task changed something; started by Pod default/web: status.phase"),
    ]


async def test_success_of_recreated_object_is_not_a_recovery(rig: Rig, world: World, cluster: FakeCluster) -> None:
    rig.runner.outcome = FAILURE
    await rig.reconcile()
    del cluster.objects()[THING, rig.key]
    await world.create(MANIFEST)
    rig.events.clear()
    rig.runner.outcome = replace(SUCCESS, counts=Counts(ok=2))
    await rig.reconcile()
    assert rig.events == []


async def test_crash_leaves_a_condition(rig: Rig) -> None:
    async def break_down() -> None:
        raise LookupError("nobody thought of this")

    rig.runner.play = break_down
    with pytest.raises(LookupError):
        await rig.reconcile()
    message = "Reconcile failed outside Ansible: LookupError('nobody thought of this')"
    assert (await rig.conditions())["Failure"] == ("True", "Failed", message)


async def test_status_rejected_for_a_minute_is_retried_by_another_reconcile(
    rig: Rig, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_writer, "REJECTED_SECONDS", 0.0)

    async def break_down() -> None:
        cluster.troubles = [("replace status", BROKEN)]

    rig.runner.play = break_down
    assert await rig.reconcile() == Result(failed=True)
    rig.runner.play = do_nothing
    assert not (await rig.reconcile()).failed
    assert await rig.conditions() == SUCCESSFUL


async def _writes_of(history: str, world: World, cluster: FakeCluster, root: Path, *, ready: bool) -> list[str]:
    """Return the writes of reconciles: success (s), failure (f), and after an edit (e), a pause (p) and its end (r)."""
    rig = make_rig(world, root, ready_conditions=ready)
    await world.create(MANIFEST)
    cluster.writes.clear()
    for number, step in enumerate(history):
        if step in "sf":
            rig.runner.outcome = replace(SUCCESS if step == "s" else FAILURE, completion="2999-01-01T00:00:00+00:00")
        elif step == "e":
            await world.patch(THING, "one", {"spec": {"size": number}})
        else:
            await world.patch(
                THING, "one", {"metadata": {"annotations": {PAUSED_ANNOTATION: str(step == "p").lower()}}}
            )
        await rig.reconcile()
    return [call for call, _ in cluster.writes]


@pytest.mark.parametrize(
    "history", ["s", "sss", "sese", "ff", "ffffs", "sfs", "fesse", "ps", "sprs", "spers", "fpers", "pes"]
)
async def test_ready_conditions_cause_no_write(
    world: World, cluster: FakeCluster, tmp_path: Path, history: str
) -> None:
    without = await _writes_of(history, world, cluster, tmp_path / "without", ready=False)
    cluster.objects().clear()
    assert await _writes_of(history, world, cluster, tmp_path / "with", ready=True) == without


async def test_invalid_reason_of_ready_is_logged_once_without_its_value(world: World, tmp_path: Path) -> None:
    paths = {name: FieldPath.parse(f"$.stats.{name}") for name in ("value", "reason", "message")}
    rig = make_rig(world, tmp_path, ready_conditions=True, ready=paths)
    await world.create(MANIFEST)
    stats = {"value": False, "reason": "pass word", "message": "1 of 2 pods"}
    rig.runner.outcome = replace(SUCCESS, stats=stats)
    with capture_logs() as logs:
        await rig.reconcile()
        await rig.reconcile()
    (line,) = [line for line in logs if line["log_level"] == "warning"]
    assert "reason that a run reported for Ready" in line["event"]
    assert "pass word" not in str(logs)
    assert (await rig.conditions())["Ready"] == ("False", "NotReadyYet", "1 of 2 pods")
    rig.runner.outcome = replace(SUCCESS, stats=stats | {"reason": "Waiting"})
    await rig.reconcile()
    assert (await rig.conditions())["Ready"] == ("False", "Waiting", "1 of 2 pods")


async def test_ready_with_a_reported_reason_causes_no_further_write(
    world: World, cluster: FakeCluster, tmp_path: Path
) -> None:
    paths = {name: FieldPath.parse(f"$.stats.{name}") for name in ("value", "reason", "message")}
    rig = make_rig(world, tmp_path, ready_conditions=True, ready=paths)
    await world.create(MANIFEST)
    stats = {"value": True, "reason": "Served", "message": "2 of 2 pods"}
    rig.runner.outcome = replace(SUCCESS, stats=stats, completion="2999-01-01T00:00:00+00:00")
    await rig.reconcile()
    assert (await rig.conditions())["Ready"] == ("True", "Served", "2 of 2 pods")
    cluster.writes.clear()
    await rig.reconcile()
    assert cluster.writes == []


async def test_end_of_requested_requeues_is_one_write(world: World, cluster: FakeCluster, tmp_path: Path) -> None:
    rig = make_rig(world, tmp_path, ready_conditions=True)
    await world.create(MANIFEST)
    last = replace(SUCCESS, completion="2999-01-01T00:00:00+00:00")
    rig.runner.outcome = replace(last, requeue_after_seconds=1.0)
    await rig.reconcile()
    cluster.writes.clear()
    await rig.reconcile()
    assert cluster.writes == []
    assert (await rig.conditions())["Reconciling"][:2] == ("True", "RunRequeued")
    rig.runner.outcome = last
    await rig.reconcile()
    assert [call for call, _ in cluster.writes] == ["replace status"]
    assert (await rig.conditions())["Ready"][0] == "True"


async def test_invalid_period_stalls_the_object_until_it_changes(world: World, tmp_path: Path) -> None:
    rig = make_rig(world, tmp_path, ready_conditions=True)
    await world.create(MANIFEST)
    await world.patch(THING, "one", {"metadata": {"annotations": {PERIOD_ANNOTATION: "soon"}}})
    await rig.reconcile()
    assert (await rig.conditions())["Stalled"][0] == "True"
    await world.patch(THING, "one", {"metadata": {"annotations": {PERIOD_ANNOTATION: "1h"}}})
    await rig.reconcile()
    assert (await rig.conditions())["Ready"][0] == "True"


async def test_failure_after_an_interruption_is_not_shown_as_interrupted(rig: Rig) -> None:
    await rig.reconcile()
    task = await start(rig)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    rig.runner.play = do_nothing
    rig.runner.outcome = FAILURE
    await rig.reconcile()
    assert (await rig.conditions())["Running"][:2] == ("False", "Running")


WATCH = Watch(THING, RoleContent(Path("/roles/thing")), reconcile_period_seconds=0.2)


@pytest.mark.parametrize(("text", "seconds"), [("1ms", 1.0), ("1ns", 1.0), ("1s", 1.0), ("90s", 90.0), ("0s", 0.0)])
def test_period_of_an_object_is_at_least_a_second(text: str, seconds: float) -> None:
    assert period_seconds({"metadata": {"annotations": {PERIOD_ANNOTATION: text}}}, WATCH, 60.0) == seconds


@pytest.mark.parametrize(
    ("asked", "deleted", "seconds", "why", "priority"),
    [
        (None, False, 60.0, "period", Priority.LOW),
        (5.0, False, 5.0, "requeue_after", Priority.HIGH),
        (0.0, False, 1.0, "requeue_after", Priority.HIGH),
        (None, True, 5.0, "deleted during its run", Priority.HIGH),
    ],
)
def test_requeues_and_deletions_have_high_priority_and_periods_low(
    *, asked: float | None, deleted: bool, seconds: float, why: str, priority: Priority
) -> None:
    context = ReconcileContext(ObjectKey("default", "one"), "ident", period_seconds=60.0)
    context.fresh = {"metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"} if deleted else {}}
    context.outcome = Outcome("successful", 0, requeue_after_seconds=asked)
    result = after_success(context, has_finalizer=True)
    assert (result.requeue_after_seconds, result.cause.text, result.cause.priority) == (seconds, why, priority)


async def test_fields_that_the_role_does_not_declare_are_in_the_status_and_in_one_event(
    world: World, tmp_path: Path
) -> None:
    """Later runs that leave out the same fields cause no Event, even after a failure; others do."""
    specs = tmp_path / "roles" / "thing" / "meta" / "argument_specs.yml"
    specs.parent.mkdir(parents=True)
    specs.write_text("argument_specs: {main: {options: {quota: {type: dict, options: {pods: {type: int}}}}}}")
    await world.create(MANIFEST.replace("size: 1", "quota: {pods: 1, storage: 2, cpu: 3}"))
    rig = make_rig(world, tmp_path)
    for outcome in (SUCCESS, FAILURE, SUCCESS):
        rig.runner.outcome = outcome
        await rig.reconcile()
    remark = "the role doesn't declare spec.quota.cpu, spec.quota.storage, so it didn't get them"
    status = "True", "Successful", f"Last reconciliation succeeded; {remark}"
    assert (await rig.conditions())["Successful"] == status
    specs.write_text("argument_specs: {main: {options: {quota: {type: dict, options: {pods: {}, storage: {}}}}}}")
    await rig.reconcile()
    specs.write_text("argument_specs: {main: {options: {}}}")
    await rig.reconcile()
    assert (await rig.conditions())["Successful"][2] == "Last reconciliation succeeded"
    messages = [event.message for event in rig.events if event.reason == "FieldsLeftOut"]
    assert [message.split("; ")[0] for message in messages] == [
        remark.replace("the", "The", 1),
        "The role doesn't declare spec.quota.cpu, so it didn't get it",
    ]
