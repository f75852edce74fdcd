import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from rolecall.kube.bodies import PROTOBUF_MEDIA_TYPE, decode_protobuf
from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import from_status
from rolecall.kube.metadata import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.proxy import forward
from rolecall.runner.proxy.ownership import Ownership
from rolecall.runner.proxy.request_info import parse
from rolecall.runner.proxy.writes import with_delete_options, with_precondition
from tests.unit.kube.test_bodies import PROTOBUF
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import CONFIG_MAP, CONFIG_MAPS, MERGE, REFERENCE, Run, config_map, owners

ADOPT: dict[str, Any] = {"annotations": {"rolecall.dev/adopt": "true"}}
OPT_OUT: dict[str, Any] = {"annotations": {"rolecall.dev/adopt": "false"}}
CM = f"{CONFIG_MAPS}/cm"
WRITES = pytest.mark.parametrize(
    ("method", "content_type"), [("PUT", "application/json"), ("PATCH", "application/apply-patch+yaml")]
)


async def test_post_injects_owner_reference(run: Run, api_server: ApiServer) -> None:
    assert (await run.send("POST", CONFIG_MAPS, json=config_map())).status == 201
    assert owners(api_server) == [REFERENCE]
    assert run.itself.dependents == [(CONFIG_MAP, Ownership.OWNER_REFERENCE)]


@pytest.mark.parametrize("error", [None, 404, 503])
async def test_created_object_has_its_owner_although_discovery_fails_for_a_moment(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    """A gateway may say that a kind isn't served; nothing would add the owner later."""
    discover, left = Client.resource_for_path, [error] * len(forward.DISCOVERY_RETRY_SECONDS)

    async def discover_later(client: Client, group: str, version: str, plural: str) -> ApiResource | None:
        if not left:
            return await discover(client, group, version, plural)
        if (status := left.pop()) is not None:
            raise from_status(status, {"kind": "Status", "message": "no"})
        return None

    monkeypatch.setattr(forward, "DISCOVERY_RETRY_SECONDS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(Client, "resource_for_path", discover_later)
    assert (await run.send("POST", CONFIG_MAPS, json=config_map())).status == 201
    assert owners(api_server) == [REFERENCE]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_object_of_a_kind_that_discovery_does_not_list_is_not_written(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A gateway may hide the kind from discovery only: then the object would never get its owner."""
    monkeypatch.setattr(forward, "DISCOVERY_RETRY_SECONDS", ())
    path = "/apis/unknown.example.com/v1/namespaces/ns/things" + ("/x" if method != "POST" else "")
    headers = {"Content-Type": "application/apply-patch+yaml" if method == "PATCH" else "application/json"}
    response = await run.send(method, path, data=b'{"metadata": {"name": "x"}}', headers=headers)
    assert (response.status, response.json()["reason"]) == (404, "NotFound")
    assert "no kind things in unknown.example.com/v1" in response.json()["message"]
    assert all(request.method == "GET" for request in api_server.received)


async def test_dependent_is_reported_before_it_can_exist(run: Run, api_server: ApiServer) -> None:
    reported_when_created: list[int] = []

    async def create(_: web.Request) -> web.Response:
        reported_when_created.append(len(run.itself.dependents))
        return web.json_response(config_map(), status=201)

    api_server.handlers["POST", CONFIG_MAPS] = create
    await run.send("POST", CONFIG_MAPS, json=config_map())
    assert reported_when_created == [1]


@pytest.mark.parametrize(
    ("metadata", "expected"), [(OPT_OUT, None), ({**OPT_OUT, "ownerReferences": [REFERENCE]}, [REFERENCE])]
)
async def test_object_that_opts_out_gets_no_owner_unless_it_names_one(
    run: Run, api_server: ApiServer, metadata: dict[str, Any], expected: list[RawObject] | None
) -> None:
    assert (await run.send("POST", CONFIG_MAPS, json=config_map(**metadata))).status == 201
    assert owners(api_server) == expected
    assert len(run.itself.dependents) == len(expected or ())


async def test_generated_name_and_dry_run_get_owner(run: Run, api_server: ApiServer) -> None:
    await run.send("POST", f"{CONFIG_MAPS}?dryRun=All", json={"metadata": {"generateName": "cm-"}})
    assert owners(api_server, f"{CONFIG_MAPS}/generated") == [REFERENCE]


async def test_yaml_gets_owner_and_its_dates_stay_strings(run: Run, api_server: ApiServer) -> None:
    text = "metadata:\n  name: cm\n  labels:\n    day: 2020-01-02\n"
    await run.send("POST", CONFIG_MAPS, data=text, headers={"Content-Type": "application/yaml"})
    assert api_server.last.json["metadata"]["labels"] == {"day": "2020-01-02"}
    assert owners(api_server) == [REFERENCE]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"k8s\x00\x01", "application/vnd.kubernetes.protobuf"),
        (b"{not json", "application/json"),
        (b"[1]", "application/json"),
        (b'{"metadata":"text"}', "application/json"),
        (b'{"metadata":{"ownerReferences":"text"}}', "application/json"),
        (b"a: [", "application/yaml"),
        (b"[" * 100_000, "application/json"),
    ],
)
async def test_unreadable_body_is_forwarded_unchanged(
    run: Run, api_server: ApiServer, body: bytes, content_type: str
) -> None:
    api_server.respond("POST", CONFIG_MAPS, {"kind": "Status", "code": 400}, 400)
    response = await run.send("POST", CONFIG_MAPS, data=body, headers={"Content-Type": content_type})
    assert (response.status, api_server.last.body) == (400, body)


@pytest.mark.parametrize("query", ["", "?fieldValidation=Warn", "?fieldValidation=Strict"])
@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
async def test_api_server_sees_duplicate_keys_only_where_it_rejects_them(
    run: Run, api_server: ApiServer, query: str, content_type: str
) -> None:
    body = b'{"metadata":{"name":"first","name":"cm","ownerReferences":[{"uid":"x"}],"ownerReferences":[]}}'
    await run.send("POST", CONFIG_MAPS + query, data=body, headers={"Content-Type": content_type})
    if "Strict" in query:
        assert api_server.last.body == body
    else:
        mark = {"rolecall.dev/made-for": f"{REFERENCE['uid']}:/ConfigMap:ns/cm"}
        expected = {"metadata": {"name": "cm", "ownerReferences": [REFERENCE], "annotations": mark}}
        assert api_server.last.json == expected
        assert api_server.last.body.count(b"name") == json.dumps(api_server.last.json).count("name")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/ns/pods/web/eviction",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/api/v1/namespaces/ns/events",
        "/healthz",
    ],
)
async def test_objects_that_are_not_stored_and_events_get_no_owner(run: Run, api_server: ApiServer, path: str) -> None:
    body = b'{"metadata": {"name": "x"}}'
    await run.send("POST", path, data=body, headers={"Content-Type": "application/json"})
    assert api_server.last.body == body
    assert run.itself.dependents == []


async def test_other_namespace_and_cluster_scope_get_annotations(run: Run, api_server: ApiServer) -> None:
    for path, name in (("/api/v1/namespaces/far/configmaps", "cm"), ("/api/v1/namespaces", "fresh")):
        await run.send("POST", path, json={"metadata": {"name": name}})
        metadata = api_server.objects[f"{path}/{name}"]["metadata"]
        marks = {"rolecall.dev/made-for": f"{REFERENCE['uid']}:/ConfigMap:far/cm"} if name == "cm" else {}
        assert metadata["annotations"] == {
            "operator-sdk/primary-resource": "ns/one",
            "operator-sdk/primary-resource-type": "Demo.demo.example.com",
            **marks,
        }
        assert "ownerReferences" not in metadata
    assert run.itself.dependents == [
        (CONFIG_MAP, Ownership.ANNOTATION),
        (GVK("", "v1", "Namespace"), Ownership.ANNOTATION),
    ]


async def test_cluster_scoped_primary_owns_by_reference(start_run: Callable[..., Run], api_server: ApiServer) -> None:
    await start_run("one", namespace="").send("POST", CONFIG_MAPS, json=config_map())
    assert owners(api_server) == [REFERENCE]


async def test_without_injection_nothing_is_changed_or_reported(
    start_run: Callable[..., Run], api_server: ApiServer
) -> None:
    run = start_run(inject_owner=False)
    await run.send("POST", CONFIG_MAPS, json=config_map())
    assert owners(api_server) is None
    api_server.add(f"{CONFIG_MAPS}/old", ownerReferences=[REFERENCE])
    await run.send("GET", f"{CONFIG_MAPS}/old")
    assert run.itself.dependents == []
    assert len(run.itself.written) == 1


async def test_primary_does_not_own_itself(run: Run, api_server: ApiServer) -> None:
    demos = "/apis/demo.example.com/v1/namespaces/ns/demos"
    for name in ("one", "two"):
        await run.send("POST", demos, json={"metadata": {"name": name}})
    assert owners(api_server, f"{demos}/one") is None
    assert owners(api_server, f"{demos}/two") == [REFERENCE]


@WRITES
@pytest.mark.parametrize(
    ("existing", "metadata", "expected", "is_reported"),
    [
        (None, {}, [REFERENCE], True),
        ({}, {}, None, False),
        ({}, ADOPT, [REFERENCE], True),
        ({"ownerReferences": [REFERENCE | {"controller": True}]}, {}, [REFERENCE | {"controller": True}], True),
        ({"ownerReferences": [REFERENCE]}, {"ownerReferences": []}, [], False),
    ],
    ids=["created", "left alone", "adopted", "kept", "dropped by the role"],
)
async def test_put_and_apply_set_owner_of_new_own_and_adopted_objects(  # noqa: PLR0913, PLR0917 - a table
    run: Run,
    api_server: ApiServer,
    method: str,
    content_type: str,
    existing: dict[str, Any] | None,
    metadata: dict[str, Any],
    expected: list[RawObject] | None,
    is_reported: bool,  # noqa: FBT001 - a table
) -> None:
    if existing is not None:
        api_server.add(CM, **existing)
    body = json.dumps(config_map(**metadata))
    response = await run.send(method, CM, data=body, headers={"Content-Type": content_type})
    assert response.status == (201 if existing is None else 200)
    assert owners(api_server) == expected
    assert api_server.objects[CM]["data"] == {"a": "1"}
    assert run.itself.dependents == ([(CONFIG_MAP, Ownership.OWNER_REFERENCE)] if is_reported else [])


@WRITES
async def test_put_and_apply_leave_unreadable_object_alone(
    run: Run, api_server: ApiServer, method: str, content_type: str
) -> None:
    api_server.respond("GET", CM, {"kind": "Status", "code": 403}, 403)
    body = json.dumps(config_map())
    await run.send(method, CM, data=body, headers={"Content-Type": content_type})
    assert api_server.last.body == body.encode()


OTHER = {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "other"}
THIRD = {"apiVersion": "v1", "kind": "Other", "name": "t", "uid": "third"}
CONTROLLER = REFERENCE | {"controller": True}
NAMED = {PRIMARY_ANNOTATION: "elsewhere/two", PRIMARY_TYPE_ANNOTATION: "Demo.demo.example.com"}
KEPT = NAMED | {"rolecall.dev/prune": "false", "rolecall.dev/adopt": "true"}
APPLIED = {
    "manager": "role",
    "operation": "Apply",
    "fieldsV1": {
        "f:metadata": {
            "f:ownerReferences": {'k:{"uid":"other"}': {}},
            "f:annotations": {f"f:{name}": {} for name in NAMED},
        }
    },
}
PUT_, MERGE_, APPLY_ = (
    ("PUT", "", "application/json"),
    ("PATCH", "", "application/merge-patch+json"),
    ("PATCH", "?fieldManager=role", "application/apply-patch+yaml"),
)


@pytest.mark.parametrize(
    ("write", "references", "sent"),
    [
        (PUT_, None, [OTHER, THIRD]),  # PUT drops what the body doesn't contain
        (PUT_, [REFERENCE], [OTHER, THIRD, REFERENCE]),
        (PUT_, [THIRD], [THIRD]),  # the role names the owners of others: its own decision
        (PUT_, [], []),
        (APPLY_, None, [OTHER]),  # apply drops what its field manager owns
        (APPLY_, [CONTROLLER], [OTHER, CONTROLLER]),
        (MERGE_, None, None),
        (MERGE_, [REFERENCE], [OTHER, THIRD, REFERENCE]),  # a merge patch replaces the list
        (MERGE_, [OTHER], [OTHER]),
    ],
)
async def test_owners_that_the_body_does_not_mention_stay(
    run: Run, api_server: ApiServer, write: tuple[str, str, str], references: Any, sent: Any
) -> None:
    method, query, content_type = write
    api_server.add(CM, ownerReferences=[OTHER, THIRD], managedFields=[APPLIED])
    body = json.dumps(config_map(**({} if references is None else {"ownerReferences": references})))
    await run.send(method, f"{CM}{query}", data=body, headers={"Content-Type": content_type})
    assert api_server.last.json["metadata"].get("ownerReferences") == sent


@pytest.mark.parametrize(("kind", "sent"), [("ConfigMap", [OTHER, THIRD]), ("Scale", None)])
async def test_put_of_the_status_keeps_owners_and_adds_none(
    run: Run, api_server: ApiServer, kind: str, sent: Any
) -> None:
    """For built-in kinds, the API server takes the metadata from the body."""
    api_server.add(CM, ownerReferences=[OTHER, THIRD])
    await run.send("PUT", f"{CM}/status", json=config_map(**ADOPT) | {"kind": kind})
    assert api_server.last.json["metadata"].get("ownerReferences") == sent


@pytest.mark.parametrize("write", [PUT_, APPLY_, MERGE_])
async def test_adopted_object_keeps_its_other_owners(
    run: Run, api_server: ApiServer, write: tuple[str, str, str]
) -> None:
    method, query, content_type = write
    api_server.add(CM, ownerReferences=[OTHER], managedFields=[APPLIED])
    body = json.dumps(config_map(**ADOPT))
    await run.send(method, f"{CM}{query}", data=body, headers={"Content-Type": content_type})
    assert api_server.last.json["metadata"]["ownerReferences"] == [OTHER, REFERENCE]


@pytest.mark.parametrize(
    ("write", "annotations", "sent"),
    [
        (PUT_, {}, KEPT),
        (PUT_, {PRIMARY_ANNOTATION: "ns/x"}, {"rolecall.dev/prune": "false", "rolecall.dev/adopt": "true"}),
        (PUT_, {"rolecall.dev/prune": "true"}, KEPT),
        (APPLY_, {}, NAMED),
        (MERGE_, {}, {}),
    ],
)
async def test_annotations_of_the_operator_that_the_body_does_not_mention_stay(
    run: Run, api_server: ApiServer, write: tuple[str, str, str], annotations: Any, sent: Any
) -> None:
    method, query, content_type = write
    api_server.add(CM, annotations=KEPT, managedFields=[APPLIED])
    body = json.dumps(config_map(annotations=annotations))
    await run.send(method, f"{CM}{query}", data=body, headers={"Content-Type": content_type})
    assert api_server.last.json["metadata"].get("annotations") == sent | annotations


@pytest.mark.parametrize("write", [PUT_, APPLY_, MERGE_])
@pytest.mark.parametrize("is_gone", [True, False])
async def test_annotations_name_another_primary_only_after_the_first_is_gone(
    start_run: Callable[..., Run], api_server: ApiServer, write: tuple[str, str, str], *, is_gone: bool
) -> None:
    run = start_run(namespace="far", absent={("Demo.demo.example.com", "elsewhere/two")} if is_gone else set())
    method, query, content_type = write
    api_server.add(CM, annotations=NAMED, managedFields=[APPLIED])
    body = json.dumps(config_map(**ADOPT))
    await run.send(method, f"{CM}{query}", data=body, headers={"Content-Type": content_type})
    found = api_server.last.json["metadata"]["annotations"]
    # A merge patch leaves what it doesn't contain.
    expected = "far/one" if is_gone else None if write == MERGE_ else "elsewhere/two"
    assert found.get(PRIMARY_ANNOTATION) == expected
    assert run.itself.dependents == ([(CONFIG_MAP, Ownership.ANNOTATION)] if is_gone else [])


@pytest.mark.parametrize("times", [1, 3, 4])
async def test_owner_that_is_added_between_read_and_write_stays(run: Run, api_server: ApiServer, times: int) -> None:
    added = [{**OTHER, "uid": f"added-{number}"} for number in range(times)]
    left = list(added)
    api_server.add(CM, ownerReferences=[OTHER])

    async def busy(request: web.Request) -> web.StreamResponse:
        old = api_server.objects[CM]["metadata"]
        if "dryRun" in request.query:
            return web.json_response(api_server.last.json)
        if left:
            api_server.add(CM, uid=old["uid"], ownerReferences=[*old["ownerReferences"], left.pop(0)])
        return api_server._changed(request.path, api_server.last.json)

    api_server.handlers["PUT", CM] = busy
    response = await run.send("PUT", CM, json=config_map())
    assert owners(api_server) == [OTHER, *added]
    assert response.status == (200 if times < 4 else 409), "after three more reads, the role gets the conflict"


async def test_writes_of_one_object_take_turns(start_run: Callable[..., Run], api_server: ApiServer) -> None:
    """Otherwise a run would make its body from what another run is about to change."""
    api_server.add(CM)
    body = json.dumps(config_map(**ADOPT))
    headers = {"Content-Type": "application/apply-patch+yaml"}
    sends = [start_run(name).send("PATCH", f"{CM}?fieldManager=role", data=body, headers=headers) for name in "abc"]
    await asyncio.gather(*sends)
    assert [request.method for request in api_server.received] == ["GET", "PATCH"] * 3


async def test_merge_patch_gets_no_owner(run: Run, api_server: ApiServer) -> None:
    api_server.add(CM)
    await run.send("PATCH", CM, json={"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    assert owners(api_server) is None
    assert run.itself.dependents == []


async def test_merge_patch_adopts_and_keeps_other_owners(run: Run, api_server: ApiServer) -> None:
    other = {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "other"}
    api_server.add(CM, ownerReferences=[other])
    await run.send("PATCH", CM, data=json.dumps(config_map(**ADOPT)), headers=MERGE)
    assert owners(api_server) == [other, REFERENCE]


PATH = "/api/v1/namespaces/ns/configmaps/cm"
MERGING = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"


async def send(run: Run, method: str, content: Any, content_type: str, path: str = PATH) -> tuple[int, str]:
    """Send a write; return the status and version of the response."""
    headers = {"Content-Type": content_type}
    response = await run.send(method, path, data=json.dumps(content), headers=headers)
    return response.status, response.json().get("metadata", {}).get("resourceVersion", "")


def data(value: str, content_type: str) -> Any:
    if content_type == JSON_PATCH:
        return [{"op": "replace", "path": "/data", "value": {"a": value}}]
    return {"data": {"a": value}}


def recorded(run: Run) -> list[str]:
    return [obj["metadata"]["resourceVersion"] for obj in run.itself.written]


@pytest.fixture
def user_change(api_server: ApiServer) -> Any:
    """Return a function that changes the object like a user."""

    def change(value: str) -> None:
        version = str(int(api_server.objects[PATH]["metadata"]["resourceVersion"]) + 1000)
        old = api_server.objects[PATH]
        api_server.objects[PATH] = {
            **old,
            "data": {"a": value},
            "metadata": {**old["metadata"], "resourceVersion": version},
        }

    api_server.add(PATH)["data"] = {"a": "0"}
    return change


@pytest.mark.parametrize(
    ("method", "content_type"),
    [
        ("PATCH", MERGING),
        ("PATCH", STRATEGIC),
        ("PATCH", APPLY),
        ("PATCH", JSON_PATCH),
        ("PUT", "application/json"),
    ],
)
@pytest.mark.parametrize("reads_first", [True, False])
@pytest.mark.parametrize(
    ("value_of_user", "is_recorded"),
    [(None, True), ("1", False), ("user", True)],
    ids=["changed by the run", "not changed by the run", "changed by both"],
)
async def test_only_write_that_changes_object_is_recorded(  # noqa: PLR0913, PLR0917 - a table
    run: Run,
    user_change: Any,
    method: str,
    content_type: str,
    reads_first: bool,  # noqa: FBT001 - a table
    value_of_user: str | None,
    is_recorded: bool,  # noqa: FBT001 - a table
) -> None:
    if reads_first:
        await run.send("GET", PATH)
    if value_of_user is not None:
        user_change(value_of_user)
    status, version = await send(run, method, data("1", content_type), content_type)
    assert status == 200
    assert recorded(run) == ([version] if is_recorded else [])


async def test_write_that_always_conflicts_is_sent_unrecorded(
    run: Run, api_server: ApiServer, user_change: Any
) -> None:
    async def busy(request: web.Request) -> web.StreamResponse:
        content = json.loads(api_server.last.body)
        if "metadata" in content:
            user_change("controller")
        return api_server._changed(request.path, content)

    api_server.handlers["PATCH", PATH] = busy
    status, _ = await send(run, "PATCH", {"data": {"a": "1"}}, MERGING)
    assert (status, api_server.objects[PATH]["data"]) == (200, {"a": "1"})
    assert recorded(run) == []


async def test_conflict_unrelated_to_version_is_returned(run: Run, api_server: ApiServer) -> None:
    api_server.add(PATH)
    api_server.respond("PATCH", PATH, {"kind": "Status", "reason": "Conflict", "message": "another manager"}, 409)
    assert (await send(run, "PATCH", {"data": {}}, APPLY))[0] == 409


async def test_precondition_of_run_is_unchanged(run: Run, api_server: ApiServer, user_change: Any) -> None:
    old = api_server.objects[PATH]["metadata"]["resourceVersion"]
    user_change("user")
    status, _ = await send(run, "PUT", {"metadata": {"resourceVersion": old}, "data": {"a": "1"}}, "application/json")
    assert (status, len(api_server.writes())) == (409, 1)
    assert api_server.objects[PATH]["data"] == {"a": "user"}


async def test_write_of_status_is_recorded(run: Run, api_server: ApiServer) -> None:
    api_server.add(PATH)
    _, version = await send(run, "PATCH", {"status": {"x": 1}}, MERGING, f"{PATH}/status")
    assert recorded(run) == [version]


async def test_write_after_own_write_needs_no_read(run: Run, api_server: ApiServer) -> None:
    collection, _, _ = PATH.rpartition("/")
    await send(run, "POST", {"metadata": {"name": "cm"}}, "application/json", collection)
    for value in ("1", "2"):
        await send(run, "PATCH", {"data": {"a": value}}, MERGING)
    assert [request.method for request in api_server.received] == ["POST", "PATCH", "PATCH"]
    assert len(recorded(run)) == 3


async def test_pending_deletion_is_recorded_as_write(run: Run, api_server: ApiServer) -> None:
    async def terminating(_: web.Request) -> web.Response:
        api_server.objects[PATH]["metadata"]["resourceVersion"] = "5000"
        return web.json_response(api_server.objects[PATH])

    api_server.add(PATH)
    api_server.handlers["DELETE", PATH] = terminating
    for _ in range(2):
        await run.send("DELETE", PATH)
    assert recorded(run) == ["5000"]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{", MERGING),
        (b"[]", MERGING),
        (b'{"metadata":null}', MERGING),
        (b'{"metadata":"x"}', MERGING),
        (b"{}", JSON_PATCH),
        (b'"x"', APPLY),
        (b'{"metadata":{"resourceVersion":null}}', MERGING),
        (b'{"metadata":{"resourceVersion":""}}', APPLY),
        (b'{"metadata":{"resourceVersion":"0"}}', "application/json"),
        ("{}".encode("utf-16"), MERGING),
        (b'{"metadata":{},"metadata":{}}', MERGING),
        (b'{"data":{"a":"1","a":"2"}}', "application/json"),
        (b'[{"op":"remove","op":"test","path":"/data"}]', JSON_PATCH),
    ],
)
def test_body_that_cannot_have_precondition_is_unchanged(body: bytes, content_type: str) -> None:
    assert with_precondition(body, content_type, "7") is None


LATER = {"deletionTimestamp": "2026-01-01T12:00:00Z"}


def obj(**metadata: Any) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"uid": "u", "resourceVersion": "7", **metadata}}


@pytest.mark.parametrize(
    ("response", "status", "removed"),
    [
        ({"kind": "Status", "status": "Success", "details": {"uid": "u"}}, 200, ["u"]),
        (obj(), 200, ["u"]),
        (obj(**LATER, deletionGracePeriodSeconds=0), 200, ["u"]),
        (obj(**LATER, deletionGracePeriodSeconds=30), 200, []),
        (obj(**LATER, deletionGracePeriodSeconds=0, finalizers=["a.b/c"]), 200, []),
        (obj(**LATER, deletionGracePeriodSeconds=0), 202, []),
        ({"kind": "Status", "status": "Failure", "details": {"uid": "u"}}, 404, []),
        ({"kind": "Status", "status": "Failure", "details": {"uid": "u"}}, 409, []),
        ({"kind": "Status", "status": "Success"}, 200, []),
        (["odd"], 200, []),
    ],
)
async def test_only_completed_deletion_is_recorded(
    run: Run, api_server: ApiServer, response: Any, status: int, removed: list[str]
) -> None:
    api_server.respond("DELETE", PATH, response, status)
    assert (await run.send("DELETE", PATH)).status == status
    assert run.itself.removed == removed


@pytest.mark.parametrize(
    ("target", "options", "removed"),
    [
        (CONFIG_MAPS, None, ["u", "v"]),
        (f"{CONFIG_MAPS}?labelSelector=a%3Db", {"propagationPolicy": "Background"}, ["u", "v"]),
        (CONFIG_MAPS, {"propagationPolicy": "Foreground"}, []),
        (f"{CONFIG_MAPS}?propagationPolicy=Orphan", None, []),
        (CONFIG_MAPS, {"orphanDependents": True}, []),
        (f"{CONFIG_MAPS}?dryRun=All", None, []),
        ("/api/v1/namespaces/ns/pods", None, []),  # kubelets end them first
    ],
)
async def test_deletion_of_a_collection_is_recorded_for_each_object(
    run: Run, api_server: ApiServer, target: str, options: Any, removed: list[str]
) -> None:
    items = [obj(), obj(uid="v"), obj(uid="w", finalizers=["a.b/c"])]
    api_server.respond("DELETE", target.partition("?")[0], {"kind": "ConfigMapList", "items": items})
    assert (await run.send("DELETE", target, json=options)).status == 200
    assert run.itself.removed == removed


OPTIONS = "application/vnd.kubernetes.protobuf"


def protobuf_options(*fields: bytes) -> bytes:
    raw = b"".join(fields)
    return b"k8s\x00" + bytes([2 << 3 | 2, len(raw)]) + raw


@pytest.mark.parametrize(
    ("query", "body", "content_type", "is_removed"),
    [
        ("?dryRun=All", b"", "", False),
        ("", b'{"dryRun": ["All"]}', "", False),
        ("", b'{"dryRun": ["All"]}', "application/json", False),
        ("", b"kind: DeleteOptions\ndryRun: [All]", "application/yaml", False),
        ("", protobuf_options(b"\x08\x00", b"\x2a\x03All"), OPTIONS, False),
        ("", b"{", "application/json", False),
        ("", b"k8s\x00\x12\x09", OPTIONS, False),
        ("?dryRun=All", b"{}", "application/json", True),
        ("?dryRun=All", protobuf_options(b"\x08\x00"), OPTIONS, True),
        ("", b'{"dryRun": []}', "application/json", True),
        ("", b'{"dryRun": null, "propagationPolicy": "Foreground"}', "application/json", True),
    ],
)
async def test_options_in_the_body_replace_those_in_the_query(
    run: Run,
    query: str,
    body: bytes,
    content_type: str,
    is_removed: bool,  # noqa: FBT001 - a table
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    assert (await run.send("DELETE", PATH + query, data=body, headers=headers)).status == 200
    assert run.itself.removed == (["x"] if is_removed else [])


@pytest.mark.parametrize(
    ("method", "target", "body", "is_dry_run"),
    [
        ("DELETE", CONFIG_MAPS, b'{"dryRun": ["All"]}', True),
        ("DELETE", f"{CONFIG_MAPS}?dryRun=All", b"{}", False),
        ("POST", "/api/v1/namespaces/ns/pods/web/eviction", b'{"deleteOptions": {"dryRun": ["All"]}}', True),
        ("POST", "/api/v1/namespaces/ns/pods/web/eviction?dryRun=All", b'{"deleteOptions": {}}', True),
        ("POST", "/api/v1/namespaces/ns/pods/web/eviction", b"{}", False),
        ("POST", CONFIG_MAPS, b'{"dryRun": ["All"]}', False),
    ],
)
def test_dry_run_is_where_the_api_server_reads_it(method: str, target: str, body: bytes, *, is_dry_run: bool) -> None:
    assert with_delete_options(parse(method, target), body, "application/json").is_dry_run is is_dry_run


async def test_created_object_in_protobuf_gets_owner(run: Run, api_server: ApiServer) -> None:
    api_server.respond("POST", CONFIG_MAPS, {"kind": "ConfigMap"}, 201)
    await run.send("POST", CONFIG_MAPS, data=PROTOBUF, headers={"Content-Type": PROTOBUF_MEDIA_TYPE})
    sent = decode_protobuf(api_server.last.body)
    assert sent is not None
    assert sent["metadata"]["ownerReferences"] == [REFERENCE]
    assert run.itself.dependents == [(CONFIG_MAP, Ownership.OWNER_REFERENCE)]
