from typing import Any

import pytest
from structlog.testing import capture_logs

from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.reconcile.second_operator import HINT, SecondOperator
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.own_writes import OwnWrites
from tests.support.reconciler_rig import FAILURE, SUCCESS
from tests.support.things import MANIFEST, THING
from tests.support.world import World
from tests.unit.fake_cluster import FakeCluster

ONE = ObjectKey("default", "one")


@pytest.fixture
async def one(world: World) -> RawObject:
    """Return an object without a status."""
    [made] = await world.create(MANIFEST)
    return made


def operator(world: World) -> StatusWriter:
    """Return the part of an operator that writes the status."""
    return StatusWriter(Primaries(world.client, THING, OwnWrites()), second_operator=SecondOperator(THING))


async def run(writer: StatusWriter, one: RawObject, outcome: Outcome = SUCCESS) -> None:
    """Write the status at the start and at the end of a run."""
    await writer.mark_running(one)
    await writer.write(one, outcome)


async def test_operators_of_the_same_object_report_each_other_once(world: World, one: RawObject) -> None:
    first, second = operator(world), operator(world)
    with capture_logs() as logs:
        for _ in range(3):
            await run(first, one, FAILURE)
            await run(second, one)
    assert [(each["log_level"], each["object"], each["hint"]) for each in logs] == [
        ("warning", "default/one", HINT)
    ] * 2


async def test_operator_alone_reports_nothing(
    world: World, one: RawObject, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if the response to a write is lost, and after a restart."""
    writer, replace, lost = operator(world), cluster.replace, []

    async def replace_without_response(obj: RawObject, subresource: str = "") -> RawObject:
        lost.append(await replace(obj, subresource))
        monkeypatch.setattr(cluster, "replace", replace)
        raise UnreachableError("no response")

    with capture_logs() as logs:
        await run(writer, one, FAILURE)
        monkeypatch.setattr(cluster, "replace", replace_without_response)
        await run(writer, one)
        await run(writer, one, FAILURE)
        await run(operator(world), one)
    assert lost
    assert [each for each in logs if "hint" in each] == []


def with_conditions(obj: RawObject, message: str, manager: str) -> RawObject:
    """Return an object with conditions of an operator and the field manager that has written them."""
    condition = {"type": "Successful", "status": "True", "reason": "Successful", "message": message}
    entries = [
        {"manager": "web", "time": "2026-01-01T12:00:09Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "first", "time": "2026-01-01T12:00:01Z", "fieldsV1": {"f:status": {"f:conditions": {}}}},
        {"manager": manager, "time": "2026-01-01T12:00:05Z", "fieldsV1": {"f:status": {"f:conditions": {}}}},
    ]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(("manager", "is_reported"), [("ansible-operator", True), ("kubectl-edit", False)])
def test_last_writer_of_the_conditions_is_named_and_a_user_is_none(
    manager: str, *, is_reported: bool, sample: RawObject
) -> None:
    detector = SecondOperator(THING)
    detector.left(with_conditions(sample, "mine", "first"))
    with capture_logs() as logs:
        detector.check(with_conditions(sample, "other", manager))
    assert [each["field_manager"] for each in logs] == [manager] * is_reported


@pytest.fixture
def sample() -> RawObject:
    return {"apiVersion": THING.api_version, "kind": "Thing", "metadata": {"name": "one", "uid": "1"}}


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "one", "uid": "2"}},
        {"status": {}},
        {"status": {"conditions": [{"type": "Successful", "status": "True", "reason": "Mine"}]}},
        {"metadata": {"name": "one", "uid": "1", "managedFields": "broken"}, "status": {"conditions": "broken"}},
    ],
)
def test_conditions_of_another_object_or_program_are_not_compared(sample: RawObject, change: dict[str, Any]) -> None:
    detector = SecondOperator(THING)
    detector.left(with_conditions(sample, "mine", "first"))
    with capture_logs() as logs:
        detector.check({**with_conditions(sample, "other", "second"), **change})
    assert logs == []


@pytest.mark.parametrize("forgets", ["forget", "forget_all"])
async def test_object_of_another_replica_or_a_restored_cluster_is_forgotten(sample: RawObject, forgets: str) -> None:
    detector = SecondOperator(THING)
    detector.left(with_conditions(sample, "mine", "first"))
    getattr(detector, forgets)(*[ObjectKey("", "one")] * (forgets == "forget"))
    with capture_logs() as logs:
        detector.check(with_conditions(sample, "other", "second"))
    assert logs == []
