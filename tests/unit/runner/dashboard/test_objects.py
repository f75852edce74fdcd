import asyncio
import re
import shlex
import socket
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import ObjectKey
from rolecall.runner.config.settings import Settings
from rolecall.runner.controller.controller import Dispatcher
from rolecall.runner.controller.informer import Reflector
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.dashboard.commands import Place
from rolecall.runner.dashboard.objects import MAX_NAMESPACES, PAGE_SIZE, list_view, object_view
from rolecall.runner.dashboard.sources import Kind, ObjectNote, Sources
from rolecall.runner.dashboard.views import ListView, Query, State, kind_id
from rolecall.runner.election.shard_member import HeldShards
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import Ending, RecordMemory
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.serving.servers import SharedResults
from tests.support.things import THING
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.controller.fake_server import FakeServer
from tests.unit.runner.dashboard.conftest import Shown
from tests.unit.runner.test_watch_controller import Bench

ONE = ObjectKey("default", "one")
PAUSED = {"rolecall.dev/paused": "true"}


def conditions(**statuses: str) -> dict[str, Any]:
    return {"conditions": [{"type": name, "status": status} for name, status in statuses.items()]}


async def drain(shown: Shown) -> None:
    """Take everything that is due."""
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
        (conditions(Successful="True", Ready="False", Reconciling="True"), "pending"),
        (conditions(Ready="False", Stalled="True"), "failed"),
    ],
)
async def test_state_follows_conditions(shown: Shown, status: dict[str, Any], state: str) -> None:
    shown.bench.tell(THING, status=status)
    assert (await only_row(shown))["state"] == state


async def test_pause_and_run_come_before_conditions(shown: Shown) -> None:
    shown.bench.tell(THING, status=conditions(Successful="True"), annotations=PAUSED)
    assert (await only_row(shown))["state"] == "paused"
    shown.bench.controller.queue.take()
    (row,) = (await list_view(shown.sources, Query())).rows
    assert (row.state, row.waits_for.text) == (State.RUNNING, "its run")


async def test_queued_object_has_wait_and_causes(shown: Shown) -> None:
    shown.bench.tell(THING)
    assert (await only_row(shown))["waitsFor"] == {
        "text": "its turn, high priority",
        "until": None,
        "because": ["Thing default/one created"],
    }


async def test_wait_for_worker_is_reported(shown: Shown) -> None:
    workers = shown.bench.controller.controller.workers
    for number in range(workers + 1):
        shown.bench.tell(THING, name=f"thing-{number}")
    for _ in range(workers):
        shown.bench.controller.queue.take()
    rows = (await shown.json("/"))["rows"]
    assert rows[-1]["waitsFor"]["text"] == f"one of the {workers} workers of its kind, high priority"


async def test_backoff_has_failures_and_end(shown: Shown) -> None:
    shown.bench.tell(THING)
    await drain(shown)
    seconds = shown.bench.controller.queue.add_rate_limited(ONE, Cause("retry 1"))
    wait = (await only_row(shown))["waitsFor"]
    assert (wait["text"], wait["because"]) == ("its backoff after 1 failure", ["retry 1"])
    assert wait["until"] == pytest.approx(shown.bench.clock.now() + seconds)


@pytest.mark.parametrize("status", [{}, conditions(Successful="True", Ready="True")])
async def test_object_whose_attempts_fail_is_failed_whatever_its_conditions(
    shown: Shown, status: dict[str, Any]
) -> None:
    """Conditions are of an earlier time if the API server is gone."""
    shown.bench.tell(THING, status=status)
    await drain(shown)
    shown.bench.controller.queue.add_rate_limited(ONE, Cause("retry 1"))
    view = await shown.json("/")
    assert (view["rows"][0]["state"], view["kinds"][0]["states"]["failed"]) == ("failed", 1)


@pytest.mark.parametrize("path", ["/", f"/kinds/{kind_id(THING)}/default/one"])
async def test_lost_watch_is_shown_with_its_age(shown: Shown, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown.bench.tell(THING, status=conditions(Successful="True"))
    primaries = shown.bench.controller.primaries
    reflector = Reflector(FakeServer(), THING, None, primaries, shown.bench.clock)
    monkeypatch.setattr(primaries, "_reflectors", [reflector])
    reflector.confirmed_at, as_of = shown.bench.clock.monotonic(), shown.bench.clock.now()
    view = await shown.json(path)
    assert [(each["trouble"], each["asOf"]) for each in view.get("kinds", [view])] == [("", as_of)]
    assert "as they were" not in (await shown.get(path))[1]
    reflector._retry.delay_after_failure(UnreachableError("connection refused"))
    shown.bench.clock.advance(305)
    view = await shown.json(path)
    trouble = "API server is unreachable; retrying"
    assert [(each["trouble"], each["asOf"]) for each in view.get("kinds", [view])] == [(trouble, as_of)]
    page = " ".join((await shown.get(path))[1].split())
    assert f"Thing: {trouble}.</strong> Its objects are shown as they were" in page


async def test_timer_has_time_and_cause(shown: Shown) -> None:
    shown.bench.tell(THING)
    await drain(shown)
    assert (await only_row(shown))["waitsFor"]["text"] == "a change"
    shown.bench.controller.queue.add_after(ONE, 60, Cause("period"))
    wait = (await only_row(shown))["waitsFor"]
    assert (wait["text"], wait["until"], wait["because"]) == ("its next run", shown.bench.clock.now() + 60, ["period"])


async def test_last_run_has_duration_outcome_and_causes(shown: Shown) -> None:
    shown.add_run(shown.bench.tell(THING))
    found = (await only_row(shown))["lastRun"]
    assert (found["seconds"], found["outcome"], found["because"]) == (0.25, "succeeded", ["something changed"])
    assert found["hasRecord"] is True


async def test_list_is_paged_in_order_of_names(shown: Shown) -> None:
    for number in reversed(range(2 * PAGE_SIZE + 1)):
        shown.bench.tell(THING, name=f"thing-{number:04}")
    first = await shown.json("/")
    assert (first["found"], first["pages"], len(first["rows"])) == (2 * PAGE_SIZE + 1, 3, PAGE_SIZE)
    assert [row["name"] for row in first["rows"][:2]] == ["thing-0000", "thing-0001"]
    last = await shown.json("/?page=3")
    assert [row["name"] for row in last["rows"]] == [f"thing-{2 * PAGE_SIZE:04}"]
    assert (await shown.json("/?page=99"))["rows"] == last["rows"]


async def test_query_selects_by_state_and_part_of_name(shown: Shown) -> None:
    shown.bench.tell(THING, name="good", status=conditions(Successful="True"))
    shown.bench.tell(THING, name="bad", status=conditions(Failure="True"))
    assert [row["name"] for row in (await shown.json("/?state=failed"))["rows"]] == ["bad"]
    assert [row["name"] for row in (await shown.json("/?q=oo"))["rows"]] == ["good"]
    assert (await shown.json("/?kind=Other.v1"))["found"] == 0
    assert (await shown.json("/?state=failed"))["kinds"][0]["states"]["succeeded"] == 1


async def test_query_selects_exact_namespace(shown: Shown) -> None:
    for namespace in ("blue", "light-blue"):
        shown.bench.tell(THING, namespace=namespace)
    assert [row["namespace"] for row in (await shown.json("/?namespace=blue"))["rows"]] == ["blue"]
    (status, page) = await shown.get("/?namespace=blue")
    assert (status, "1 object in blue" in page, "light-blue/one" in page) == (200, True, False)


async def test_filters_have_the_counts_of_the_rest_of_the_query(shown: Shown) -> None:
    for name in ("a", "b", "c"):
        shown.bench.tell(THING, name=name, namespace="blue", status=conditions(Successful="True"))
    shown.bench.tell(THING, name="bad", namespace="blue", status=conditions(Failure="True"))
    shown.bench.tell(THING, name="bad", namespace="red", status=conditions(Failure="True"))
    for query, succeeded, failed in (("", 3, 2), ("&state=failed", 3, 2), ("&namespace=blue", 3, 1), ("&q=red", 0, 1)):
        states = (await shown.json(f"/?{query}"))["states"]
        assert (states["succeeded"], states["failed"], states["running"]) == (succeeded, failed, 0), query
        page = " ".join(re.sub("<[^>]*>", " ", (await shown.get(f"/?{query}"))[1]).split())
        assert f"all {succeeded + failed} ✕ failed {failed} ▶ running 0" in page
    assert (await shown.json("/?kind=Other.v1"))["states"]["failed"] == 0


async def test_namespaces_of_the_selected_kinds_can_be_chosen(shown: Shown) -> None:
    for namespace in ("red", "blue", "<b>"):
        shown.bench.tell(THING, namespace=namespace)
    assert (await shown.json("/?namespace=red"))["namespaces"] == ["<b>", "blue", "red"]
    page = (await shown.get("/?namespace=red"))[1]
    assert "<option>blue</option>" in page
    assert "<option selected>red</option>" in page
    assert "<option>&lt;b&gt;</option>" in page
    assert "<option selected>gone</option>" in (await shown.get("/?namespace=gone"))[1]
    assert (await shown.json("/?kind=Other.v1"))["namespaces"] == []


async def test_further_namespaces_can_be_entered(shown: Shown) -> None:
    for number in range(MAX_NAMESPACES + 2):
        shown.bench.tell(THING, namespace=f"ns-{number:04}")
    view = await shown.json("/?namespace=ns-0501")
    assert (len(view["namespaces"]), view["found"]) == (MAX_NAMESPACES, 1)
    assert '<input id="namespace" name="namespace" value="ns-0501"' in (await shown.get("/?namespace=ns-0501"))[1]


async def test_failed_object_without_a_run_has_the_reason_of_its_condition(shown: Shown) -> None:
    failure = {"type": "Failure", "status": "True", "reason": "Failed", "message": "secret"}
    shown.bench.tell(THING, status={"conditions": [{"type": "Ready", "status": "False"}, failure]})
    assert (await only_row(shown))["message"] == "Failure: Failed"
    assert "Failure: Failed" in (await shown.get("/"))[1]
    shown.bench.tell(THING, "MODIFIED", status=conditions(Successful="True"))
    assert (await only_row(shown))["message"] == ""


async def test_list_can_be_sorted_by_last_run(shown: Shown) -> None:
    shown.bench.tell(THING, name="a")
    shown.add_run(shown.bench.tell(THING, name="b"))
    assert [row["name"] for row in (await shown.json("/?sort=recent"))["rows"]] == ["b", "a"]


async def test_same_query_is_computed_once_a_second(shown: Shown) -> None:
    now = [0.0]
    lists = SharedResults[Query, ListView](partial(list_view, shown.sources), lambda: now[0])
    first = await lists.get(Query())
    shown.bench.tell(THING)
    now[0] = 0.9
    assert await lists.get(Query()) is first
    now[0] = 1.0
    assert (await lists.get(Query())).found == 1


async def test_counting_many_objects_does_not_block_the_loop(shown: Shown) -> None:
    for number in range(2000):
        shown.bench.tell(THING, name=f"thing-{number}")
    listing = asyncio.create_task(list_view(shown.sources, Query()))
    turns = 0
    while not listing.done():
        turns += 1
        await asyncio.sleep(0)
    assert (await listing).found == 2000
    assert turns >= 10


async def test_follower_is_reported(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown.bench.manager, "leadership", Follower())
    monkeypatch.setattr(shown.bench.manager, "has_settled", True)
    shown.bench.tell(THING)
    view = await shown.json("/")
    assert view["replica"]["text"].startswith("This replica is a follower: it shows no runs")
    assert view["replica"]["text"].endswith("The leader is the operator on web-7d9f8-abcde.")
    assert (view["replica"]["isWorking"], view["replica"]["command"]) == (False, "")
    assert view["rows"][0]["waitsFor"]["text"] == "this replica to lead, high priority"


@pytest.mark.parametrize("path", ["/", f"/kinds/{kind_id(THING)}/default/one"])
async def test_follower_names_the_pod_of_the_leader_and_the_command(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(shown.bench.manager, "leadership", Follower())
    monkeypatch.setattr(shown.bench.manager, "has_settled", True)
    shown.sources = replace(shown.sources, place=Place("web-system", "web-7d9f8-other", "8090"))
    shown.bench.tell(THING)
    command = "kubectl port-forward --namespace web-system pod/web-7d9f8-abcde 8090"
    replica = (await shown.json(path))["replica"]
    assert (replica["leader"], replica["command"]) == ("web-7d9f8-abcde", command)
    assert f">{command}</code>" in (await shown.get(path))[1]
    monkeypatch.setattr(Follower, "holder", "")
    replica = (await shown.json(path))["replica"]
    assert (replica["leader"], replica["command"]) == ("", "")
    assert replica["text"].endswith("No replica leads at the moment.")


async def test_place_is_that_of_the_pod(tmp_path: Path) -> None:
    namespace, settings = tmp_path / "namespace", Settings(ui_bind_address="127.0.0.1:8090")
    assert Place.here(settings, namespace) == Place("", socket.gethostname(), "8090")
    namespace.write_text("web-system\n")
    assert Place.here(settings, namespace).namespace == "web-system"


async def test_failing_objects_come_first_also_while_they_run_again(shown: Shown) -> None:
    for name in ("a", "b", "c", "d"):
        shown.bench.tell(THING, name=name, status=conditions(Failure="True" if name in "bd" else "False"))
    assert [row["name"] for row in (await shown.json("/"))["rows"]] == ["b", "d", "a", "c"]
    while shown.bench.controller.queue.take()[0].name != "b":
        pass
    view = await shown.json("/")
    assert [(row["name"], row["state"]) for row in view["rows"]][:2] == [("b", "running"), ("d", "failed")]
    assert [row["name"] for row in (await shown.json("/?sort=name"))["rows"]] == ["a", "b", "c", "d"]


def fail(shown: Shown, name: str, message: str, since: str = "2023-11-14T21:42:00Z") -> None:
    """Add an object whose run has failed."""
    failure = {"type": "Failure", "status": "True", "reason": "Failed", "lastTransitionTime": since}
    obj = shown.bench.tell(THING, name=name, status={"conditions": [failure]})
    shown.add_run(obj, ending=Ending("failed", Outcome("failed")), message=message)


async def test_equal_failures_are_grouped_with_their_time(shown: Shown) -> None:
    shown.bench.tell(THING, name="good", status=conditions(Successful="True"))
    fail(shown, "other", "no quota")
    for number in range(33):
        since = f"2023-11-14T21:{50 - number:02}:00Z"
        fail(shown, f"thing-{number}", f'Task "Make it": namespace "thing-{number}" is full', since)
    (group,) = (await shown.json("/"))["groups"]
    assert group["heading"] == "33 of 35 Things fail since 21:18"
    assert (group["message"], group["count"], group["total"]) == ('Make it: namespace "…" is full', 33, 35)
    assert [key["name"] for key in group["first"]] == ["thing-0", "thing-1", "thing-10"]
    view = await shown.json(f"/?failure={group['id']}")
    assert (view["found"], view["groups"], view["states"]["failed"]) == (33, [group], 34)
    page = (await shown.get("/"))[1]
    assert f'href="/?kind={kind_id(THING)}&amp;failure={group["id"]}"' in page
    assert "33 objects with this failure" in (await shown.get(f"/?failure={group['id']}"))[1]
    assert (await shown.json("/?failure=%27%3Cscript"))["query"]["failure"] == ""
    assert [each["count"] for each in (await shown.json("/?q=thing-1"))["groups"]] == [11]


async def test_failure_without_conditions_exists_since_its_first_run(shown: Shown) -> None:
    object.__setattr__(shown.kind.watched.watch, "manage_status", False)
    obj = shown.bench.tell(THING)
    for number, outcome in enumerate(["failed", "succeeded", "failed", "failed"]):
        started = datetime(2026, 11, 28, 7, number, tzinfo=UTC)
        shown.add_run(obj, ident=str(number), started=started, ending=Ending(outcome, Outcome("failed")), message="no")
    row = await only_row(shown)
    assert row["failingSince"] == datetime(2026, 11, 28, 7, 2, tzinfo=UTC).timestamp()
    assert (row["state"], row["message"]) == ("failed", "no")


async def test_retry_shows_the_first_cause(shown: Shown) -> None:
    obj = shown.bench.tell(THING)
    for number, cause in enumerate(["Thing default/one: spec.size (generation 2)", "retry 1", "retry 2"]):
        shown.add_run(obj, ident=str(number), causes=(cause,), ending=Ending("failed", Outcome("failed")), message="no")
    for path in ("/", f"/kinds/{kind_id(THING)}/default/one", f"/kinds/{kind_id(THING)}/default/one/runs/2"):
        page = (await shown.get(path))[1]
        assert 'retry 2 <span class="minor">first: <bdi>spec.size (generation 2)</bdi></span>' in page, path


async def test_object_has_commands_to_copy(shown: Shown) -> None:
    shown.sources = replace(shown.sources, place=Place("web-system", "web-1", "8090", Path("/records")))
    fail(shown, "one", "no")
    path = f"/kinds/{kind_id(THING)}/default/one"
    annotate = "kubectl annotate --overwrite --namespace default thing.test.rolecall.dev/one rolecall.dev/"
    assert [each["command"] for each in (await shown.json(path))["commands"]] == [
        f'{annotate}reconcile-requested-at="$(date)"',
        f"{annotate}paused=true",
        "kubectl logs --namespace web-system pod/web-1 | grep -w -e one",
        "kubectl exec --namespace web-system pod/web-1 -- sh -c 'cat /records/*-7.*jsonl' >record.jsonl",
        "rolecall record show record.jsonl",
        "rolecall replay record.jsonl",
    ]
    shown.sources = replace(shown.sources, place=Place(records=Path("my records")))
    shown.bench.tell(THING, "MODIFIED", annotations=PAUSED)
    assert [each["command"] for each in (await shown.json(path))["commands"]][1:] == [
        f"{annotate}paused-",
        "rolecall record show 'my records'/*-7.*jsonl",
        "rolecall replay 'my records'/*-7.*jsonl",
    ]


async def test_names_in_commands_are_words_of_the_shell(shown: Shown) -> None:
    name = "a; rm -rf $HOME 'x'"
    shown.sources = replace(shown.sources, place=Place("web-system", "web-1", "8090"))
    view = object_view(shown.sources, shown.kind, ObjectNote.of(ObjectKey(name, name), {}), None)
    for each in view.commands:
        words = shlex.split(each.command.replace('"$(date)"', "DATE"))
        assert any(word in (name, f"thing.test.rolecall.dev/{name}") for word in words), words
        assert ";" not in words


class Follower:
    """An election that another replica has won."""

    is_leading = False
    holder = "web-7d9f8-abcde_6f1c1f64"


async def test_held_shards_and_foreign_objects_are_reported(cluster: FakeCluster, tmp_path: Path) -> None:
    shards = HeldShards(4, 1.0, Dispatcher())
    bench = Bench(cluster, tmp_path, shards=shards)
    sources = Sources("1", (Kind(bench.controller),), bench.manager, Recorder(cluster, RecordMemory(0)), shards)
    for number in range(20):
        bench.tell(THING, name=f"thing-{number}")
    shards.take(2)
    view = await list_view(sources, Query())
    assert "Of 4 shards it holds 2." in view.replica.text
    elsewhere = [row.name for row in view.rows if row.waits_for.text == "the replica that has its shard"]
    assert elsewhere == [
        row.name for row in view.rows if shards.shard_of(THING, ObjectKey(row.namespace, row.name)) != 2
    ]
    assert 0 < len(elsewhere) < 20
