import json
from typing import Any

import pytest
from aiohttp import web

from rolecall.runner.proxy.writes import with_precondition
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import Run

PATH = "/api/v1/namespaces/ns/configmaps/cm"
MERGE = "application/merge-patch+json"
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
    return [obj["metadata"]["resourceVersion"] for obj in run.written]


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
    [("PATCH", MERGE), ("PATCH", STRATEGIC), ("PATCH", APPLY), ("PATCH", JSON_PATCH), ("PUT", "application/json")],
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
    status, _ = await send(run, "PATCH", {"data": {"a": "1"}}, MERGE)
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
    _, version = await send(run, "PATCH", {"status": {"x": 1}}, MERGE, f"{PATH}/status")
    assert recorded(run) == [version]


async def test_write_after_own_write_needs_no_read(run: Run, api_server: ApiServer) -> None:
    collection, _, _ = PATH.rpartition("/")
    await send(run, "POST", {"metadata": {"name": "cm"}}, "application/json", collection)
    for value in ("1", "2"):
        await send(run, "PATCH", {"data": {"a": value}}, MERGE)
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
        (b"{", MERGE),
        (b"[]", MERGE),
        (b'{"metadata":null}', MERGE),
        (b'{"metadata":"x"}', MERGE),
        (b"{}", JSON_PATCH),
        (b'"x"', APPLY),
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
    assert run.removed == removed


async def test_dry_run_removes_nothing(run: Run) -> None:
    assert (await run.send("DELETE", f"{PATH}?dryRun=All")).status == 200
    assert run.removed == []
