"""The page of an object with a fake API server: the tree, the Events, and the spec, and what it doesn't show."""

import asyncio
import base64
import html
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from jsonpath_ng.ext import parse
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.dashboard import object_tree
from rolecall.runner.dashboard.html import object_path, run_path
from rolecall.runner.dashboard.object_tree import MASKED, MAX_OBJECTS, NO_MASK, ClusterViews
from rolecall.runner.dashboard.runs import RecordCache
from rolecall.runner.dashboard.server import dashboard_application
from rolecall.runner.dashboard.views import kind_id
from rolecall.runner.prune.decision import Pruning
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory, InventoryObject
from rolecall.runner.prune.observations import ObjectId
from rolecall.runner.record.run_record import Ending
from rolecall.runner.runs.outcome import Outcome
from tests.support.things import THING
from tests.support.world import eventually
from tests.unit.runner.dashboard.conftest import OPEN, Shown
from tests.unit.runner.dashboard.test_html import HOSTILE, Elements, check_policy
from tests.unit.runner.proxy.api_server import ALL_VERBS, DISCOVERY, ApiServer
from tests.unit.runner.proxy.conftest import api_server
from tests.unit.runner.reconcile.test_proposals import entry, primary
from tests.unit.runner.record.records import exchange

__all__ = ["api_server"]

PATH = object_path(kind_id(THING), "default", "one")
DEPLOYMENT, REPLICA_SET = GVK("apps", "v1", "Deployment"), GVK("apps", "v1", "ReplicaSet")
SECRET, CONFIG_MAP, POD = GVK("", "v1", "Secret"), GVK("", "v1", "ConfigMap"), GVK("", "v1", "Pod")
PLANTED = "planted-Pa55word"
READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
RIGHT_TO_LEFT = "\u202egnp.exe"


@dataclass
class Cluster:
    """An API server, an operator whose informers know some of its objects, and the page of the operator."""

    api: ApiServer
    shown: Shown

    def add(self, gvk: GVK, name: str, owner: str = "one", *, is_known: bool = True, **fields: Any) -> RawObject:
        """Store an object with an owner, which the informer of its kind knows."""
        kind = {"one": THING.kind, "web": DEPLOYMENT.kind}.get(owner, "Any")
        reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
        references = {"ownerReferences": [reference]} if owner else {}
        metadata = references | fields.pop("metadata", {})
        obj = self.shown.bench.version_of(gvk, name, **metadata) | fields
        prefix = f"/apis/{gvk.api_version}" if gvk.group else "/api/v1"
        self.api.objects[f"{prefix}/namespaces/default/{gvk.kind.lower()}s/{name}"] = obj
        if is_known:
            self.shown.bench.manager.informer_for(gvk).on_watch_event("ADDED", obj)
        return obj

    def forbid(self, path: str) -> None:
        """Reject each request for a path."""
        self.api.respond("GET", path, {"kind": "Status", "reason": "Forbidden", "message": PLANTED}, 403)

    async def view(self) -> Any:
        """Return what the page has from the API server."""
        return (await self.shown.json(PATH))["cluster"]

    async def tree(self) -> list[Any]:
        """Return the tree as nested lists of kind, name, readiness, and reason."""
        return _outline((await self.view())["owned"])

    async def page(self) -> str:
        """Return the page of the object."""
        status, text = await self.shown.get(PATH)
        assert status == 200
        return text


def _outline(nodes: Any) -> list[Any]:
    return [
        [node["kind"], node["name"], node["verdict"]["readiness"], node["verdict"]["reason"], *_outline(node["owned"])]
        for node in nodes
    ]


@pytest.fixture
async def cluster_of_one(
    shown: Shown, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    """Yield a cluster with the Thing named one."""
    kinds = {"/api/v1": (SECRET, CONFIG_MAP, POD, GVK("", "v1", "Event")), "/apis/apps/v1": (DEPLOYMENT, REPLICA_SET)}
    for path, served in (kinds | {f"/apis/{THING.api_version}": (THING,)}).items():
        resources = [
            {"name": f"{each.kind.lower()}s", "kind": each.kind, "namespaced": True, "verbs": ALL_VERBS}
            for each in served
        ]
        monkeypatch.setitem(DISCOVERY, path, resources)
    monkeypatch.setattr(object_tree, "READ_SECONDS", 60)  # a busy machine may give this process no CPU for seconds
    async with Client(Configuration(host=api_server.url)) as client:
        shown.bench.manager.client = client
        cluster = Cluster(api_server, shown)
        cluster.add(THING, "one", "", spec={"size": 1})
        yield cluster


def add_website(cluster: Cluster) -> None:
    """Add a Deployment that the informer knows, with a ReplicaSet and two Pods that it doesn't know."""
    counts = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1, "readyReplicas": 1}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}
    cluster.add(DEPLOYMENT, "web", spec=spec, status=counts)
    counts["fullyLabeledReplicas"] = 2
    cluster.add(REPLICA_SET, "web-1", "web", is_known=False, spec=spec, status=counts)
    cluster.add(REPLICA_SET, "web-0", "web", is_known=False, spec=spec | {"replicas": 0}, status={"replicas": 0})
    state = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    cluster.add(POD, "web-1-a", "web-1", is_known=False, status=READY)
    cluster.add(POD, "web-1-b", "web-1", is_known=False, status={"phase": "Pending", "containerStatuses": [state]})
    cluster.add(POD, "other", "other", is_known=False, status=READY)


WEBSITE = [
    "Deployment",
    "web",
    "not ready",
    "availableReplicas: 1 of 2",
    [
        "ReplicaSet",
        "web-1",
        "not ready",
        "availableReplicas: 1 of 2",
        ["Pod", "web-1-a", "ready", ""],
        ["Pod", "web-1-b", "not ready", "ImagePullBackOff"],
    ],
]


async def test_tree_has_owned_objects_with_theirs_and_their_readiness(cluster_of_one: Cluster) -> None:
    add_website(cluster_of_one)
    cluster_of_one.add(CONFIG_MAP, "settings")
    assert await cluster_of_one.tree() == [["ConfigMap", "settings", "ready", ""], WEBSITE]
    page = await cluster_of_one.page()
    assert page.index(">default/web<") < page.index(">default/web-1<") < page.index(">default/web-1-b<")
    assert "ImagePullBackOff" in page


async def test_objects_in_the_record_of_the_last_run_are_owned_objects(cluster_of_one: Cluster) -> None:
    settings = cluster_of_one.add(CONFIG_MAP, "settings", is_known=False)
    obj = cluster_of_one.shown.bench.tell(THING)
    path = "/api/v1/namespaces/default/configmaps/settings"
    cluster_of_one.shown.add_run(obj, exchange("GET", path, None, settings))
    assert await cluster_of_one.tree() == [["ConfigMap", "settings", "ready", ""]]


async def test_response_of_a_pod_names_no_owned_object(cluster_of_one: Cluster) -> None:
    forged = cluster_of_one.add(CONFIG_MAP, "settings", is_known=False)
    obj = cluster_of_one.shown.bench.tell(THING)
    path = "/api/v1/namespaces/default/pods/one/proxy/x"
    cluster_of_one.shown.add_run(obj, exchange("GET", path, None, forged))
    assert await cluster_of_one.tree() == []


async def test_scaled_down_replica_set_of_a_role_is_shown(cluster_of_one: Cluster) -> None:
    cluster_of_one.add(REPLICA_SET, "idle", spec={"replicas": 0}, status={"replicas": 0})
    assert await cluster_of_one.tree() == [["ReplicaSet", "idle", "ready", ""]]


async def test_deleted_object_is_not_in_the_tree(cluster_of_one: Cluster) -> None:
    cluster_of_one.add(CONFIG_MAP, "settings")
    absent = {"kind": "Status", "reason": "NotFound", "details": {"name": "settings"}}
    cluster_of_one.api.respond("GET", "/api/v1/namespaces/default/configmaps/settings", absent, 404)
    assert await cluster_of_one.tree() == []


async def test_objects_that_own_each_other_are_shown_once(cluster_of_one: Cluster) -> None:
    cluster_of_one.add(CONFIG_MAP, "a")
    references = [{"uid": "uid-b"}, {"uid": "uid-one"}]
    cluster_of_one.add(CONFIG_MAP, "b", "a", metadata={"ownerReferences": [{"uid": "uid-a"}]})
    cluster_of_one.add(CONFIG_MAP, "a", metadata={"ownerReferences": references})
    assert await cluster_of_one.tree() == [["ConfigMap", "a", "ready", "", ["ConfigMap", "b", "ready", ""]]]


async def test_number_of_owned_objects_is_limited(cluster_of_one: Cluster) -> None:
    for number in range(MAX_OBJECTS + 20):
        cluster_of_one.add(CONFIG_MAP, f"settings-{number:03}")
    view = await cluster_of_one.view()
    assert len(view["owned"]) == MAX_OBJECTS
    assert view["notes"] == [NO_MASK, f"Only {MAX_OBJECTS} owned objects are shown."]


async def test_search_among_many_objects_does_not_block_the_loop(cluster_of_one: Cluster) -> None:
    sources, bench = cluster_of_one.shown.sources, cluster_of_one.shown.bench
    for number in range(5000):
        other = bench.version_of(CONFIG_MAP, f"other-{number}", ownerReferences=[{"uid": "other"}])
        bench.manager.informer_for(CONFIG_MAP).on_watch_event("ADDED", other)
    views = ClusterViews(sources, RecordCache(sources.recorder))
    reading = object_tree._Reading(views, sources.kinds[0], ObjectKey("default", "one"))
    search, turns = asyncio.create_task(reading._find_dependents(bench.version_of(THING, "one"))), 0
    while not search.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(reading.known["other"]) == 5000
    assert turns >= 5


async def test_content_of_secrets_and_config_maps_is_not_read(cluster_of_one: Cluster) -> None:
    encoded = base64.b64encode(PLANTED.encode()).decode()
    kinds, sent = {"secrets": {"password": encoded}, "configmaps": {"text": PLANTED}}, list[str]()
    for gvk, (plural, data) in zip((SECRET, CONFIG_MAP), kinds.items(), strict=True):
        obj = cluster_of_one.add(gvk, f"my-{plural}", data=data)

        async def handler(request: web.Request, obj: RawObject = obj) -> web.Response:
            is_partial = "as=PartialObjectMetadata" in request.headers["Accept"]
            answer = obj if not is_partial else {"kind": "PartialObjectMetadata", "metadata": obj["metadata"]}
            sent.append(json.dumps(answer))
            return web.json_response(answer)

        cluster_of_one.api.handlers["GET", f"/api/v1/namespaces/default/{plural}/my-{plural}"] = handler
    tree = await cluster_of_one.tree()
    assert tree == [["ConfigMap", "my-configmaps", "ready", ""], ["Secret", "my-secrets", "ready", ""]]
    assert not [text for text in sent if PLANTED in text or encoded in text]


@pytest.mark.parametrize("value", [PLANTED, "ab", 42, 123456789, ["first-secret", {"deep": "second-secret"}]])
async def test_sensitive_fields_are_masked_in_the_spec(cluster_of_one: Cluster, value: Any) -> None:
    watch = cluster_of_one.shown.kind.watched.watch
    object.__setattr__(watch, "sensitive", (parse("$.spec.login.password"),))
    cluster_of_one.add(THING, "one", "", spec={"size": 1, "login": {"user": "admin", "password": value}})
    assert (await cluster_of_one.view())["spec"] == [
        "spec:",
        "  size: 1",
        "  login:",
        "    user: admin",
        f"    password: {MASKED}",
    ]


async def test_values_of_secrets_are_masked_in_spec_and_messages(cluster_of_one: Cluster) -> None:
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"p": base64.b64encode(PLANTED.encode()).decode()}}
    obj = cluster_of_one.add(THING, "one", "", spec={"url": f"https://admin:{PLANTED}@db"})
    add_website(cluster_of_one)
    bad = {"conditions": [{"type": "Ready", "status": "False", "reason": "No", "message": f"cannot use {PLANTED}"}]}
    cluster_of_one.add(THING, "other", status=bad)
    cluster_of_one.add(GVK("", "v1", "Event"), "e", "", is_known=False, reason="No", message=f"not {PLANTED}")
    cluster_of_one.shown.add_run(obj, exchange("GET", "/api/v1/namespaces/ns/secrets/s", None, secret))
    view = await cluster_of_one.view()
    assert view["spec"] == ["spec:", f"  url: https://admin:{MASKED}@db"]
    assert view["events"][0]["message"] == f"not {MASKED}"
    assert [each["verdict"]["message"] for each in view["owned"]] == ["", f"cannot use {MASKED}"]
    assert PLANTED not in await cluster_of_one.page()


async def test_messages_of_others_are_not_shown_without_a_record(cluster_of_one: Cluster) -> None:
    bad = {"conditions": [{"type": "Ready", "status": "False", "reason": "No", "message": PLANTED}]}
    cluster_of_one.add(THING, "other", status=bad)
    cluster_of_one.add(GVK("", "v1", "Event"), "e", "", is_known=False, reason="Broken", message=PLANTED)
    view = await cluster_of_one.view()
    assert view["notes"] == [NO_MASK]
    assert (view["events"][0]["reason"], view["events"][0]["message"]) == ("Broken", "")
    assert PLANTED not in await cluster_of_one.page()


async def test_unmaskable_spec_is_not_shown(cluster_of_one: Cluster) -> None:
    """It's nested too deeply for the copy whose fields are masked, but not for the parser."""
    deep: Any = PLANTED
    for _ in range(400):
        deep = [deep]
    cluster_of_one.add(THING, "one", "", spec={})["spec"] = {"deep": deep}
    trouble = (await cluster_of_one.view())["trouble"]
    assert trouble.startswith("The operator cannot mask the secret values: RecursionError")
    assert PLANTED not in await cluster_of_one.page()


async def test_events_are_newest_first_with_count_and_age(cluster_of_one: Cluster) -> None:
    event = GVK("", "v1", "Event")
    old, new = "2026-11-26T10:00:00Z", "2026-11-26T11:00:00.000000Z"
    fields: dict[str, Any] = {"owner": "", "is_known": False, "type": "Warning"}
    cluster_of_one.add(event, "a", reason="Old", count=7, lastTimestamp=old, **fields)
    series = {"count": 3, "lastObservedTime": new}
    cluster_of_one.add(event, "b", reason="New", series=series, **fields)
    found = [(each["reason"], each["count"]) for each in (await cluster_of_one.view())["events"]]
    assert found == [("New", 3), ("Old", 7)]
    page = await cluster_of_one.page()
    assert '<time datetime="2026-11-26T10:00:00Z"' in page
    assert page.index("New") < page.index("Old")


async def test_owned_objects_are_unknown_without_a_successful_run(cluster_of_one: Cluster) -> None:
    """A run that fails early names nothing, and after a restart informers don't know the objects of earlier runs."""
    cluster_of_one.add(CONFIG_MAP, "settings", is_known=False)
    obj = cluster_of_one.shown.bench.tell(THING)
    failed = Ending("failed", Outcome("failed"))
    cluster_of_one.shown.add_run(obj, ending=failed)
    view = await cluster_of_one.view()
    assert (view["owned"], view["knowsOwned"]) == ([], False)
    page = await cluster_of_one.page()
    assert "Unknown: no run of this object has succeeded" in page
    assert ">None.<" not in page.split('id="owned-title"')[1].split("</section>")[0]
    cluster_of_one.add(CONFIG_MAP, "other")
    assert [each["name"] for each in (await cluster_of_one.view())["owned"]] == ["other"]
    assert "There may be others: no run" in await cluster_of_one.page()


async def test_owned_objects_of_the_last_success_stay_known_after_a_failure(cluster_of_one: Cluster) -> None:
    written = cluster_of_one.add(CONFIG_MAP, "settings", is_known=False)
    lost = cluster_of_one.add(CONFIG_MAP, "lost", is_known=False)
    cluster_of_one.add(CONFIG_MAP, "lost", "", is_known=False)
    path = "/api/v1/namespaces/default/configmaps"
    obj = cluster_of_one.shown.bench.tell(THING)
    cluster_of_one.shown.add_run(obj, *(exchange("POST", path, each, each, 201) for each in (written, lost)), ident="1")
    cluster_of_one.shown.add_run(obj, ident="2", ending=Ending("failed", Outcome("failed")))
    view = await cluster_of_one.view()
    assert ([each["name"] for each in view["owned"]], view["knowsOwned"]) == (["settings"], True)
    for number in range(5):  # the record of the success is dropped, but informers know the object now
        cluster_of_one.shown.add_run(obj, ident=f"3{number}", ending=Ending("failed", Outcome("failed")))
    assert (await cluster_of_one.view())["knowsOwned"] is True


async def test_inventory_names_owned_objects_after_a_restart_and_no_others(cluster_of_one: Cluster) -> None:
    objects = tuple(
        InventoryObject(ObjectId("", "configmaps", "default", name), "v1", "ConfigMap", f"uid-{name}")
        for name in ("settings", "foreign", "deleted")
    )
    cluster_of_one.add(CONFIG_MAP, "settings", is_known=False)
    cluster_of_one.add(CONFIG_MAP, "foreign", "", is_known=False)
    absent = {"kind": "Status", "reason": "NotFound", "details": {"name": "deleted"}}
    cluster_of_one.api.respond("GET", "/api/v1/namespaces/default/configmaps/deleted", absent, 404)
    annotations = {INVENTORY_ANNOTATION: Inventory(objects=objects, by="web").to_text()}
    obj = cluster_of_one.add(THING, "one", "", spec={"size": 1}, metadata={"annotations": annotations})
    cluster_of_one.shown.add_run(obj, ending=Ending("failed", Outcome("failed")))
    view = await cluster_of_one.view()
    assert ([each["name"] for each in view["owned"]], view["knowsOwned"]) == (["settings"], True)


async def test_object_without_owned_objects_has_none_after_a_success(cluster_of_one: Cluster) -> None:
    cluster_of_one.shown.add_run(cluster_of_one.shown.bench.tell(THING))
    assert '<p class="empty">None.</p>' in (await cluster_of_one.page()).split('id="owned-title"')[1]


@pytest.mark.parametrize(
    ("path", "note"),
    [
        ("/apis/apps/v1/namespaces/default/replicasets", "list ReplicaSet objects in default"),
        ("/api/v1/namespaces/default/pods", "list Pod objects in default"),
        ("/api/v1/namespaces/default/events", "list Event objects in default"),
    ],
)
async def test_missing_permission_is_a_note(cluster_of_one: Cluster, path: str, note: str) -> None:
    add_website(cluster_of_one)
    cluster_of_one.forbid(path)
    view = await cluster_of_one.view()
    assert f"The operator is not permitted to {note} (Forbidden)." in view["notes"]
    assert view["owned"][0]["name"] == "web"
    assert f"not permitted to {note}" in await cluster_of_one.page()


async def test_unreadable_owned_object_is_shown_with_the_reason(cluster_of_one: Cluster) -> None:
    cluster_of_one.add(CONFIG_MAP, "settings")
    cluster_of_one.forbid("/api/v1/namespaces/default/configmaps/settings")
    reason = "The operator is not permitted to get it (Forbidden)."
    assert await cluster_of_one.tree() == [["ConfigMap", "settings", "unknown", reason]]
    assert PLANTED not in await cluster_of_one.page()


async def test_slow_api_server_does_not_delay_the_page(
    cluster_of_one: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_tree, "READ_SECONDS", 3)
    add_website(cluster_of_one)
    forever = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await forever.wait()
        return web.json_response({})

    cluster_of_one.api.handlers["GET", "/api/v1/namespaces/default/pods"] = hang

    def lacks_only_pods(view: Any) -> bool:
        names = [[each["name"] for each in node["owned"]] for node in view["owned"]]
        note = "The operator cannot list Pod objects in default (Timeout)."
        return names == [["web-1"]] and bool(note in view["notes"])

    async with asyncio.timeout(120):  # a pause of this process may end a view before its Pods are requested
        await eventually(cluster_of_one.view, lacks_only_pods, 60, "the view lacks only the Pods")
    forever.set()


async def test_part_that_updates_itself_sends_no_requests(
    cluster_of_one: Cluster,
) -> None:
    async with TestClient(TestServer(dashboard_application(cluster_of_one.shown.sources, OPEN))) as client:

        async def text(query: str = "") -> str:
            return await (await client.get(f"{PATH}{query}")).text()

        assert "Reload the page" in await text("?part=polled")
        assert "size: 1" in await text()
        cluster_of_one.add(THING, "one", "", spec={"size": 2})
        assert "size: 1" in await text("?part=polled")
        assert "size: 2" in await text()


async def test_earlier_state_is_shown_with_its_age_while_the_api_server_is_unreachable(
    cluster_of_one: Cluster,
) -> None:
    cluster_of_one.add(CONFIG_MAP, "settings")
    async with TestClient(TestServer(dashboard_application(cluster_of_one.shown.sources, OPEN))) as client:

        async def view() -> Any:
            return (await (await client.get(f"{PATH}?format=json")).json())["cluster"]

        first = await view()
        assert (first["trouble"], first["asOf"]) == ("", cluster_of_one.shown.bench.clock.now())
        assert cluster_of_one.api.stop is not None
        await cluster_of_one.api.stop()
        cluster_of_one.shown.bench.clock.advance(600)
        trouble = "The operator cannot get this Thing (Unreachable)."
        assert await view() == first | {"trouble": trouble}
        page = " ".join((await (await client.get(PATH)).text()).split())
        assert f"{trouble}</strong> Owned objects, Events, and spec are shown as they were" in page
        assert ">default/settings<" in page


@pytest.mark.parametrize("hostile", [HOSTILE, "x" * 5000, RIGHT_TO_LEFT, "ñ\u0000\x1b[31m\n\ttab"])
async def test_strings_of_objects_and_events_are_escaped(cluster_of_one: Cluster, hostile: str) -> None:
    bad = {"conditions": [{"type": "Ready", "status": "False", "reason": hostile, "message": hostile}]}
    obj = cluster_of_one.add(THING, "one", "", spec={hostile: hostile, "list": [hostile]})
    cluster_of_one.add(THING, "other", status=bad)
    event = {"reason": hostile, "message": hostile, "type": hostile}
    cluster_of_one.add(GVK("", "v1", "Event"), "e", "", is_known=False, **event)
    cluster_of_one.shown.add_run(obj)
    page = await cluster_of_one.page()
    check_policy(page)
    assert hostile.strip("\0")[:4] in html.unescape(page)
    assert not [tag for tag, attributes in Elements(page).found if tag == "img" or (tag == "script" and not attributes)]


async def test_text_of_others_cannot_change_the_direction_of_the_page(cluster_of_one: Cluster) -> None:
    bad = {"conditions": [{"type": "Ready", "status": "False", "reason": RIGHT_TO_LEFT, "message": RIGHT_TO_LEFT}]}
    cluster_of_one.add(THING, "other", status=bad)
    event = {"reason": RIGHT_TO_LEFT, "message": RIGHT_TO_LEFT}
    cluster_of_one.add(GVK("", "v1", "Event"), "e", "", is_known=False, **event)
    cluster_of_one.shown.add_run(cluster_of_one.shown.bench.tell(THING))
    page = await cluster_of_one.page()
    positions = [index for index in range(len(page)) if page.startswith(RIGHT_TO_LEFT, index)]
    assert len(positions) == 4
    for index in positions:
        opened, closed = (
            max(page.rfind(tag, 0, index) for tag in tags) for tags in (("<bdi>", "<td"), ("</bdi>", "</td"))
        )
        assert opened > closed, page[index - 200 : index]


async def test_long_message_is_one_line_with_the_whole_text_on_demand(cluster_of_one: Cluster) -> None:
    message = "the volume is not attached " * 20
    bad = {"conditions": [{"type": "Ready", "status": "False", "reason": "No", "message": message}]}
    obj = cluster_of_one.add(THING, "one", "", spec={})
    cluster_of_one.add(THING, "other", status=bad)
    cluster_of_one.shown.add_run(obj)
    page = await cluster_of_one.page()
    assert f"<summary><bdi>{f'No: {message}'[:200]}</bdi></summary>" in page
    assert f"<p><bdi>No: {message}</bdi></p></details>" in page


async def test_page_shows_proposed_deletions_with_the_command_that_confirms_them(cluster_of_one: Cluster) -> None:
    metadata = primary(entry("a", asks=True), entry(HOSTILE), entry("kept", since=0), proposed="a", stable="s")[
        "metadata"
    ]
    cluster_of_one.add(THING, "one", "", metadata={"annotations": metadata["annotations"]})
    view = await cluster_of_one.view()
    assert (view["proposed"], view["obsolete"]) == (["Service ns/a"], [f"Service ns/{HOSTILE}"])
    assert view["confirm"].startswith(
        "kubectl annotate --overwrite thing.test.rolecall.dev one -n default rolecall.dev/"
    )
    page = await cluster_of_one.page()
    assert f">{view['confirm']}<" in page
    assert HOSTILE not in page
    check_policy(page)


async def test_page_shows_nothing_as_obsolete_before_it_is_known_whether_a_person_must_confirm(
    cluster_of_one: Cluster,
) -> None:
    metadata = primary(entry("a"), proposed="")["metadata"]
    cluster_of_one.add(THING, "one", "", metadata={"annotations": metadata["annotations"]})
    view = await cluster_of_one.view()
    assert (view["proposed"], view["obsolete"], view["confirm"]) == ([], [], "")
    assert "No longer needed" not in await cluster_of_one.page()


async def test_page_names_the_runs_that_deleted_something(cluster_of_one: Cluster) -> None:
    obj = cluster_of_one.shown.bench.tell(THING)
    for ident, deleted in (("1", ("Service ns/a", "Service ns/b")), ("2", ())):
        ending = Ending("succeeded", Outcome("successful"), pruning=Pruning(texts={"deleted": deleted}))
        cluster_of_one.shown.add_run(obj, ident=ident, ending=ending)
    [deletion] = (await cluster_of_one.shown.json(PATH))["deletions"]
    assert (deletion["run"], deletion["objects"]) == ("1", 2)
    page = await cluster_of_one.page()
    assert "2 objects were deleted after the" in page
    assert f'href="{run_path(kind_id(THING), "default", "one", "1")}"' in page
