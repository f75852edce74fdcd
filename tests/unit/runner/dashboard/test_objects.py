import asyncio
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import ObjectKey
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.dashboard.objects import PAGE_SIZE, Lists
from rolecall.runner.dashboard.sources import Kind, Sources
from rolecall.runner.dashboard.views import Query, State
from rolecall.runner.election.shard_member import HeldShards
from tests.integration.things import THING
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.dashboard.conftest import Shown
from tests.unit.runner.test_watch_controller import Bench

ONE = ObjectKey("default", "one")
PAUSED = {"rolecall.dev/paused": "true"}


def conditions(**statuses: str) -> dict[str, Any]:
    return {"conditions": [{"type": name, "status": status} for name, status in statuses.items()]}


async def drain(shown: Shown) -> None:
    """Do what is due, as if it took no time."""
    await shown.bench.due()


async def only_row(shown: Shown) -> Any:
    (row,) = (await shown.json("/"))["rows"]
    return row


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "pending"),
        ({"conditions": "odd"}, "pending"),
        (conditions(Running="True"), "pending"),
        (conditions(Running="True", Successful="True", Failure="False"), "succeeded"),
        (conditions(Running="True", Successful="False", Failure="True"), "failed"),
        (conditions(Ready="True"), "succeeded"),
        (conditions(Ready="False", Reconciling="True"), "pending"),
        (conditions(Ready="False", Stalled="True"), "failed"),
    ],
)
async def test_the_state_is_that_of_the_conditions(shown: Shown, status: dict[str, Any], state: str) -> None:
    shown.bench.tell(THING, status=status)
    assert (await only_row(shown))["state"] == state


async def test_what_happens_now_comes_before_what_the_conditions_say(shown: Shown) -> None:
    shown.bench.tell(THING, status=conditions(Successful="True"), annotations=PAUSED)
    assert (await only_row(shown))["state"] == "paused"
    shown.bench.controller.controller.running.add(ONE)
    lists = Lists(shown.sources)
    (row,) = (await lists.answer(Query())).rows
    assert (row.state, row.waits_for.text) == (State.RUNNING, "its run")


async def test_an_object_in_the_queue_says_what_it_waits_for_and_why(shown: Shown) -> None:
    shown.bench.tell(THING)
    assert (await only_row(shown))["waitsFor"] == {
        "text": "its turn, high priority",
        "until": None,
        "because": ["Thing default/one created"],
    }


async def test_an_object_that_waits_for_a_worker_says_so(shown: Shown) -> None:
    workers = shown.bench.controller.controller.workers
    for number in range(workers + 1):
        shown.bench.tell(THING, name=f"thing-{number}")
    for _ in range(workers):
        shown.bench.controller.queue.take()
    rows = (await shown.json("/"))["rows"]
    assert rows[-1]["waitsFor"]["text"] == f"a free worker of {workers} of its kind, high priority"


async def test_a_back_off_says_after_how_many_failures_and_until_when(shown: Shown) -> None:
    shown.bench.tell(THING)
    await drain(shown)
    seconds = shown.bench.controller.queue.add_rate_limited(ONE, Cause("retry 1"))
    wait = (await only_row(shown))["waitsFor"]
    assert (wait["text"], wait["because"]) == ("its back-off after 1 failure", ["retry 1"])
    assert wait["until"] == pytest.approx(shown.bench.clock.now() + seconds)


async def test_a_timer_says_when_the_next_run_is_and_why(shown: Shown) -> None:
    shown.bench.tell(THING)
    await drain(shown)
    assert (await only_row(shown))["waitsFor"]["text"] == "a change"
    shown.bench.controller.queue.add_after(ONE, 60, Cause("period"))
    wait = (await only_row(shown))["waitsFor"]
    assert (wait["text"], wait["until"], wait["because"]) == ("its next run", shown.bench.clock.now() + 60, ["period"])


async def test_the_last_run_says_when_how_long_and_why(shown: Shown) -> None:
    shown.add_run(shown.bench.tell(THING))
    found = (await only_row(shown))["lastRun"]
    assert (found["seconds"], found["outcome"], found["because"]) == (0.25, "succeeded", ["something changed"])
    assert found["hasRecord"] is True


async def test_a_list_has_a_page_of_the_objects_in_the_order_of_their_names(shown: Shown) -> None:
    for number in reversed(range(2 * PAGE_SIZE + 1)):
        shown.bench.tell(THING, name=f"thing-{number:04}")
    first = await shown.json("/")
    assert (first["found"], first["pages"], len(first["rows"])) == (2 * PAGE_SIZE + 1, 3, PAGE_SIZE)
    assert [row["name"] for row in first["rows"][:2]] == ["thing-0000", "thing-0001"]
    last = await shown.json("/?page=3")
    assert [row["name"] for row in last["rows"]] == [f"thing-{2 * PAGE_SIZE:04}"]
    assert (await shown.json("/?page=99"))["rows"] == last["rows"]


async def test_a_query_selects_by_state_and_by_a_part_of_the_name(shown: Shown) -> None:
    shown.bench.tell(THING, name="good", status=conditions(Successful="True"))
    shown.bench.tell(THING, name="bad", status=conditions(Failure="True"))
    assert [row["name"] for row in (await shown.json("/?state=failed"))["rows"]] == ["bad"]
    assert [row["name"] for row in (await shown.json("/?q=oo"))["rows"]] == ["good"]
    assert (await shown.json("/?kind=Other.v1"))["found"] == 0
    assert (await shown.json("/?state=failed"))["kinds"][0]["states"]["succeeded"] == 1


async def test_a_query_selects_a_namespace_and_no_other_whose_name_contains_it(shown: Shown) -> None:
    for namespace in ("blue", "light-blue"):
        shown.bench.tell(THING, namespace=namespace)
    assert [row["namespace"] for row in (await shown.json("/?namespace=blue"))["rows"]] == ["blue"]
    (status, page) = await shown.get("/?namespace=blue")
    assert (status, "1 object in blue" in page, "light-blue" in page) == (200, True, False)


async def test_the_order_can_be_that_of_the_last_runs(shown: Shown) -> None:
    shown.bench.tell(THING, name="a")
    shown.add_run(shown.bench.tell(THING, name="b"))
    assert [row["name"] for row in (await shown.json("/?sort=recent"))["rows"]] == ["b", "a"]


async def test_an_object_that_is_gone_is_not_in_the_list(shown: Shown) -> None:
    shown.bench.tell(THING)
    shown.bench.tell(THING, "DELETED")
    assert (await shown.json("/"))["found"] == 0


async def test_the_same_query_is_answered_once_a_second(shown: Shown) -> None:
    now = [0.0]
    lists = Lists(shown.sources, lambda: now[0])
    first = await lists.answer(Query())
    shown.bench.tell(THING)
    now[0] = 0.9
    assert await lists.answer(Query()) is first
    now[0] = 1.0
    assert (await lists.answer(Query())).found == 1


async def test_other_work_goes_on_while_many_objects_are_counted(shown: Shown) -> None:
    for number in range(2000):
        shown.bench.tell(THING, name=f"thing-{number}")
    listing = asyncio.create_task(Lists(shown.sources).answer(Query()))
    turns = 0
    while not listing.done():
        turns += 1
        await asyncio.sleep(0)
    assert (await listing).found == 2000
    assert turns >= 10


async def test_a_replica_that_waits_for_the_lead_says_so(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown.bench.manager, "_leadership", Follower())
    monkeypatch.setattr(shown.bench.manager, "_has_settled", True)
    shown.bench.tell(THING)
    view = await shown.json("/")
    assert view["replica"]["text"].startswith("This replica waits: another one is the leader")
    assert view["replica"]["isWorking"] is False
    assert view["rows"][0]["waitsFor"]["text"] == "this replica to lead, high priority"


class Follower:
    """An election that somebody else has won."""

    is_leading = False


async def test_a_replica_says_which_shards_it_holds_and_what_is_not_its_own(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    shards = HeldShards(4, 1.0)
    bench = Bench(cluster, tmp_path, shards=shards)
    sources = Sources("1", (Kind.of(bench.controller),), bench.manager, shards=shards)
    for number in range(20):
        bench.tell(THING, name=f"thing-{number}")
    shards.take(2)
    view = await Lists(sources).answer(Query())
    assert "Of 4 shards it holds 2." in view.replica.text
    elsewhere = [row.name for row in view.rows if row.waits_for.text == "the replica that has its shard"]
    assert elsewhere == [
        row.name for row in view.rows if shards.shard_of(THING, ObjectKey(row.namespace, row.name)) != 2
    ]
    assert 0 < len(elsewhere) < 20
