import asyncio
import base64
import gzip
import json
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web
from kubernetes import client, config
from yarl import URL

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.proxy import Owner, Ownership, Proxy, ProxyCredentials, SessionSpec, bodies
from rolecall.runner.proxy.bodies import INLINE_BYTES, MAX_INSPECTED_BYTES, MAX_REQUEST_BYTES
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import DEMO, OPERATOR_TOKEN, Leadership, Run, until

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
CONFIG_MAP = GVK("", "v1", "ConfigMap")
REFERENCE = {"apiVersion": "demo.example.com/v1", "kind": "Demo", "name": "one", "uid": "uid-of-one"}


def config_map(name: str = "cm", **metadata: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "1"}}


def owners(api_server: ApiServer, path: str = f"{CONFIG_MAPS}/cm") -> object:
    return api_server.objects[path]["metadata"].get("ownerReferences")


# Who asks


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer ",
        "Bearer wrong",
        "Basic !!!",
        "Basic",
        "Digest x",
        "Basic " + base64.b64encode(b"x:y").decode(),
    ],
)
async def test_a_request_without_a_live_secret_gets_401_and_goes_nowhere(
    run: Run, api_server: ApiServer, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with aiohttp.request("GET", f"{run.credentials.url}/version", headers=headers) as answer:
        status = await answer.json()
    assert (answer.status, status["kind"], status["reason"]) == (401, "Status", "Unauthorized")
    assert api_server.received == []


@pytest.mark.parametrize("suffix", ["", ":", ":unused"])
async def test_the_secret_may_come_as_the_user_name(run: Run, api_server: ApiServer, suffix: str) -> None:
    value = base64.b64encode((run.credentials.secret + suffix).encode()).decode()
    headers = {"Authorization": f"Basic {value}"}
    async with aiohttp.request("GET", f"{run.credentials.url}{CONFIG_MAPS}", headers=headers) as answer:
        assert answer.status == 200
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN


async def test_the_operators_credentials_replace_the_runs(run: Run, api_server: ApiServer) -> None:
    async with run.session.get(CONFIG_MAPS):
        pass
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    assert run.credentials.secret not in str(api_server.last.headers)


async def test_revocation_ends_the_secret_also_on_an_open_connection(run: Run, api_server: ApiServer) -> None:
    async with run.session.get(CONFIG_MAPS) as answer:
        assert answer.status == 200
    before = len(api_server.received)
    await run.proxy.revoke(run.spec)
    async with run.session.get(CONFIG_MAPS) as answer:
        assert answer.status == 401
    assert len(api_server.received) == before


async def test_revocation_aborts_a_stream_on_both_sides(run: Run, api_server: ApiServer) -> None:
    async with run.session.get(CONFIG_MAPS, params={"watch": "true"}) as answer:
        await until(lambda: api_server.watchers == 1)
        await run.proxy.revoke(run.spec)
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    await until(lambda: api_server.watchers == 0)


async def test_revocation_leaves_other_runs_alone(start_run: Callable[..., Run], api_server: ApiServer) -> None:
    one, other = start_run("one"), start_run("other")
    async with other.session.get(CONFIG_MAPS, params={"watch": "true"}) as answer:
        await until(lambda: api_server.watchers == 1)
        await one.proxy.revoke(one.spec)
        api_server.watch_events.put_nowait(b"still here\n")
        assert await answer.content.readline() == b"still here\n"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", CONFIG_MAPS),
        ("PUT", f"{CONFIG_MAPS}/cm"),
        ("PATCH", f"{CONFIG_MAPS}/cm"),
        ("DELETE", f"{CONFIG_MAPS}/cm"),
        ("GET", "/api/v1/namespaces/ns/pods/one/exec"),
    ],
)
async def test_nothing_is_written_once_another_replica_may_lead(
    run: Run, api_server: ApiServer, leadership: Leadership, method: str, path: str
) -> None:
    leadership.may_write = False
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"} if method == "GET" else {}
    body = None if method == "GET" else config_map()
    async with run.session.request(method, path, json=body, headers=headers) as answer:
        status = await answer.json()
    assert (answer.status, status["reason"]) == (503, "ServiceUnavailable")
    assert "has not renewed its Lease in time" in status["message"]
    assert (method, path) not in {(request.method, request.target) for request in api_server.received}
    async with run.session.get(CONFIG_MAPS) as answer:
        assert answer.status == 200


async def test_leadership_is_looked_at_when_a_write_is_sent_not_when_it_begins(
    run: Run, api_server: ApiServer, leadership: Leadership
) -> None:
    begun = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"apiVersion": "v1", "kind": "ConfigMap", '
        await begun.wait()
        leadership.may_write = False
        yield b'"metadata": {"name": "cm"}}'

    headers = {"Content-Type": "application/json"}
    asking = asyncio.create_task(run.session.post(CONFIG_MAPS, data=body(), headers=headers).__aenter__())
    begun.set()
    assert (await asking).status == 503
    assert f"{CONFIG_MAPS}/cm" not in api_server.objects


class Slow:
    """An answer that waits until the test lets it go."""

    def __init__(self, answer: object) -> None:
        self.answer, self.reached, self.release = answer, asyncio.Event(), asyncio.Event()

    async def __call__(self, _: web.Request) -> web.Response:
        """Answer, when it is time."""
        self.reached.set()
        await self.release.wait()
        return web.json_response(self.answer, status=201)


async def test_a_write_that_the_api_server_has_ends_and_is_noted_before_revocation_does(
    run: Run, api_server: ApiServer
) -> None:
    slow = api_server.answers["POST", CONFIG_MAPS] = Slow(config_map(uid="u", resourceVersion="7"))
    asking = asyncio.create_task(run.session.post(CONFIG_MAPS, json=config_map()).__aenter__())
    await slow.reached.wait()
    revoking = asyncio.create_task(run.proxy.revoke(run.spec))
    with pytest.raises(aiohttp.ClientError):
        await asking
    assert not revoking.done()
    slow.release.set()
    await revoking
    assert [obj["metadata"]["resourceVersion"] for obj in run.written] == ["7"]


async def test_revocation_does_not_wait_for_ever_for_a_write(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.runner.proxy.sessions.WRITE_GRACE_SECONDS", 0.05)
    slow = api_server.answers["POST", CONFIG_MAPS] = Slow({})
    asking = asyncio.create_task(run.session.post(CONFIG_MAPS, json=config_map()).__aenter__())
    await slow.reached.wait()
    await run.proxy.revoke(run.spec)
    with pytest.raises(aiohttp.ClientError):
        await asking
    slow.release.set()
    assert run.written == []


async def test_a_write_that_was_only_being_prepared_is_not_sent_after_revocation(
    run: Run, api_server: ApiServer
) -> None:
    slow = api_server.answers["GET", f"{CONFIG_MAPS}/cm"] = Slow({})
    asking = asyncio.create_task(run.session.patch(f"{CONFIG_MAPS}/cm", json={}, headers=MERGE).__aenter__())
    await slow.reached.wait()
    revoking = asyncio.create_task(run.proxy.revoke(run.spec))
    with pytest.raises(aiohttp.ClientError):
        await asking
    slow.release.set()
    await revoking
    assert api_server.writes() == []


# Forwarding


async def test_path_query_and_body_arrive_as_they_were_sent(run: Run, api_server: ApiServer) -> None:
    target = "/api/v1/namespaces/ns/services/http:web:80/proxy/a%2Fb/?q=%20x&&y=1+2&labelSelector=a%3Db"
    url = URL(run.credentials.url + target, encoded=True)
    async with run.session.post(url, data=b"\x00raw", headers={"Content-Type": "text/x"}) as answer:
        await answer.read()
    assert (api_server.last.target, api_server.last.body) == (target, b"\x00raw")
    assert api_server.last.headers["Content-Type"] == "text/x"


async def test_an_answer_comes_back_as_it_is(run: Run, api_server: ApiServer) -> None:
    packed = gzip.compress(b"some text")

    async def answer_packed(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "X-Kubernetes-Pf-Flowschema-Uid": "f", "Warning": '299 - "old"'}
        return web.Response(status=207, reason="Odd", body=packed, headers=headers)

    api_server.answers["GET", "/version"] = answer_packed
    async with run.session.get("/version", auto_decompress=False) as answer:
        assert (answer.status, answer.reason, await answer.read()) == (207, "Odd", packed)
        assert answer.headers["Warning"] == '299 - "old"'
        assert answer.headers["Content-Encoding"] == "gzip"


async def test_head_has_the_length_but_no_body(run: Run, api_server: ApiServer) -> None:
    async def sized(_: web.Request) -> web.Response:
        return web.Response(body=b"12345")

    api_server.answers["HEAD", "/version"] = sized
    async with run.session.head("/version") as answer:
        assert (answer.headers["Content-Length"], await answer.read()) == ("5", b"")


async def test_a_redirect_is_the_clients_business(run: Run, api_server: ApiServer) -> None:
    async def moved(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    api_server.answers["GET", "/version"] = moved
    async with run.session.get("/version", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (307, "/elsewhere")


async def test_a_watch_streams_event_by_event(run: Run, api_server: ApiServer) -> None:
    async with run.session.get(CONFIG_MAPS, params={"watch": "true"}) as answer:
        for line in (b'{"type":"ADDED"}\n', b'{"type":"MODIFIED"}\n'):
            api_server.watch_events.put_nowait(line)
            assert await answer.content.readline() == line
        api_server.watch_events.put_nowait(b"")
        assert await answer.content.read() == b""


async def test_a_client_that_hangs_up_ends_the_watch_at_the_api_server(run: Run, api_server: ApiServer) -> None:
    async with run.session.get(CONFIG_MAPS, params={"watch": "true"}) as answer:
        await until(lambda: api_server.watchers == 1)
        answer.close()
    await until(lambda: api_server.watchers == 0)


LONGEST = MAX_REQUEST_BYTES - 1000


async def test_a_body_as_long_as_the_api_server_takes_passes(run: Run, api_server: ApiServer) -> None:
    big = config_map() | {"data": {"a": "x" * LONGEST}}
    async with run.session.post(CONFIG_MAPS, json=big) as answer:
        assert answer.status == 201
        assert len((await answer.json())["data"]["a"]) == LONGEST
    assert owners(api_server) == [REFERENCE]


async def a_mebibyte_at_a_time(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * (1 << 20)


@pytest.mark.parametrize("in_chunks", [False, True])
async def test_a_longer_body_gets_the_answer_of_an_api_server_and_goes_nowhere(
    run: Run, api_server: ApiServer, *, in_chunks: bool
) -> None:
    data = a_mebibyte_at_a_time(5) if in_chunks else b"x" * (MAX_REQUEST_BYTES + 1)
    async with run.session.post(CONFIG_MAPS, data=data) as answer:
        status = await answer.json()
    assert (answer.status, status["kind"], status["reason"]) == (413, "Status", "RequestEntityTooLarge")
    assert status["message"] == "Request entity too large: limit is 3145728"
    assert api_server.received == []


async def test_what_a_pod_behind_the_api_server_gets_may_be_of_any_length(run: Run, api_server: ApiServer) -> None:
    path = "/api/v1/namespaces/ns/pods/web/proxy/upload"

    async def take(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    api_server.answers["POST", path] = take
    async with run.session.post(path, data=a_mebibyte_at_a_time(5)) as answer:
        assert answer.status == 200
    assert len(api_server.last.body) == 5 << 20


@pytest.mark.parametrize(("length", "thread"), [(100, "MainThread"), (INLINE_BYTES, "proxy-bodies")])
async def test_a_large_body_is_decoded_outside_of_the_event_loop(
    run: Run, monkeypatch: pytest.MonkeyPatch, length: int, thread: str
) -> None:
    decode, threads = bodies.decode, set()

    def noting_decode(body: bytes, content_type: str) -> object:
        threads.add(threading.current_thread().name.partition("_")[0])
        return decode(body, content_type)

    for module in ("bodies", "conditional_writes"):
        monkeypatch.setattr(f"rolecall.runner.proxy.{module}.decode", noting_decode)
    for method in ("POST", "PUT"):
        path = CONFIG_MAPS if method == "POST" else f"{CONFIG_MAPS}/cm"
        async with run.session.request(method, path, json=config_map() | {"data": {"a": "x" * length}}) as answer:
            assert answer.status < 300
    assert threads == {thread}


async def test_a_body_of_thousands_of_levels_ends_nothing(run: Run, api_server: ApiServer) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_000)
    try:
        body = '{"metadata":{"name":"cm"},"spec":' + '{"a":' * 9_900 + "1" + "}" * 9_901

        async def take(_: web.Request) -> web.Response:
            return web.Response(text=body, content_type="application/json")

        api_server.answers["POST", CONFIG_MAPS] = take
        async with run.session.post(CONFIG_MAPS, data=body) as answer:
            assert (answer.status, await answer.text()) == (200, body)
    finally:
        sys.setrecursionlimit(limit)


async def test_a_broken_off_answer_does_not_look_complete(run: Run, api_server: ApiServer) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half of it")
        assert request.transport is not None
        request.transport.abort()
        return response

    api_server.answers["GET", "/version"] = break_off
    with pytest.raises(aiohttp.ClientError):
        async with run.session.get("/version") as answer:
            await answer.read()


async def test_an_api_server_that_is_gone_gives_503_with_the_reason(run: Run, api_server: ApiServer) -> None:
    assert api_server.stop is not None
    await api_server.stop()
    async with run.session.get("/version") as answer:
        status = await answer.json()
    assert (answer.status, status["kind"], status["reason"]) == (503, "Status", "ServiceUnavailable")
    assert f"the API server at {api_server.url} is unreachable" in status["message"]


async def test_an_api_server_that_hangs_up_gives_502(run: Run, api_server: ApiServer) -> None:
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    api_server.answers["POST", CONFIG_MAPS] = hang_up
    async with run.session.post(CONFIG_MAPS, json=config_map()) as answer:
        status = await answer.json()
    assert (answer.status, status["kind"], status["code"]) == (502, "Status", 502)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_api_server_that_stays_silent_gives_504(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    limit = aiohttp.ClientTimeout(total=None, sock_read=0.05)
    monkeypatch.setattr("rolecall.runner.proxy.forward.REQUEST_TIMEOUT", limit)

    async def stay_silent(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    api_server.answers[method, CONFIG_MAPS] = stay_silent
    async with run.session.request(method, CONFIG_MAPS, json=config_map()) as answer:
        status = await answer.json()
    assert (answer.status, status["kind"], status["reason"]) == (504, "Status", "Timeout")


async def test_silence_on_a_watch_is_no_failure(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = aiohttp.ClientTimeout(total=None, sock_read=0.05)
    monkeypatch.setattr("rolecall.runner.proxy.forward.REQUEST_TIMEOUT", limit)
    async with run.session.get(f"{CONFIG_MAPS}?watch=true") as answer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.content.readany(), 0.3)
        api_server.watch_events.put_nowait(b"late\n")
        assert await answer.content.readline() == b"late\n"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_group_that_cannot_be_discovered_gives_its_own_answers_and_spoils_no_other(
    run: Run, api_server: ApiServer, method: str
) -> None:
    async def be_down(_: web.Request) -> web.Response:
        status = {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "metrics is down"}
        return web.json_response(status, status=503)

    async def read(_: web.Request) -> web.Response:
        return web.json_response({"kind": "PodMetrics", "metadata": {"uid": "x", "ownerReferences": [REFERENCE]}})

    api_server.answers["GET", "/apis/metrics.example.com/v1"] = be_down
    path = "/apis/metrics.example.com/v1/namespaces/ns/pods"
    api_server.answers["GET", path] = read
    async with run.session.request(method, path, json=config_map()) as answer:
        content = await answer.json()
    assert (answer.status, content["kind"]) == ((200, "PodMetrics") if method == "GET" else (503, "Status"))
    assert method == "GET" or (content["message"], api_server.objects) == ("metrics is down", {})
    async with run.session.post(CONFIG_MAPS, json=config_map()) as answer:
        assert answer.status == 201
    assert owners(api_server) == [REFERENCE]


# Owners


async def test_post_injects_the_owner_reference(run: Run, api_server: ApiServer) -> None:
    async with run.session.post(CONFIG_MAPS, json=config_map()) as answer:
        assert answer.status == 201
    assert owners(api_server) == [REFERENCE]
    assert run.dependents == [(CONFIG_MAP, Ownership.OWNER_REFERENCE)]


async def test_the_dependent_is_reported_before_it_can_exist(run: Run, api_server: ApiServer) -> None:
    reported_when_created: list[int] = []

    async def look(_: web.Request) -> web.Response:
        reported_when_created.append(len(run.dependents))
        return web.json_response(config_map(), status=201)

    api_server.answers["POST", CONFIG_MAPS] = look
    async with run.session.post(CONFIG_MAPS, json=config_map()):
        pass
    assert reported_when_created == [1]


async def test_what_is_to_have_no_owner_gets_none_unless_it_names_it_itself(run: Run, api_server: ApiServer) -> None:
    free = {"annotations": {"rolecall.dev/adopt": "false"}}
    for name, metadata, expected in (
        ("cm", free, None),
        ("own", {**free, "ownerReferences": [REFERENCE]}, [REFERENCE]),
    ):
        async with run.session.post(CONFIG_MAPS, json=config_map(name, **metadata)) as answer:
            assert answer.status == 201
        assert owners(api_server, f"{CONFIG_MAPS}/{name}") == expected
        assert len(run.dependents) == len(expected or ())


async def test_generate_name_and_dry_run_get_the_owner_too(run: Run, api_server: ApiServer) -> None:
    body = {"metadata": {"generateName": "cm-"}}
    async with run.session.post(CONFIG_MAPS, json=body, params={"dryRun": "All"}):
        pass
    assert owners(api_server, f"{CONFIG_MAPS}/generated") == [REFERENCE]


async def test_yaml_is_read_and_its_dates_stay_text(run: Run, api_server: ApiServer) -> None:
    text = "metadata:\n  name: cm\n  labels:\n    day: 2020-01-02\n"
    async with run.session.post(CONFIG_MAPS, data=text, headers={"Content-Type": "application/yaml"}):
        pass
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
async def test_a_body_that_cannot_be_read_passes_unchanged(
    run: Run, api_server: ApiServer, body: bytes, content_type: str
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": 400}, status=400)

    api_server.answers["POST", CONFIG_MAPS] = refuse
    async with run.session.post(CONFIG_MAPS, data=body, headers={"Content-Type": content_type}) as answer:
        assert answer.status == 400
    assert api_server.last.body == body


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/ns/pods/web/eviction",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/unknown.example.com/v1/namespaces/ns/things",
        "/api/v1/namespaces/ns/events",
        "/healthz",
    ],
)
async def test_what_is_not_kept_gets_no_owner(run: Run, api_server: ApiServer, path: str) -> None:
    body = b'{"metadata": {"name": "x"}}'
    async with run.session.post(path, data=body, headers={"Content-Type": "application/json"}):
        pass
    assert api_server.last.body == body
    assert run.dependents == []


async def test_another_namespace_and_cluster_scope_get_annotations(run: Run, api_server: ApiServer) -> None:
    for path, name in (("/api/v1/namespaces/far/configmaps", "cm"), ("/api/v1/namespaces", "fresh")):
        async with run.session.post(path, json={"metadata": {"name": name}}):
            pass
        metadata = api_server.objects[f"{path}/{name}"]["metadata"]
        assert metadata["annotations"] == {
            "operator-sdk/primary-resource": "ns/one",
            "operator-sdk/primary-resource-type": "Demo.demo.example.com",
        }
        assert "ownerReferences" not in metadata
    assert run.dependents == [(CONFIG_MAP, Ownership.ANNOTATION), (GVK("", "v1", "Namespace"), Ownership.ANNOTATION)]


async def test_a_cluster_scoped_primary_owns_by_reference(start_run: Callable[..., Run], api_server: ApiServer) -> None:
    run = start_run("one", namespace="")
    async with run.session.post(CONFIG_MAPS, json=config_map()):
        pass
    assert owners(api_server) == [REFERENCE]


async def test_without_injection_nothing_is_changed_or_reported(
    start_run: Callable[..., Run], api_server: ApiServer
) -> None:
    run = start_run(inject_owner=False)
    async with run.session.post(CONFIG_MAPS, json=config_map()):
        pass
    assert owners(api_server) is None
    api_server.add(f"{CONFIG_MAPS}/old", ownerReferences=[REFERENCE])
    async with run.session.get(f"{CONFIG_MAPS}/old"):
        pass
    assert run.dependents == []
    assert len(run.written) == 1


async def test_the_primary_does_not_own_itself(run: Run, api_server: ApiServer) -> None:
    demos = "/apis/demo.example.com/v1/namespaces/ns/demos"
    for name in ("one", "two"):
        async with run.session.post(demos, json={"metadata": {"name": name}}):
            pass
    assert owners(api_server, f"{demos}/one") is None
    assert owners(api_server, f"{demos}/two") == [REFERENCE]


APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}


PUT_AND_APPLY = pytest.mark.parametrize(
    ("method", "headers"), [("PUT", {"Content-Type": "application/json"}), ("PATCH", APPLY)]
)


@PUT_AND_APPLY
async def test_put_and_apply_inject_when_the_object_is_not_there(
    run: Run, api_server: ApiServer, method: str, headers: dict[str, str]
) -> None:
    body = json.dumps(config_map())
    async with run.session.request(method, f"{CONFIG_MAPS}/cm", data=body, headers=headers) as answer:
        assert answer.status == 201
    assert owners(api_server) == [REFERENCE]
    assert run.dependents == [(CONFIG_MAP, Ownership.OWNER_REFERENCE)]


@PUT_AND_APPLY
async def test_put_and_apply_leave_an_existing_object_alone(
    run: Run, api_server: ApiServer, method: str, headers: dict[str, str]
) -> None:
    api_server.add(f"{CONFIG_MAPS}/cm")
    body = json.dumps(config_map())
    async with run.session.request(method, f"{CONFIG_MAPS}/cm", data=body, headers=headers):
        pass
    assert owners(api_server) is None
    assert api_server.objects[f"{CONFIG_MAPS}/cm"]["data"] == {"a": "1"}
    assert run.dependents == []


@PUT_AND_APPLY
async def test_put_and_apply_adopt_when_the_annotation_asks_for_it(
    run: Run, api_server: ApiServer, method: str, headers: dict[str, str]
) -> None:
    api_server.add(f"{CONFIG_MAPS}/cm")
    body = json.dumps(config_map(annotations={"rolecall.dev/adopt": "true"}))
    async with run.session.request(method, f"{CONFIG_MAPS}/cm", data=body, headers=headers):
        pass
    assert owners(api_server) == [REFERENCE]


@PUT_AND_APPLY
async def test_put_and_apply_keep_the_reference_that_the_object_has(
    run: Run, api_server: ApiServer, method: str, headers: dict[str, str]
) -> None:
    mine = REFERENCE | {"controller": True}
    api_server.add(f"{CONFIG_MAPS}/cm", ownerReferences=[{"uid": "other"}, mine])
    body = json.dumps(config_map())
    async with run.session.request(method, f"{CONFIG_MAPS}/cm", data=body, headers=headers):
        pass
    assert owners(api_server) == [mine]


@PUT_AND_APPLY
async def test_put_and_apply_drop_the_reference_when_the_role_says_so(
    run: Run, api_server: ApiServer, method: str, headers: dict[str, str]
) -> None:
    api_server.add(f"{CONFIG_MAPS}/cm", ownerReferences=[REFERENCE])
    body = json.dumps(config_map(ownerReferences=[]))
    async with run.session.request(method, f"{CONFIG_MAPS}/cm", data=body, headers=headers):
        pass
    assert owners(api_server) == []


@PUT_AND_APPLY
async def test_put_and_apply_leave_an_object_alone_that_may_not_be_read(
    run: Run, api_server: ApiServer, method: str, headers: dict[str, str]
) -> None:
    async def forbid(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": 403}, status=403)

    api_server.answers["GET", f"{CONFIG_MAPS}/cm"] = forbid
    body = json.dumps(config_map())
    async with run.session.request(method, f"{CONFIG_MAPS}/cm", data=body, headers=headers):
        pass
    assert api_server.last.body == body.encode()


async def test_a_merge_patch_gets_no_owner(run: Run, api_server: ApiServer) -> None:
    api_server.add(f"{CONFIG_MAPS}/cm")
    async with run.session.patch(f"{CONFIG_MAPS}/cm", json={"metadata": {"labels": {"a": "b"}}}, headers=MERGE):
        pass
    assert owners(api_server) is None
    assert run.dependents == []


async def test_a_merge_patch_adopts_and_keeps_the_other_owners(run: Run, api_server: ApiServer) -> None:
    other = {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "other"}
    api_server.add(f"{CONFIG_MAPS}/cm", ownerReferences=[other])
    body = json.dumps(config_map(annotations={"rolecall.dev/adopt": "true"}))
    async with run.session.patch(f"{CONFIG_MAPS}/cm", data=body, headers=MERGE):
        pass
    assert owners(api_server) == [other, REFERENCE]


# What was written and read


async def test_every_write_is_noted_with_its_version(run: Run) -> None:
    async with run.session.post(CONFIG_MAPS, json=config_map()) as answer:
        created = await answer.json()
    async with run.session.patch(f"{CONFIG_MAPS}/cm", json={"data": {}}, headers=MERGE) as answer:
        patched = await answer.json()
    assert [obj["metadata"]["resourceVersion"] for obj in run.written] == [
        created["metadata"]["resourceVersion"],
        patched["metadata"]["resourceVersion"],
    ]


async def test_reads_failures_statuses_and_dry_runs_are_not_noted(run: Run, api_server: ApiServer) -> None:
    async def conflict(_: web.Request) -> web.Response:
        return web.json_response(api_server.objects[f"{CONFIG_MAPS}/cm"], status=409)

    api_server.add(f"{CONFIG_MAPS}/cm")
    api_server.answers["PUT", f"{CONFIG_MAPS}/cm"] = conflict
    for method, path in (
        ("GET", f"{CONFIG_MAPS}/cm"),
        ("PUT", f"{CONFIG_MAPS}/cm"),
        ("POST", f"{CONFIG_MAPS}?dryRun=All"),
        ("DELETE", f"{CONFIG_MAPS}/cm"),
    ):
        async with run.session.request(method, path, json=config_map()):
            pass
    assert run.written == []


async def test_a_client_that_prefers_protobuf_gets_json_for_its_writes(run: Run, api_server: ApiServer) -> None:
    accept = {"Accept": "application/vnd.kubernetes.protobuf,application/json", "Accept-Encoding": "gzip"}
    async with run.session.post(CONFIG_MAPS, json=config_map(), headers=accept):
        pass
    assert api_server.last.headers["Accept"] == "application/json"
    assert "Accept-Encoding" not in api_server.last.headers


@pytest.mark.parametrize("path", [f"{CONFIG_MAPS}/old", CONFIG_MAPS])
async def test_a_dependent_that_is_read_is_reported_once(run: Run, api_server: ApiServer, path: str) -> None:
    api_server.add(f"{CONFIG_MAPS}/old", ownerReferences=[REFERENCE])
    api_server.add(f"{CONFIG_MAPS}/foreign", ownerReferences=[REFERENCE | {"uid": "x"}])
    for _ in range(2):
        async with run.session.get(path) as answer:
            await answer.read()
    assert run.dependents == [(CONFIG_MAP, Ownership.OWNER_REFERENCE)]


async def test_a_dependent_that_is_read_by_annotation_is_reported(run: Run, api_server: ApiServer) -> None:
    annotations = {
        "operator-sdk/primary-resource": "ns/one",
        "operator-sdk/primary-resource-type": "Demo.demo.example.com",
    }
    api_server.add("/api/v1/namespaces/far/configmaps/old", annotations=annotations)
    async with run.session.get("/api/v1/namespaces/far/configmaps") as answer:
        await answer.read()
    assert run.dependents == [(CONFIG_MAP, Ownership.ANNOTATION)]


@pytest.mark.parametrize("cut", [0, 30])
async def test_a_packed_list_is_looked_through(run: Run, api_server: ApiServer, cut: int) -> None:
    items = [{"metadata": {"name": str(i), "uid": str(i), "ownerReferences": [REFERENCE]}} for i in range(50)]
    packed = gzip.compress(json.dumps({"kind": "ConfigMapList", "items": items}).encode())

    async def answer_packed(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=packed[: len(packed) - cut], headers=headers)

    api_server.answers["GET", CONFIG_MAPS] = answer_packed
    async with run.session.get(CONFIG_MAPS, auto_decompress=False) as answer:
        assert await answer.read() == packed[: len(packed) - cut]
    assert run.dependents == ([] if cut else [(CONFIG_MAP, Ownership.OWNER_REFERENCE)])


async def test_a_list_that_is_huge_only_when_it_is_unpacked_passes_without_being_looked_through(
    run: Run, api_server: ApiServer
) -> None:
    item = {"metadata": {"name": "a", "uid": "a", "ownerReferences": [REFERENCE]}, "data": {"a": "x" * (64 << 20)}}
    packed = gzip.compress(json.dumps({"kind": "ConfigMapList", "items": [item]}).encode())

    async def answer_packed(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=packed, headers=headers)

    api_server.answers["GET", CONFIG_MAPS] = answer_packed
    tracemalloc.start()
    try:
        async with run.session.get(CONFIG_MAPS, auto_decompress=False) as answer:
            assert await answer.read() == packed
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_INSPECTED_BYTES
    finally:
        tracemalloc.stop()
    assert run.dependents == []


async def test_a_list_beyond_the_limit_passes_without_being_looked_through(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.runner.proxy.server.MAX_INSPECTED_BYTES", 100)
    for number in range(20):
        api_server.add(f"{CONFIG_MAPS}/{number}", ownerReferences=[REFERENCE])
    async with run.session.get(CONFIG_MAPS) as answer:
        assert len((await answer.json())["items"]) == 20
    assert run.dependents == []


async def test_a_fault_of_the_proxys_own_is_a_status_too_and_creates_nothing(
    proxy: Proxy, api_server: ApiServer
) -> None:
    def fail(resource: ApiResource, ownership: Ownership) -> None:
        raise LookupError(f"no watch on {resource.gvk} by {ownership}")

    owner = Owner(DEMO, ObjectKey("ns", "one"), "uid", namespaced=True)
    spec = SessionSpec(owner, on_write=print, on_dependent=fail)
    headers = {"Authorization": f"Bearer {proxy.register(spec).secret}"}
    async with aiohttp.request("POST", proxy.url + CONFIG_MAPS, json=config_map(), headers=headers) as answer:
        status = await answer.json()
    assert (answer.status, status["reason"]) == (500, "InternalError")
    assert "no watch on" in status["message"]
    assert api_server.objects == {}


async def test_a_client_that_asks_before_it_sends_a_body_is_told_to_go_on(run: Run, api_server: ApiServer) -> None:
    async with run.session.post(CONFIG_MAPS, json=config_map(), expect100=True) as answer:
        assert answer.status == 201
    assert "Expect" not in api_server.last.headers


async def test_an_object_that_only_mentions_the_owner_is_not_reported(run: Run, api_server: ApiServer) -> None:
    api_server.add(f"{CONFIG_MAPS}/old", labels={"about": "uid-of-one"})
    async with run.session.get(CONFIG_MAPS) as answer:
        await answer.read()
    assert run.dependents == []


async def test_a_client_that_does_not_read_is_not_read_ahead_for(run: Run, api_server: ApiServer) -> None:
    limit, sent = 64 << 20, [0]

    async def pour(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while sent[0] < limit:
            await response.write(bytes(1 << 16))
            sent[0] += 1 << 16
        return response

    api_server.answers["GET", "/api/v1/namespaces/ns/pods/web/log"] = pour
    async with run.session.get("/api/v1/namespaces/ns/pods/web/log?follow=true"):
        before = -1
        while before != sent[0]:
            before = sent[0]
            await asyncio.sleep(0.2)  # it has stopped when nothing moves for so long
        assert 0 < before < limit


# What is told before a write


async def test_the_group_of_a_write_is_told_before_it_is_sent(run: Run, api_server: ApiServer) -> None:
    told: list[tuple[str, int]] = []
    spec = replace(run.spec, before_write=lambda group: told.append((group, len(api_server.received))))
    run.session.headers["Authorization"] = f"Bearer {run.proxy.register(spec).secret}"
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for target in (path, f"{path}?dryRun=All", CONFIG_MAPS):
        async with run.session.post(target, json=config_map()) as answer:
            await answer.read()
    async with run.session.get(path) as answer:
        await answer.read()
    writes = [number for number, request in enumerate(api_server.received) if request.method == "POST"]
    assert [group for group, _ in told] == ["apiextensions.k8s.io", ""]
    assert [received for _, received in told] == [writes[0], writes[2]]


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def address(run: Run) -> str:
    return run.credentials.url.removeprefix("http://")


async def ask(connection: Connection, text: str) -> bytes:
    """Send lines and return the head of the response."""
    reader, writer = connection
    writer.write(text.replace("\n", "\r\n").encode())
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)


async def connected(run: Run, destination: str = "") -> Connection:
    """Open a connection and a CONNECT tunnel in it; check the status of the response."""
    connection = await asyncio.open_connection("127.0.0.1", int(address(run).rpartition(":")[2]))
    user = base64.b64encode(f"{run.credentials.secret}:".encode()).decode()
    to = destination or address(run)
    head = await ask(connection, f"CONNECT {to} HTTP/1.1\nHost: {to}\nProxy-Authorization: Basic {user}\n\n")
    assert head.startswith(b"HTTP/1.1 403" if destination else b"HTTP/1.1 200 ")
    return connection


async def test_a_client_may_use_the_proxy_as_an_http_proxy(run: Run, api_server: ApiServer) -> None:
    proxy_url = run.credentials.url.replace("://", f"://{run.credentials.secret}@")
    url = f"{run.credentials.url}{CONFIG_MAPS}?limit=5"
    async with aiohttp.request("GET", url, proxy=proxy_url) as answer:
        assert answer.status == 200
    assert api_server.last.target == f"{CONFIG_MAPS}?limit=5"
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    assert "Proxy-Authorization" not in api_server.last.headers


async def test_requests_within_a_connection_belong_to_the_run_that_asked_for_it(
    run: Run, api_server: ApiServer
) -> None:
    connection = await connected(run)
    for _ in range(2):
        head = await ask(connection, f"GET {CONFIG_MAPS} HTTP/1.1\nHost: x\n\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await connection[0].readexactly(length)
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    connection[1].close()


async def test_an_upgrade_within_a_connection_passes(run: Run, api_server: ApiServer) -> None:
    connection = await connected(run)
    upgrade = (
        "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: " + "A" * 22 + "==\n"
    )
    head = await ask(connection, f"GET /api/v1/namespaces/ns/pods/web/exec HTTP/1.1\nHost: x\n{upgrade}\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    connection[1].write(b"\x82\x83\0\0\0\0abc")
    assert await connection[0].readexactly(5) == b"\x82\x03cba"
    connection[1].close()
    await until(lambda: not run.proxy._tunnels._callers)
    assert len(api_server.received) == 1


async def test_revocation_ends_the_connection(run: Run, api_server: ApiServer) -> None:
    reader, writer = await connected(run)
    await run.proxy.revoke(run.spec)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    assert api_server.received == []


async def test_a_request_in_the_connection_of_a_revoked_run_is_refused(run: Run, api_server: ApiServer) -> None:
    """It may arrive when the revocation has begun and the connection is not closed yet."""
    connection = await connected(run)
    (caller,) = run.proxy._tunnels._callers.values()
    caller.session.is_revoked = True
    head = await ask(connection, f"DELETE {CONFIG_MAPS}/one HTTP/1.1\nHost: x\n\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert api_server.received == []
    connection[1].close()


async def test_a_client_that_hangs_up_leaves_nothing(run: Run) -> None:
    _, writer = await connected(run)
    writer.close()
    await until(lambda: not run.proxy._tunnels._callers)


@pytest.mark.parametrize("destination", ["example.com:443", "127.0.0.1:1", "nonsense"])
async def test_any_other_destination_is_refused(run: Run, destination: str) -> None:
    _, writer = await connected(run, destination)
    writer.close()


async def test_without_a_live_secret_there_is_no_connection(run: Run) -> None:
    connection = await asyncio.open_connection("127.0.0.1", int(address(run).rpartition(":")[2]))
    head = await ask(connection, f"CONNECT {address(run)} HTTP/1.1\nHost: x\n\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    connection[1].close()


CREDENTIALS = ProxyCredentials("http://127.0.0.1:4711", "s3cret", "ns")


def test_the_secret_is_in_no_repr() -> None:
    assert "s3cret" not in repr(CREDENTIALS)


def test_the_url_for_kubernetes_core_holds_no_secret() -> None:
    environment = CREDENTIALS.environment({})
    assert environment["K8S_AUTH_HOST"] == "http://127.0.0.1:4711"
    assert environment["K8S_AUTH_API_KEY"] == "s3cret"


@pytest.mark.parametrize(
    ("inherited", "upper", "lower"),
    [
        ({"HTTP_PROXY": "http://p:1"}, "127.0.0.1,localhost", None),
        ({"http_proxy": "http://p:1"}, "127.0.0.1,localhost", None),
        ({"HTTPS_PROXY": "http://p:1"}, "127.0.0.1,localhost", None),
        ({"https_proxy": "http://p:1", "NO_PROXY": ""}, "127.0.0.1,localhost", None),
        ({"NO_PROXY": ".svc, 10.0.0.1"}, ".svc,10.0.0.1,127.0.0.1,localhost", None),
        ({"NO_PROXY": "localhost"}, "localhost,127.0.0.1", None),
        ({"no_proxy": ".svc"}, ".svc,127.0.0.1,localhost", None),
        ({"NO_PROXY": "", "no_proxy": ".svc"}, ".svc,127.0.0.1,localhost", None),
        ({"NO_PROXY": "a", "no_proxy": "b"}, "a,127.0.0.1,localhost", "b,127.0.0.1,localhost"),
    ],
)
def test_loopback_is_reached_without_a_proxy_and_so_is_what_the_operator_excludes(
    inherited: dict[str, str], upper: str, lower: str | None
) -> None:
    """Go programs look at NO_PROXY first, Python at no_proxy, so neither may hide what only the other says."""
    environment = CREDENTIALS.environment(inherited)
    assert (environment["NO_PROXY"], environment["no_proxy"]) == (upper, lower or upper)


@pytest.mark.parametrize("inherited", [{}, {"NO_PROXY": "", "https_proxy": ""}, {"PATH": "/bin"}])
def test_runs_get_no_proxy_variables_where_no_proxy_is_configured(inherited: dict[str, str]) -> None:
    """Roles copy these variables into the cluster, as ``lookup('env', 'NO_PROXY')``."""
    assert set(CREDENTIALS.environment(inherited)) == {"K8S_AUTH_HOST", "K8S_AUTH_API_KEY"}


def test_the_kubeconfig_names_everything_as_the_go_runner_does() -> None:
    content = yaml.safe_load(CREDENTIALS.kubeconfig())
    assert content["current-context"] == "ns/proxy-server"
    assert content["contexts"] == [
        {"name": "ns/proxy-server", "context": {"cluster": "proxy-server", "user": "admin/proxy-server"}}
    ]
    assert content["clusters"] == [
        {
            "name": "proxy-server",
            "cluster": {"server": "http://127.0.0.1:4711", "proxy-url": "http://s3cret:unused@127.0.0.1:4711"},
        }
    ]
    assert content["users"] == [{"name": "admin/proxy-server", "user": {"token": "s3cret"}}]


def test_a_cluster_scoped_primary_has_a_context_without_namespace() -> None:
    assert yaml.safe_load(ProxyCredentials("http://h:1", "s").kubeconfig())["current-context"] == "/proxy-server"


@pytest.mark.parametrize("no_proxy", ["", "127.0.0.1"])
async def test_the_python_client_is_let_in_by_the_kubeconfig(
    run: Run, api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: str
) -> None:
    async def version(_: web.Request) -> web.Response:
        names = ("major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion")
        return web.json_response(dict.fromkeys((*names, "compiler", "platform"), "1"))

    api_server.answers["GET", "/version/"] = version
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, no_proxy)
    path = tmp_path / "kubeconfig"
    path.write_text(run.credentials.kubeconfig())

    def ask() -> str:
        with config.new_client_from_config(str(path)) as api:
            return json.dumps(client.VersionApi(api).get_code().to_dict())

    assert '"major": "1"' in await asyncio.to_thread(ask)
