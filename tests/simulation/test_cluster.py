"""What the differential test can't compare: versions, snapshots, compaction, removed kinds, copies, and determinism."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from rolecall.kube.discovery import ACCEPT, read_resource_list
from rolecall.kube.references import RawObject
from tests.simulation.cluster import Answer, SimulatedApiServer, Watch
from tests.simulation.kinds import BUILT_IN, CONFIG_MAP, EVENT, GADGET, LEASE, NEW_EVENT, POD, THING, ServedKind

THINGS = "/apis/example.com/v1/namespaces/default/things"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
MOST_MICROSECONDS = 1000.0
"""Ten times the goal: the machine of a test may be slow and busy."""


@pytest.fixture
def server() -> SimulatedApiServer:
    """Return a server whose time stands still."""
    return SimulatedApiServer(lambda: 1_790_000_000.0)


def thing(name: str, **metadata: Any) -> RawObject:
    """Return a Thing."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": name, **metadata},
        "spec": {"size": 1},
    }


def create(server: SimulatedApiServer, name: str, **metadata: Any) -> RawObject:
    """Create a Thing and return it."""
    answer = server.handle("POST", THINGS, body=thing(name, **metadata))
    assert answer.status == 201, answer
    return answer.body


def watch(server: SimulatedApiServer, path: str = THINGS, **query: str) -> Watch:
    """Start a watch from the current version, or from another one."""
    started = server.watch(path, {"resourceVersion": str(server.version), **query})
    assert isinstance(started, Watch)
    return started


def summary(events: list[RawObject]) -> list[tuple[str, str]]:
    """Return the type and the object's name of each event."""
    return [(event["type"], event["object"].get("metadata", {}).get("name", "")) for event in events]


def reference(owner: RawObject, *, blocks: bool = False) -> RawObject:
    """Return a reference to an owner."""
    metadata = owner["metadata"]
    found = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return found | ({"blockOwnerDeletion": True} if blocks else {})


def test_equal_requests_make_equal_servers() -> None:
    """The same requests give the same uids, names, versions, and times: a seed repeats a history."""

    def history() -> list[tuple[int, str, RawObject]]:
        numbers = count(1_790_000_000)
        server = SimulatedApiServer(lambda: float(next(numbers)))
        create(server, "", generateName="made-")
        create(server, "b")
        server.handle("DELETE", f"{THINGS}/b")
        return server.history

    assert history() == history()


def test_changes_of_a_response_or_request_do_not_change_the_storage(server: SimulatedApiServer) -> None:
    """A caller may change whatever it receives, and what it has sent."""
    body = thing("a", labels={"app": "x"})
    events = watch(server)
    returned = server.handle("POST", THINGS, body=body).body
    listed = server.handle("GET", THINGS).body["items"][0]
    for obj in (body, returned, listed, events.take()[0]["object"], server.objects(THING.gvk)[0]):
        obj["metadata"]["labels"]["app"] = "changed"
        obj["spec"]["size"] = 2
    assert server.object(THING.gvk, "default", "a") == server.handle("GET", f"{THINGS}/a").body
    assert server.handle("GET", f"{THINGS}/a").body["spec"] == {"size": 1}
    assert server.handle("GET", f"{THINGS}/a").body["metadata"]["labels"] == {"app": "x"}


def test_versions_count_all_writes_and_nothing_else(server: SimulatedApiServer) -> None:
    """Reads, rejected writes, dry runs, and writes without a difference have no version and no event."""
    create(server, "a")
    version, events = server.version, watch(server)
    server.handle("GET", THINGS)
    server.handle("POST", THINGS, body=thing("a"))
    server.handle("POST", THINGS, {"dryRun": "All"}, thing("b"))
    server.handle("DELETE", f"{THINGS}/a", body={"dryRun": ["All"]})
    server.handle("PATCH", f"{THINGS}/a", body={"spec": {"size": 1}}, content_type=MERGE)
    assert (server.version, events.take()) == (version, [])
    server.handle("PATCH", f"{THINGS}/a", body={"spec": {"size": True}}, content_type=MERGE)
    assert (server.version, summary(events.take())) == (version + 1, [("MODIFIED", "a")])


def test_history_and_callbacks_follow_each_change(server: SimulatedApiServer) -> None:
    """Watches wake up by a callback, which already finds the change in the history."""
    seen: list[tuple[int, str]] = []
    server.on_change.append(lambda: seen.append(server.history[-1][:2]))
    create(server, "a", finalizers=["example.com/one"])
    server.handle("DELETE", f"{THINGS}/a")
    server.handle("PATCH", f"{THINGS}/a", body={"metadata": {"finalizers": None}}, content_type=MERGE)
    assert [kind for _, kind in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [version for version, _ in seen] == list(range(server.version - 2, server.version + 1))


def test_watch_reports_objects_that_stop_matching_as_deleted(server: SimulatedApiServer) -> None:
    """A selector decides by the object before and after a change."""
    events = watch(server, labelSelector="app=x")
    create(server, "a", labels={"app": "y"})
    for label in ("x", "x", "y"):
        body = {"metadata": {"labels": {"app": label, "n": str(server.version)}}}
        server.handle("PATCH", f"{THINGS}/a", body=body, content_type=MERGE)
    server.handle("DELETE", f"{THINGS}/a")
    assert summary(events.take()) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_watch_without_version_begins_with_all_objects(server: SimulatedApiServer) -> None:
    """An object is in the first events or in later ones, never in both."""
    create(server, "a")
    events = watch(server, resourceVersion="0")
    create(server, "b")
    assert summary(events.take()) == [("ADDED", "a"), ("ADDED", "b")]
    assert events.take() == []


def test_bookmark_has_the_current_version_after_all_events(server: SimulatedApiServer) -> None:
    """A client that continues from a bookmark misses nothing and gets nothing twice."""
    events = watch(server)
    create(server, "a")
    events.bookmark()
    taken = events.take()
    assert summary(taken) == [("ADDED", "a"), ("BOOKMARK", "")]
    bookmark = taken[1]["object"]
    assert bookmark == {
        "kind": "Thing",
        "apiVersion": "example.com/v1",
        "metadata": {"resourceVersion": str(server.version)},
    }
    assert events.take() == []


def test_compaction_expires_old_watches_and_pages(server: SimulatedApiServer) -> None:
    """Whoever hasn't seen a compacted change gets 410 Expired, and must list again."""
    for name in ("a", "b", "c"):
        create(server, name)
    behind, current = watch(server, resourceVersion=str(server.version - 1)), watch(server)
    token = server.handle("GET", THINGS, {"limit": "1"}).body["metadata"]["continue"]
    old = server.version - 1
    create(server, "d")
    server.compact(server.version - 1)
    assert summary(current.take()) == [("ADDED", "d")]
    for expired in (behind, watch(server, resourceVersion=str(old))):
        [event] = expired.take()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert expired.is_expired
        assert expired.take() == []
    assert server.handle("GET", THINGS, {"limit": "1", "continue": token}).status == 200
    server.compact(server.version)
    page = server.handle("GET", THINGS, {"limit": "1", "continue": token})
    assert (page.status, page.body["reason"]) == (410, "Expired")


def test_pages_show_one_version(server: SimulatedApiServer) -> None:
    """Changes between two pages are invisible in the second one."""
    for name in ("a", "b", "c"):
        create(server, name)
    first = server.handle("GET", THINGS, {"limit": "2"}).body
    create(server, "bb")
    server.handle("DELETE", f"{THINGS}/c")
    rest = server.handle("GET", THINGS, {"limit": "2", "continue": first["metadata"]["continue"]}).body
    assert [item["metadata"]["name"] for item in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert first["metadata"]["resourceVersion"] == rest["metadata"]["resourceVersion"]


def test_restore_returns_to_an_earlier_state_with_its_version(server: SimulatedApiServer) -> None:
    """Versions are used again, uids are not; watches end, and a later version gets no events up to itself."""
    create(server, "a")
    snapshot, version = server.snapshot(), server.version
    before = create(server, "b")
    server.handle("DELETE", f"{THINGS}/a")
    events, lost = watch(server), server.version
    server.restore(snapshot)
    assert events.is_closed
    assert server.version == version
    assert [obj["metadata"]["name"] for obj in server.objects(THING.gvk)] == ["a"]
    late = watch(server, resourceVersion=str(lost))
    again = create(server, "b")
    assert again["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    create(server, "c")
    assert late.take() == []
    create(server, "d")
    assert summary(late.take()) == [("ADDED", "d")]
    server.restore(snapshot)
    assert [obj["metadata"]["name"] for obj in server.objects(THING.gvk)] == ["a"]


def test_kinds_come_and_go(server: SimulatedApiServer) -> None:
    """A removed kind deletes its objects, ends its watches, and leaves discovery; a 404 then names no object."""
    create(server, "a")
    things, maps = watch(server), watch(server, CONFIG_MAPS)
    server.remove_kind(THING.gvk)
    assert summary(things.take()) == [("DELETED", "a")]
    assert things.is_closed
    assert not maps.is_closed
    missing = server.handle("GET", f"{THINGS}/a")
    assert (missing.status, missing.body["details"]) == (404, {})
    server.add_kind(THING)
    assert server.handle("GET", f"{THINGS}/a").body["details"]["name"] == "a"


def test_discovery_lists_kinds_in_both_forms(server: SimulatedApiServer) -> None:
    """The client finds scope, verbs, and subresources of a kind."""
    found = read_resource_list("example.com", "v1", server.handle("GET", "/apis/example.com/v1").body)
    assert {(each.gvk, each.namespaced, each.subresources) for each in found} == {
        (THING.gvk, True, frozenset({"status"})),
        (GADGET.gvk, False, frozenset({"status"})),
    }
    groups = server.handle("GET", "/apis", accept=ACCEPT).body
    assert groups["kind"] == "APIGroupDiscoveryList"
    assert [each["metadata"]["name"] for each in groups["items"]] == [
        "events.k8s.io",
        "coordination.k8s.io",
        "example.com",
    ]
    assert server.handle("GET", "/api", accept=ACCEPT).body["items"][0]["metadata"] == {}
    assert server.handle("GET", "/apis/unknown.example.com/v1").status == 404


def test_both_versions_of_events_share_their_objects(server: SimulatedApiServer) -> None:
    """An Event of the core group is read in the other group with that group's fields, and watched there."""
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    events = watch(server, path)
    body = {"metadata": {"name": "a"}, "involvedObject": {"name": "x", "namespace": "default"}, "message": "text"}
    server.handle("POST", "/api/v1/namespaces/default/events", body=body)
    [event] = events.take()
    assert event["object"]["note"] == "text"
    assert event["object"]["regarding"]["name"] == "x"
    assert server.object(NEW_EVENT, "default", "a") == event["object"]
    assert (server.object(EVENT, "default", "a") or {})["message"] == "text"


def test_pod_stays_until_its_grace_period_is_zero(server: SimulatedApiServer) -> None:
    """A scheduled pod is only marked; the kubelet deletes it with a grace period of 0 s. Others are deleted."""
    for name, spec in (("a", {"nodeName": "node"}), ("b", {})):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        assert server.handle("POST", PODS, body=body).status == 201
        server.handle("DELETE", f"{PODS}/{name}")
    pod = server.object(POD, "default", "a")
    assert pod is not None
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert server.object(POD, "default", "b") is None
    server.handle("DELETE", f"{PODS}/a", body={"gracePeriodSeconds": 0})
    assert server.object(POD, "default", "a") is None


def test_schema_of_a_kind_rejects_objects_and_statuses() -> None:
    """A CRD's schema also applies to the subresource status, and to a patch."""

    def schema(obj: RawObject) -> list[tuple[str, str]]:
        small = (obj.get("status") or {}).get("small", 0)
        return [("status.small", "should be less than or equal to 10")] if small > 10 else []

    server = SimulatedApiServer(lambda: 0.0, [*BUILT_IN, ServedKind(THING.gvk, schema=schema)])
    create(server, "a")
    answers = [
        server.handle("PATCH", f"{THINGS}/a/status", body={"status": {"small": small}}, content_type=MERGE)
        for small in (10, 11)
    ]
    assert [answer.status for answer in answers] == [200, 422]
    assert answers[1].body["details"]["causes"][0]["field"] == "status.small"


def settle(server: SimulatedApiServer) -> Iterator[int]:
    """Yield the version after each step of the controllers that changed something."""
    while server.collect_garbage() or server.finish_namespaces():
        yield server.version


@pytest.mark.parametrize(
    ("policy", "left"),
    [("Background", ["shared"]), ("Foreground", ["shared"]), ("Orphan", ["dependent", "shared"])],
)
def test_garbage_collector_takes_one_step_at_a_time(server: SimulatedApiServer, policy: str, left: list[str]) -> None:
    """Dependents are deleted or released, each by one write, in the same order every time."""
    owner, other = create(server, "owner"), create(server, "other")
    for name, owners in (("dependent", [owner]), ("shared", [owner, other])):
        references = [reference(each, blocks=True) for each in owners]
        create(server, name, ownerReferences=references)
    server.handle("DELETE", f"{THINGS}/owner", body={"propagationPolicy": policy})
    before = server.version
    steps = list(settle(server))
    assert steps == list(range(before + 1, server.version + 1))
    found = {obj["metadata"]["name"]: obj["metadata"].get("ownerReferences", []) for obj in server.objects(THING.gvk)}
    assert found.pop("other") == []
    assert sorted(found) == left
    assert found["shared"] == [reference(other, blocks=True)]


def test_garbage_collector_keeps_dependents_of_unknown_kinds(server: SimulatedApiServer) -> None:
    """Whether an owner exists is unknown as long as its kind isn't served."""
    unknown = {"apiVersion": "unknown.example.com/v1", "kind": "Unknown", "name": "x", "uid": "y"}
    create(server, "a", ownerReferences=[unknown])
    create(server, "b", ownerReferences=[{**unknown, "apiVersion": "v1", "kind": "ConfigMap"}])
    assert list(settle(server))
    assert [obj["metadata"]["name"] for obj in server.objects(THING.gvk)] == ["a"]


def test_namespace_ends_when_its_content_has_ended(server: SimulatedApiServer) -> None:
    """Its objects are deleted, new ones rejected, and a finalizer holds it."""
    server.handle("POST", "/api/v1/namespaces", body={"metadata": {"name": "other"}})
    path = THINGS.replace("default", "other")
    server.handle("POST", path, body=thing("a", finalizers=["example.com/one"]))
    server.handle("POST", path, body=thing("b"))
    server.handle("DELETE", "/api/v1/namespaces/other")
    rejected = server.handle("POST", path, body=thing("c"))
    assert (rejected.status, rejected.body["reason"]) == (403, "Forbidden")
    assert list(settle(server))
    assert [obj["metadata"]["name"] for obj in server.objects(THING.gvk)] == ["a"]
    server.handle("PATCH", f"{path}/a", body={"metadata": {"finalizers": None}}, content_type=MERGE)
    assert list(settle(server))
    assert server.handle("GET", "/api/v1/namespaces/other").status == 404


@pytest.mark.parametrize(
    ("method", "content_type", "status"),
    [
        ("PATCH", "application/strategic-merge-patch+json", 501),
        ("PATCH", "text/plain", 415),
        ("POST", "text/plain", 415),
    ],
)
def test_requests_that_are_not_simulated_are_errors(
    server: SimulatedApiServer, method: str, content_type: str, status: int
) -> None:
    """The simulation never answers such a request as if it had done something."""
    path = CONFIG_MAPS if method == "POST" else f"{CONFIG_MAPS}/a"
    server.handle("POST", CONFIG_MAPS, body={"metadata": {"name": "a"}})
    assert server.handle(method, path, body={"metadata": {"name": "a"}}, content_type=content_type).status == status
    assert server.watch(CONFIG_MAPS, {"sendInitialEvents": "true"}).status == 501  # type: ignore[union-attr] # an Answer
    assert server.objects(CONFIG_MAP)[0]["metadata"]["resourceVersion"] == str(server.version)


def test_lease_is_updated_only_at_its_version(server: SimulatedApiServer) -> None:
    """Two candidates never both take a Lease."""
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    made = server.handle("POST", path, body={"metadata": {"name": "a"}, "spec": {"holderIdentity": "one"}}).body
    answers = [
        server.handle("PUT", f"{path}/a", body={**made, "spec": {"holderIdentity": holder}})
        for holder in ("two", "three")
    ]
    assert [answer.status for answer in answers] == [200, 409]
    assert (server.object(LEASE, "default", "a") or {})["spec"] == {"holderIdentity": "two"}


def test_requests_are_fast(server: SimulatedApiServer) -> None:
    """A history has thousands of requests."""
    create(server, "a")
    started = time.process_time()
    for number in range(100):
        answer: Answer = server.handle("PATCH", f"{THINGS}/a", body={"spec": {"size": number}}, content_type=MERGE)
        assert answer.status == 200
    assert (time.process_time() - started) / 100 * 1e6 < MOST_MICROSECONDS


def applied(
    server: SimulatedApiServer, manager: str, data: dict[str, str], annotations: dict[str, str], *, force: bool = False
) -> Answer:
    """Apply the ConfigMap ``a`` on the server side."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "annotations": annotations},
        "data": data,
    }
    query = {"fieldManager": manager} | ({"force": "true"} if force else {})
    return server.handle("PATCH", f"{CONFIG_MAPS}/a", query, body, content_type="application/apply-patch+yaml")


def test_apply_drops_only_what_its_manager_no_longer_sends(server: SimulatedApiServer) -> None:
    assert applied(server, "one", {"x": "1", "y": "1"}, {"from": "one"}).status == 201
    assert applied(server, "two", {"z": "2"}, {"kept": "yes"}).status == 200
    answer = applied(server, "one", {"x": "1"}, {})
    assert answer.body["data"] == {"x": "1", "z": "2"}
    assert answer.body["metadata"]["annotations"] == {"kept": "yes"}
    assert applied(server, "one", {"x": "1"}, {}).body == answer.body


def test_apply_takes_a_field_of_another_manager_only_by_force(server: SimulatedApiServer) -> None:
    applied(server, "one", {"x": "1"}, {})
    server.handle("PATCH", f"{CONFIG_MAPS}/a", body={"data": {"x": "user"}}, content_type=MERGE)
    rejected = applied(server, "one", {"x": "1"}, {})
    assert (rejected.status, rejected.body["reason"]) == (409, "Conflict")
    assert applied(server, "one", {"x": "1"}, {}, force=True).body["data"] == {"x": "1"}


def test_apply_keeps_what_existed_before(server: SimulatedApiServer) -> None:
    server.handle("POST", CONFIG_MAPS, body={"metadata": {"name": "a"}, "data": {"before": "1"}})
    applied(server, "one", {"x": "1"}, {})
    assert applied(server, "one", {}, {}).body["data"] == {"before": "1"}
    assert (
        server.handle("PATCH", f"{CONFIG_MAPS}/a", body={}, content_type="application/apply-patch+yaml").status == 422
    )
