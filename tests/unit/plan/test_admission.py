"""What ``--admission`` sends to a cluster, and what it never sends."""

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.plan.admission import with_admission
from rolecall.plan.results import Admission, AdmissionAnswer, Plan, PlannedWrite
from tests.unit.plan.plans import TASK, config_map, object_plan, write
from tests.unit.proxy.api_server import ApiServer
from tests.unit.proxy.conftest import api_server

__all__ = ["api_server"]

MAPS = "/api/v1/namespaces/ns/configmaps"
DEMOS = "/apis/demo.example.com/v1/namespaces/ns/demos"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/demos.demo.example.com"
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


@pytest.fixture
async def cluster(api_server: ApiServer) -> AsyncIterator[Client]:
    async with Client(Configuration(host=api_server.url)) as client:
        yield client


async def ask(cluster: Client, *writes: PlannedWrite) -> tuple[AdmissionAnswer, ...]:
    plan = await with_admission(Plan((object_plan(writes=writes),)), cluster, lambda _: None)
    return plan.objects[0].admission or ()


NEVER_SENT: dict[str, PlannedWrite] = {
    "a deletion": write("DELETE", f"{MAPS}/a"),
    "a deletion with options": write("DELETE", f"{MAPS}/a?dryRun=All", {"gracePeriodSeconds": 0}),
    "a deletion of many": write("DELETE", MAPS),
    "a token": write("POST", "/api/v1/namespaces/ns/serviceaccounts/x/token", {}),
    "an eviction": write("POST", "/api/v1/namespaces/ns/pods/x/eviction", {}),
    "an exec": write("POST", "/api/v1/namespaces/ns/pods/x/exec?command=id", {}),
    "a proxied request": write("POST", "/api/v1/namespaces/ns/pods/x/proxy/y", {}),
    "an old proxied request": write("POST", "/api/v1/proxy/namespaces/ns/pods/x", {}),
    "a hidden subresource": write("PUT", "/api/v1/namespaces/ns/pods/x%2Feviction", {}),
    "a query in a name": write("PATCH", f"{MAPS}/a%3FdryRun=%26x=", {}),
    "a fragment in a name": write("PATCH", f"{MAPS}/a%23", {}),
    "a query in a namespace": write("POST", "/api/v1/namespaces/ns%3Fx/configmaps", OBJECT),
    "a parent folder": write("PUT", f"{MAPS}/..", OBJECT),
    "a review": write("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}),
    "no resource": write("POST", "/logs/x", {}),
    "an aggregated API": write("POST", DEMOS, {"metadata": {"name": "a"}}),
    "an unknown API": write("POST", "/apis/unknown.example.com/v1/things", {}),
    "an odd method": write("TRACE", f"{MAPS}/a", {}),
    "a creation under a name": write("POST", f"{MAPS}/a", OBJECT),
    "what the plan was refused": write("POST", MAPS, OBJECT, status=422),
    "what got no answer": write("POST", MAPS, OBJECT, status=0),
    "what cannot be read": PlannedWrite(TASK, "POST", MAPS, "application/vnd.kubernetes.protobuf", b"k8s\0x", 201),
}


@pytest.mark.parametrize("name", NEVER_SENT)
async def test_what_a_dry_run_cannot_do_safely_is_never_sent(name: str, cluster: Client, api_server: ApiServer) -> None:
    [answer] = await ask(cluster, NEVER_SENT[name])
    assert answer.result == Admission.SKIPPED
    assert answer.message
    assert api_server.writes() == []


SENT: dict[str, tuple[PlannedWrite, str, str]] = {
    "a creation": (write("POST", MAPS, OBJECT, status=201), "POST", MAPS),
    "an update": (write("PUT", f"{MAPS}/a", OBJECT), "PUT", f"{MAPS}/a"),
    "a patch": (write("PATCH", f"{MAPS}/a", {"data": {"a": "b"}}), "PATCH", f"{MAPS}/a"),
    "a status": (write("PATCH", f"{MAPS}/a/status", {"status": {}}), "PATCH", f"{MAPS}/a/status"),
    "a namespace": (write("POST", "/api/v1/namespaces", OBJECT, status=201), "POST", "/api/v1/namespaces"),
    "a write that clears the dry run": (write("PATCH", f"{MAPS}/a?dryRun=&force=true", {}), "PATCH", f"{MAPS}/a"),
    "a write with a fragment": (write("PATCH", f"{MAPS}/a?x=1#&dryRun=", {}), "PATCH", f"{MAPS}/a"),
    "a write in absolute form": (write("PATCH", f"http://elsewhere{MAPS}/a", {}), "PATCH", f"{MAPS}/a"),
}


@pytest.mark.parametrize("name", SENT)
async def test_whatever_is_sent_is_a_dry_run(name: str, cluster: Client, api_server: ApiServer) -> None:
    planned, method, path = SENT[name]
    await ask(cluster, planned)
    [sent] = api_server.writes()
    url = urlsplit(sent.target)
    assert (sent.method, url.path, parse_qs(url.query)["dryRun"]) == (method, path, ["All"])


async def test_who_manages_the_fields_is_kept(cluster: Client, api_server: ApiServer) -> None:
    await ask(cluster, write("PATCH", f"{MAPS}/a?fieldManager=me&force=true&pretty=1", {}))
    assert parse_qs(urlsplit(api_server.writes()[0].target).query) == {
        "fieldManager": ["me"],
        "force": ["true"],
        "dryRun": ["All"],
    }


async def test_a_custom_resource_is_known_by_its_definition(cluster: Client, api_server: ApiServer) -> None:
    api_server.add(DEFINITION)
    [answer] = await ask(cluster, write("POST", DEMOS, {"metadata": {"name": "a"}}, status=201))
    assert answer.result == Admission.ACCEPTED


async def test_versions_of_the_shadow_are_replaced_by_those_of_the_cluster(
    cluster: Client, api_server: ApiServer
) -> None:
    version = api_server.add(f"{MAPS}/a")["metadata"]["resourceVersion"]
    await ask(
        cluster,
        write("PUT", f"{MAPS}/a", config_map("a")),
        write("PATCH", f"{MAPS}/a", {"metadata": {"resourceVersion": "7", "uid": "u", "labels": {}}}),
        write("PATCH", f"{MAPS}/a", [{"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]),
    )
    update, merge, operations = (each.json for each in api_server.writes())
    assert (update["metadata"]["resourceVersion"], "uid" in update["metadata"]) == (version, False)
    assert merge == {"metadata": {"labels": {}}}
    assert operations == []


async def test_a_refusal_and_warnings_are_told(cluster: Client, api_server: ApiServer) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "policy says no"}
        return web.json_response(body, status=422, headers={"Warning": '299 - "first"'})

    async def warn(_request: web.Request) -> web.Response:
        headers = [("Warning", '299 - "old \\"version\\""'), ("Warning", '299 - "second"'), ("Warning", "199 x")]
        return web.json_response({}, headers=headers)

    api_server.answers = {("POST", MAPS): refuse, ("PATCH", f"{MAPS}/a"): warn}
    refused, warned = await ask(cluster, write("POST", MAPS, OBJECT), write("PATCH", f"{MAPS}/a", {}))
    assert (refused.result, refused.message) == (Admission.REFUSED, "422 Invalid: policy says no")
    assert refused.warnings == ("first",)
    assert (warned.result, warned.warnings) == (Admission.ACCEPTED, ('old "version"', "second"))


@pytest.mark.parametrize(
    ("writes", "reason"),
    [
        (
            (write("POST", MAPS, OBJECT, status=201), write("PATCH", f"{MAPS}/a", {"data": {}})),
            "the object is only planned",
        ),
        (
            (write("DELETE", f"{MAPS}/a"), write("POST", MAPS, OBJECT, status=201)),
            "the plan deletes the object before, and a deletion is never sent",
        ),
        (
            (
                write("POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}}, status=201),
                write("POST", MAPS, OBJECT, status=201),
            ),
            "the namespace ns is only planned",
        ),
    ],
)
async def test_what_depends_on_the_plan_is_not_asked(
    writes: tuple[PlannedWrite, ...], reason: str, cluster: Client
) -> None:
    *_, last = await ask(cluster, *writes)
    assert (last.result, last.message) == (Admission.SKIPPED, reason)


async def test_what_another_object_has_planned_counts_too(cluster: Client) -> None:
    first = object_plan(writes=(write("PATCH", f"{MAPS}/a", {"data": {}}),))
    second = object_plan(writes=(write("POST", MAPS, OBJECT, status=201),))
    plan = await with_admission(Plan((first, second)), cluster, lambda _: None)
    assert [each.result for one in plan.objects for each in one.admission or ()] == [
        Admission.SKIPPED,
        Admission.ACCEPTED,
    ]


async def test_a_write_of_several_rounds_is_asked_about_once(cluster: Client, api_server: ApiServer) -> None:
    same = write("PATCH", f"{MAPS}/a", {"data": {}})
    assert len(await ask(cluster, same, same)) == 1
    assert len(api_server.writes()) == 1
