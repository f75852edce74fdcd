import asyncio
import math
from dataclasses import replace

import pytest

from rolecall.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    NotServedError,
    TooLargeError,
    UnknownKindError,
    UnreachableError,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.election.elector import LeadershipLostError
from rolecall.runner.reconcile import status_writer
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter, write_with_retry
from rolecall.runner.runs.outcome import Outcome, Reported
from rolecall.runner.runs.own_writes import OwnWrites
from tests.support.things import MANIFEST, THING
from tests.support.virtual_time import VirtualTimeLoop
from tests.support.world import World, condition
from tests.unit.fake_cluster import FakeCluster
from tests.unit.manual_clock import ManualClock

ONE = ObjectKey("default", "one")


@pytest.fixture
async def one(world: World) -> RawObject:
    """Return an object that is there."""
    [made] = await world.create(MANIFEST)
    return made


SUCCESS = Outcome("successful")


def mapping(**fields: object) -> Outcome:
    """Return the outcome of a run that succeeded, with values for fields of the status."""
    return replace(SUCCESS, reported=Reported(fields))


@pytest.fixture
def writer(world: World) -> StatusWriter:
    return StatusWriter(Primaries(world.client, THING, OwnWrites()))


async def test_no_status_is_written_after_losing_leadership(world: World, one: RawObject, cluster: FakeCluster) -> None:
    writer = StatusWriter(Primaries(world.client, THING, OwnWrites(), may_write=lambda: False))
    with pytest.raises(LeadershipLostError, match="another replica may be the leader"):
        await writer.write(one, SUCCESS)
    assert await writer.mark_running(one) is None
    assert cluster.writes == []


async def test_recreated_object_gets_no_status_of_its_predecessor(
    writer: StatusWriter, world: World, one: RawObject, cluster: FakeCluster
) -> None:
    await world.delete(THING, "one")
    await world.create(MANIFEST)
    with pytest.raises(NotFoundError):
        await writer.write(one, Outcome.of_failure("no"))
    with pytest.raises(NotFoundError):
        await writer.mark_paused(one)
    assert await writer.mark_running(one) is None
    assert cluster.writes == []


async def test_status_from_before_the_mark_does_not_count_as_written(
    writer: StatusWriter, one: RawObject, world: World, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that lags returns the object without the mark of the run, and then its status would be the new one."""
    await writer.write(one, SUCCESS)
    before, get = await world.get(THING, "one"), cluster.get
    marked = await writer.mark_running(before)
    assert marked is not None
    left = [before] * 3

    async def lagging(gvk: GVK, key: ObjectKey) -> RawObject:
        return left.pop() if left else await get(gvk, key)

    monkeypatch.setattr(cluster, "get", lagging)
    monkeypatch.setattr(status_writer, "REREAD_SECONDS", (0.0, 0.0, 0.0))
    await writer.write(marked, SUCCESS)
    assert condition(await get(THING, ONE), "Running")["reason"] == "Successful"


async def test_observed_generation_is_that_of_the_run(writer: StatusWriter, one: RawObject, world: World) -> None:
    await world.patch(THING, "one", {"spec": {"size": 2}})
    await writer.write(one, SUCCESS)
    assert (await world.get(THING, "one"))["status"]["observedGeneration"] == 1


async def test_invalid_status_is_overwritten(
    writer: StatusWriter, one: RawObject, world: World, cluster: FakeCluster
) -> None:
    cluster.objects()[THING, ONE]["status"] = "fine"
    await writer.write(one, SUCCESS)
    assert condition(await world.get(THING, "one"), "Successful")["status"] == "True"


@pytest.mark.parametrize(
    "error",
    [
        ApiError(400, "BadRequest", "json: cannot unmarshal number 1e400"),
        ForbiddenError(403, "Forbidden", "admission webhook denied the request"),
        InvalidError(422, "Invalid", "status.small: Invalid value"),
    ],
)
async def test_rejected_values_are_omitted(
    writer: StatusWriter, one: RawObject, world: World, cluster: FakeCluster, error: ApiError
) -> None:
    cluster.troubles = [("replace status", error)]
    await writer.write(one, mapping(small=1))
    thing = await world.get(THING, "one")
    assert condition(thing, "Successful")["status"] == "True"
    assert f"the mapped status was rejected: {error.message}" in condition(thing, "Successful")["message"]
    assert "small" not in thing["status"]


async def test_unrelated_error_keeps_the_values(writer: StatusWriter, one: RawObject, cluster: FakeCluster) -> None:
    cluster.troubles = [("replace status", ApiError(401, "Unauthorized", "who are you?"))]
    with pytest.raises(ApiError, match="who are you"):
        await writer.write(one, mapping(small=1))
    assert cluster.writes == []


async def test_rejected_condition_is_omitted_and_reported(world: World, one: RawObject, cluster: FakeCluster) -> None:
    reports: list[str] = []
    primaries = Primaries(world.client, THING, OwnWrites())
    writer = StatusWriter(primaries, report=lambda _obj, problem: reports.append(problem))
    causes = {"causes": [{"field": "status.conditions[0].type", "message": "Unsupported value"}]}
    cluster.troubles = [("replace status", InvalidError(422, "Invalid", "Running: Unsupported value", causes))]
    await writer.write(one, SUCCESS)
    types = [each["type"] for each in (await world.get(THING, "one"))["status"]["conditions"]]
    assert types == ["Successful", "Failure"]
    assert reports == ["The API server rejected the status, only a part of it was written: Running: Unsupported value"]


async def test_conditions_that_the_schema_drops_are_reported(
    world: World, one: RawObject, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[str] = []
    replace = cluster.replace

    async def prune(obj: RawObject, subresource: str = "") -> RawObject:
        kept = [{**each, "reason": ""} for each in obj["status"]["conditions"] if each["type"] != "Running"]
        return await replace({**obj, "status": {"conditions": kept}}, subresource)

    monkeypatch.setattr(cluster, "replace", prune)
    primaries = Primaries(world.client, THING, OwnWrites())
    await StatusWriter(primaries, report=lambda _obj, text: reports.append(text)).write(one, SUCCESS)
    assert reports == ["The schema of the CRD drops conditions, or their reasons: Running, Successful, Failure"]


@pytest.mark.parametrize(
    ("stored", "report"),
    [
        ({}, ["The schema of the CRD drops status.deep, status.small, or a part: add what the watch maps to it"]),
        ({"small": 1}, ["The schema of the CRD drops status.deep, or a part: add what the watch maps to it"]),
        (
            {"small": 1, "deep": {"list": [{}]}},
            ["The schema of the CRD drops status.deep, or a part: add what the watch maps to it"],
        ),
        ({"small": 1, "deep": {"list": [{"a": 1}], "default": True}}, []),
    ],
)
async def test_mapped_fields_that_the_schema_drops_are_reported(  # noqa: PLR0913, PLR0917 - a table
    world: World,
    one: RawObject,
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    stored: dict[str, object],
    report: list[str],
) -> None:
    reports: list[str] = []
    replace = cluster.replace

    async def prune(obj: RawObject, subresource: str = "") -> RawObject:
        return await replace({**obj, "status": {"conditions": obj["status"]["conditions"], **stored}}, subresource)

    monkeypatch.setattr(cluster, "replace", prune)
    writer = StatusWriter(Primaries(world.client, THING, OwnWrites()), report=lambda _obj, text: reports.append(text))
    await writer.write(one, mapping(small=1, deep={"list": [{"a": 1}]}))
    assert reports == report


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_non_finite_number_is_omitted(writer: StatusWriter, one: RawObject, world: World, number: float) -> None:
    await writer.write(one, mapping(small=1, deep={"list": [1.5, number]}))
    thing = await world.get(THING, "one")
    message = condition(thing, "Successful")["message"]
    assert "the mapped status was rejected: deep: found a number that is infinite or NaN" in message
    assert thing["status"]["small"] == 1
    assert "deep" not in thing["status"]


async def test_too_large_values_are_omitted_and_reported(
    writer: StatusWriter, one: RawObject, world: World, cluster: FakeCluster
) -> None:
    cluster.troubles = [("replace status", TooLargeError(500, "InternalError", "etcdserver: request is too large"))]
    await writer.write(one, mapping(small=1))
    thing = await world.get(THING, "one")
    message = condition(thing, "Successful")["message"]
    assert "the mapped status was rejected: etcdserver: request is too large" in message
    assert "small" not in thing["status"]


async def test_times_in_conditions_are_those_of_the_clock(world: World, one: RawObject) -> None:
    """A simulated operator writes no time of the system."""
    clock = ManualClock(epoch=1_767_225_600.0)
    await StatusWriter(Primaries(world.client, THING, OwnWrites()), now=clock.now).mark_running(one)
    assert condition(await world.get(THING, "one"), "Running")["lastTransitionTime"] == "2026-01-01T00:00:00Z"


REFUSED = ApiError(500, "InternalError", "failed calling webhook: no endpoints")
AWAY = UnreachableError("nobody there")
CONFLICT = ConflictError(409, "Conflict", "the object has been modified")


class Server:
    """Gives the errors in turn, then takes the write; each response takes half a minute."""

    def __init__(self, *errors: KubeError) -> None:
        self.errors = list(errors)

    async def write(self) -> str:
        """Take a write."""
        await asyncio.sleep(30.0)
        if self.errors:
            raise self.errors.pop(0)
        return "written"


def written_to(server: Server) -> str:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(write_with_retry(server.write))


@pytest.mark.parametrize("errors", [[REFUSED], [CONFLICT], [CONFLICT, REFUSED]])
def test_write_fails_after_a_minute_of_rejections(errors: list[KubeError]) -> None:
    server = Server(*(errors * 100)[:100])
    with pytest.raises(ApiError, match=r"webhook|modified"):
        written_to(server)
    assert len(server.errors) == 97


@pytest.mark.parametrize("error", [UnknownKindError(THING), NotServedError(404, "", "page not found")])
def test_write_waits_for_a_kind_that_is_not_served_for_a_moment(error: KubeError) -> None:
    """The object was read a moment ago, so its kind is served: a gateway responds for the API server."""
    assert written_to(Server(error)) == "written"


def test_write_waits_for_an_unavailable_server() -> None:
    assert written_to(Server(*[AWAY] * 100)) == "written"


async def test_generation_of_a_built_in_kind_is_not_written(world: World) -> None:
    pod = GVK("", "v1", "Pod")
    [made] = await world.create("apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: []}\n")
    await StatusWriter(Primaries(world.client, pod, OwnWrites())).write(made, SUCCESS)
    status = (await world.get(pod, "one"))["status"]
    assert condition({"status": status}, "Successful")["status"] == "True"
    assert "observedGeneration" not in status
