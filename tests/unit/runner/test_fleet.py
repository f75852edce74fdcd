"""The objects of the watched kinds, read from an API server: pages, scopes, kinds that can't be read."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.kube.errors import ApiError, UnreachableError
from rolecall.kube.failures import State
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.config.watches import WatchedKind
from rolecall.runner.fleet import is_kind, object_of, read_fleet, served_kinds
from tests.unit.kube.conftest import serving
from tests.unit.runner.reconcile.test_proposals import entry, primary

TEAM = GVK("example.com", "v1", "Team")
SITE = GVK("example.com", "v1", "Site")
NOW = datetime(2026, 11, 28, 8, 0, tzinfo=UTC).timestamp()
VERBS = ["get", "list", "watch"]
RESOURCES = [
    {"name": "teams", "kind": "Team", "namespaced": False, "verbs": VERBS},
    {"name": "teams/status", "kind": "Team", "namespaced": False, "verbs": ["get"]},
    {"name": "sites", "kind": "Site", "namespaced": True, "verbs": VERBS},
    {"name": "sites/status", "kind": "Site", "namespaced": True, "verbs": ["get"]},
    {"name": "notes", "kind": "Note", "namespaced": True, "verbs": VERBS},
]
GROUPS = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {"name": "example.com"},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {
                            "resource": plural,
                            "responseKind": {"kind": kind},
                            "scope": scope,
                            "verbs": VERBS,
                            "subresources": [
                                {"subresource": name, "responseKind": {"kind": kind}, "verbs": ["get"]}
                                for name in subresources
                            ],
                        }
                        for plural, kind, scope, subresources in (
                            ("teams", "Team", "Cluster", ["status"]),
                            ("sites", "Site", "Namespaced", ["status"]),
                            ("notes", "Note", "Namespaced", []),
                        )
                    ],
                }
            ],
        }
    ],
}


def condition(kind: str, status: str, reason: str, message: str = "", at: str = "07:42") -> dict[str, str]:
    time = f"2026-11-28T{at}:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


FAILED = condition("Failure", "True", "Failed", "Task 'Set it': no quota")
SUCCESSFUL = condition("Successful", "True", "Successful")


def obj(kind: str, name: str, *conditions: dict[str, Any], namespace: str = "", **metadata: Any) -> RawObject:
    scope = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **scope, "creationTimestamp": "2026-11-25T08:00:00Z", **metadata}
    whole = {"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata}
    return {**whole, "status": {"conditions": list(conditions)}}


class FakeApi:
    """Serves lists of objects by path, in pages of ``limit``; a status instead of a list is an error."""

    def __init__(self) -> None:
        self.lists: dict[str, list[RawObject] | int] = {}
        self.paths: list[str] = []
        self.expired = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request."""
        if request.path == "/apis/example.com/v1":
            return web.json_response({"resources": RESOURCES})
        if request.path in ("/api", "/apis", "/version"):
            return web.json_response(GROUPS if request.path == "/apis" else {"versions": ["v1"]})
        self.paths.append(request.path)
        found = self.lists.get(request.path, 404)
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        if start and self.expired:
            self.expired -= 1
            found = 410
        if isinstance(found, int):
            body = {"kind": "Status", "message": f"can't list {request.path.split('/')[-1]}", "reason": "Forbidden"}
            return web.json_response(body, status=found)
        more = {"continue": str(start + limit)} if start + limit < len(found) else {}
        return web.Response(text=json.dumps({"metadata": more, "items": found[start : start + limit]}))


@pytest.fixture
async def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[Client]:
    async with serving(api.handle) as url, Client(Configuration(host=url)) as client:
        yield client


TEAMS, SITES = "/apis/example.com/v1/teams", "/apis/example.com/v1/sites"


async def test_failing_objects_are_first_and_grouped(api: FakeApi, client: Client) -> None:
    api.lists[TEAMS] = [
        obj("Team", "audit", SUCCESSFUL),
        *(obj("Team", name, FAILED) for name in ("web", "search")),
        obj("Team", "docs", condition("Failure", "True", "Failed", "Task 'Name it': taken")),
    ]
    fleet = await read_fleet(client, [WatchedKind(TEAM)], (), NOW)
    assert [each.state.key.name for each in fleet.objects] == ["search", "web", "docs", "audit"]
    assert [(each.message, len(each.keys), each.total) for each in fleet.groups] == [
        ("Set it: no quota", 2, 4),
        ("Name it: taken", 1, 4),
    ]
    assert fleet.problems == ()


async def test_all_pages_are_read(api: FakeApi, client: Client) -> None:
    api.lists[TEAMS] = [obj("Team", f"team-{number:04}", FAILED) for number in range(1234)]
    api.expired = 1
    fleet = await read_fleet(client, [WatchedKind(TEAM)], (), NOW)
    assert len(fleet.objects) == 1234
    assert [len(each.keys) for each in fleet.groups] == [1234]


async def test_objects_of_cluster_scoped_kinds_are_read_with_a_namespace(api: FakeApi, client: Client) -> None:
    api.lists[TEAMS] = [obj("Team", "audit")]
    for name in ("a", "b"):
        api.lists[f"/apis/example.com/v1/namespaces/{name}/sites"] = [obj("Site", "one", namespace=name)]
    fleet = await read_fleet(client, [WatchedKind(TEAM), WatchedKind(SITE)], ("a", "b"), NOW)
    assert {each.state.key for each in fleet.objects} == {
        ObjectKey("", "audit"),
        ObjectKey("a", "one"),
        ObjectKey("b", "one"),
    }
    assert api.paths.count(TEAMS) == 1


async def test_kinds_that_cannot_be_listed_are_problems_and_others_are_shown(api: FakeApi, client: Client) -> None:
    api.lists = {TEAMS: 403, SITES: [obj("Site", "one", SUCCESSFUL, namespace="a")]}
    unknown = GVK("example.com", "v1", "Cart")
    fleet = await read_fleet(client, [WatchedKind(TEAM), WatchedKind(SITE), WatchedKind(unknown)], (), NOW)
    assert [each.state.key.name for each in fleet.objects] == ["one"]
    forbidden, missing = fleet.problems
    assert (forbidden.gvk, forbidden.reason, forbidden.is_forbidden) == (TEAM, "can't list teams", True)
    assert (missing.gvk, missing.is_forbidden) == (unknown, False)
    assert "is its CustomResourceDefinition installed?" in missing.reason


async def test_rejected_credentials_are_one_error(api: FakeApi, client: Client) -> None:
    api.lists = {TEAMS: 401, SITES: 401}
    with pytest.raises(ApiError, match="401"):
        await read_fleet(client, [WatchedKind(TEAM), WatchedKind(SITE)], (), NOW)


async def test_unreachable_api_server_is_one_error(unused_tcp_port: int) -> None:
    async with Client(Configuration(host=f"http://127.0.0.1:{unused_tcp_port}")) as client:
        with pytest.raises(UnreachableError):
            await read_fleet(client, [WatchedKind(TEAM)], (), NOW)


async def test_objects_that_the_selector_does_not_match_are_left_out(api: FakeApi, client: Client) -> None:
    api.lists[TEAMS] = [obj("Team", "one", labels={"tier": "a"}), obj("Team", "two", labels={"tier": "b"})]
    kind = WatchedKind(TEAM, LabelSelector.compile({"matchLabels": {"tier": "b"}}))
    fleet = await read_fleet(client, [kind], (), NOW)
    assert [each.state.key.name for each in fleet.objects] == ["two"]


async def test_kinds_of_the_cluster_are_those_with_a_condition_of_an_operator(api: FakeApi, client: Client) -> None:
    foreign = {"type": "Ready", "status": "False", "reason": "Elsewhere"}
    api.lists = {TEAMS: [obj("Team", "one", SUCCESSFUL), obj("Team", "new")], SITES: [obj("Site", "a", foreign)]}
    kinds = await served_kinds(client)
    assert {kind.gvk for kind in kinds} == {TEAM, SITE}
    fleet = await read_fleet(client, kinds, (), NOW, only_operated=True)
    assert fleet.kinds == (TEAM,)
    assert {each.state.key.name for each in fleet.objects} == {"one", "new"}


@pytest.mark.parametrize(
    ("period", "annotation", "completed", "due"),
    [
        (None, None, "07:55", None),
        (3600.0, None, "07:55", "08:55"),
        (3600.0, "30m", "07:55", "08:25"),
        (3600.0, "0s", "07:55", None),
        (3600.0, "often", "07:55", None),
        (60.0, None, "07:52", "08:01"),  # the runs since then changed nothing in the status
        (3600.0, None, "06:30", "07:30"),  # overdue
    ],
)
def test_next_run_follows_from_the_period(
    period: float | None, annotation: str | None, completed: str, due: str | None
) -> None:
    result = {"ansibleResult": {"completion": f"2026-11-28T{completed}:00Z"}}
    running = condition("Running", "True", "Successful") | result
    annotations = {"ansible.sdk.operatorframework.io/reconcile-period": annotation} if annotation else {}
    kind = WatchedKind(TEAM, reconcile_period_seconds=period)
    found = object_of(obj("Team", "one", running, SUCCESSFUL, annotations=annotations), kind, NOW).next_run
    assert (found and datetime.fromtimestamp(found, UTC).strftime("%H:%M")) == due


def test_failing_object_has_no_known_next_run() -> None:
    failed = FAILED | {"ansibleResult": {"completion": "2026-11-28T07:55:00Z"}}
    assert object_of(obj("Team", "one", failed), WatchedKind(TEAM, reconcile_period_seconds=60.0), NOW).next_run is None


def test_state_of_a_kind_whose_status_the_operator_does_not_write_is_its_own() -> None:
    raw = {"metadata": {"name": "one", "generation": 1}, "spec": {"replicas": 2}, "status": {"replicas": 1}}
    kind = WatchedKind(GVK("apps", "v1", "ReplicaSet"), manage_status=False)
    state = object_of(raw, kind, NOW).state
    assert (state.gvk, state.state) == (kind.gvk, State.NOT_READY)


@pytest.mark.parametrize("conditions", [[SUCCESSFUL], [FAILED]])
def test_proposed_deletions_are_read_from_the_inventory(conditions: list[dict[str, Any]]) -> None:
    annotations = primary(entry("a"), proposed="a")["metadata"]["annotations"]
    found = object_of(obj("Team", "one", *conditions, annotations=annotations), WatchedKind(TEAM), NOW)
    assert found.proposal is not None
    assert [str(each) for each in found.proposal.objects] == ["Service ns/a"]
    assert object_of(obj("Team", "one", *conditions), WatchedKind(TEAM), NOW).proposal is None


@pytest.mark.parametrize("text", ["Team", "team", "teams", "teams.example.com", "Team.v1.example.com"])
def test_kind_is_named_as_for_kubectl(text: str) -> None:
    assert is_kind(text, TEAM)
    assert not is_kind(text, SITE)
