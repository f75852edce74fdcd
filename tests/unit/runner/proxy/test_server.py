import asyncio
import base64
import gzip
import sys
import threading
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from yarl import URL

from rolecall.kube.bodies import decode
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy.bodies import INLINE_BYTES, MAX_REQUEST_BYTES
from rolecall.runner.proxy.ownership import Owner, Ownership
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import ProxiedRun
from tests.support.proxied_run import ReportedRun
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import (
    CONFIG_MAPS,
    DEMO,
    MERGE,
    OPERATOR_TOKEN,
    REFERENCE,
    Leadership,
    Run,
    config_map,
    owners,
    until,
)
from tests.unit.runner.serving.test_servers import INVALID, send_invalid


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
async def test_request_without_valid_secret_is_not_forwarded(
    run: Run, api_server: ApiServer, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with aiohttp.request("GET", f"{run.credentials.url}/version", headers=headers) as response:
        status = await response.json()
    assert (response.status, status["kind"], status["reason"]) == (401, "Status", "Unauthorized")
    assert api_server.received == []


@pytest.mark.parametrize("suffix", ["", ":", ":unused"])
async def test_secret_is_accepted_as_user_name(run: Run, api_server: ApiServer, suffix: str) -> None:
    value = base64.b64encode((run.credentials.secret + suffix).encode()).decode()
    headers = {"Authorization": f"Basic {value}"}
    async with aiohttp.request("GET", f"{run.credentials.url}{CONFIG_MAPS}", headers=headers) as response:
        assert response.status == 200
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN


async def test_credentials_of_operator_replace_those_of_run(run: Run, api_server: ApiServer) -> None:
    await run.send("GET", CONFIG_MAPS)
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    assert run.credentials.secret not in str(api_server.last.headers)


async def test_revocation_invalidates_secret_on_open_connection(run: Run, api_server: ApiServer) -> None:
    assert (await run.send("GET", CONFIG_MAPS)).status == 200
    before = len(api_server.received)
    await run.proxy.revoke(run.itself)
    assert (await run.send("GET", CONFIG_MAPS)).status == 401
    assert len(api_server.received) == before


async def test_revocation_aborts_stream_on_both_sides(run: Run, api_server: ApiServer) -> None:
    async with run.session.get(CONFIG_MAPS, params={"watch": "true"}) as response:
        await until(lambda: api_server.watchers == 1)
        await run.proxy.revoke(run.itself)
        with pytest.raises(aiohttp.ClientError):
            await response.read()
    await until(lambda: api_server.watchers == 0)


async def test_revocation_does_not_affect_other_runs(start_run: Callable[..., Run], api_server: ApiServer) -> None:
    one, other = start_run("one"), start_run("other")
    async with other.session.get(CONFIG_MAPS, params={"watch": "true"}) as response:
        await until(lambda: api_server.watchers == 1)
        await one.proxy.revoke(one.itself)
        api_server.watch_events.put_nowait(b"still here\n")
        assert await response.content.readline() == b"still here\n"


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
async def test_write_is_rejected_when_another_replica_may_lead(
    run: Run, api_server: ApiServer, leadership: Leadership, method: str, path: str
) -> None:
    leadership.may_write = False
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"} if method == "GET" else {}
    body = None if method == "GET" else config_map()
    response = await run.send(method, path, json=body, headers=headers)
    status = response.json()
    assert (response.status, status["reason"]) == (503, "ServiceUnavailable")
    assert "has not renewed its Lease in time" in status["message"]
    assert (method, path) not in {(request.method, request.target) for request in api_server.received}
    assert (await run.send("GET", CONFIG_MAPS)).status == 200


async def test_leadership_is_checked_when_write_is_sent(
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
    """A response that waits for the test."""

    def __init__(self, content: object) -> None:
        self.content, self.reached, self.release = content, asyncio.Event(), asyncio.Event()

    async def __call__(self, _: web.Request) -> web.Response:
        """Respond when the test allows it."""
        self.reached.set()
        await self.release.wait()
        return web.json_response(self.content, status=201)


async def test_write_in_flight_ends_and_is_recorded_before_revocation_ends(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.runner.proxy.sessions.WRITE_GRACE_SECONDS", 60)
    slow = api_server.handlers["POST", CONFIG_MAPS] = Slow(config_map(uid="u", resourceVersion="7"))
    asking = asyncio.create_task(run.session.post(CONFIG_MAPS, json=config_map()).__aenter__())
    await slow.reached.wait()
    revoking = asyncio.create_task(run.proxy.revoke(run.itself))
    with pytest.raises(aiohttp.ClientError):
        await asking
    assert not revoking.done()
    slow.release.set()
    await revoking
    assert [obj["metadata"]["resourceVersion"] for obj in run.itself.written] == ["7"]


async def test_revocation_waits_for_write_for_limited_time(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.runner.proxy.sessions.WRITE_GRACE_SECONDS", 0.05)
    slow = api_server.handlers["POST", CONFIG_MAPS] = Slow({})
    asking = asyncio.create_task(run.session.post(CONFIG_MAPS, json=config_map()).__aenter__())
    await slow.reached.wait()
    await run.proxy.revoke(run.itself)
    with pytest.raises(aiohttp.ClientError):
        await asking
    slow.release.set()
    assert run.itself.written == []


async def test_write_in_preparation_is_not_sent_after_revocation(run: Run, api_server: ApiServer) -> None:
    slow = api_server.handlers["GET", f"{CONFIG_MAPS}/cm"] = Slow({})
    asking = asyncio.create_task(run.session.patch(f"{CONFIG_MAPS}/cm", json={}, headers=MERGE).__aenter__())
    await slow.reached.wait()
    revoking = asyncio.create_task(run.proxy.revoke(run.itself))
    with pytest.raises(aiohttp.ClientError):
        await asking
    slow.release.set()
    await revoking
    assert api_server.writes() == []


async def test_path_query_and_body_are_forwarded_unchanged(run: Run, api_server: ApiServer) -> None:
    target = "/api/v1/namespaces/ns/services/http:web:80/proxy/a%2Fb/?q=%20x&&y=1+2&labelSelector=a%3Db"
    url = URL(run.credentials.url + target, encoded=True)
    await run.send("POST", url, data=b"\x00raw", headers={"Content-Type": "text/x"})
    assert (api_server.last.target, api_server.last.body) == (target, b"\x00raw")
    assert api_server.last.headers["Content-Type"] == "text/x"


async def test_response_is_forwarded_unchanged(run: Run, api_server: ApiServer) -> None:
    packed = gzip.compress(b"some text")

    async def respond(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "X-Kubernetes-Pf-Flowschema-Uid": "f", "Warning": '299 - "old"'}
        return web.Response(status=207, reason="Odd", body=packed, headers=headers)

    api_server.handlers["GET", "/version"] = respond
    async with run.session.get("/version", auto_decompress=False) as response:
        assert (response.status, response.reason, await response.read()) == (207, "Odd", packed)
        assert response.headers["Warning"] == '299 - "old"'
        assert response.headers["Content-Encoding"] == "gzip"


async def test_head_has_length_but_no_body(run: Run, api_server: ApiServer) -> None:
    api_server.respond("HEAD", "/version", b"12345")
    response = await run.send("HEAD", "/version")
    assert (response.headers["Content-Length"], response.body) == ("5", b"")


async def test_redirect_is_not_followed(run: Run, api_server: ApiServer) -> None:
    api_server.respond("GET", "/version", b"", 307, Location="/elsewhere")
    response = await run.send("GET", "/version", allow_redirects=False)
    assert (response.status, response.headers["Location"]) == (307, "/elsewhere")


async def test_watch_events_are_forwarded_one_by_one(run: Run, api_server: ApiServer) -> None:
    async with run.session.get(CONFIG_MAPS, params={"watch": "true"}) as response:
        for line in (b'{"type":"ADDED"}\n', b'{"type":"MODIFIED"}\n'):
            api_server.watch_events.put_nowait(line)
            assert await response.content.readline() == line
        api_server.watch_events.put_nowait(b"")
        assert await response.content.read() == b""


async def test_disconnected_client_ends_watch_at_api_server(run: Run, api_server: ApiServer) -> None:
    async with run.session.get(CONFIG_MAPS, params={"watch": "true"}) as response:
        await until(lambda: api_server.watchers == 1)
        response.close()
    await until(lambda: api_server.watchers == 0)


LONGEST = MAX_REQUEST_BYTES - 1000


async def test_body_of_maximum_length_is_forwarded(run: Run, api_server: ApiServer) -> None:
    big = config_map() | {"data": {"a": "x" * LONGEST}}
    response = await run.send("POST", CONFIG_MAPS, json=big)
    assert response.status == 201
    assert len((response.json())["data"]["a"]) == LONGEST
    assert owners(api_server) == [REFERENCE]


async def a_mebibyte_at_a_time(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * (1 << 20)


@pytest.mark.parametrize("in_chunks", [False, True])
async def test_longer_body_is_rejected_as_by_api_server(run: Run, api_server: ApiServer, *, in_chunks: bool) -> None:
    data = a_mebibyte_at_a_time(5) if in_chunks else b"x" * (MAX_REQUEST_BYTES + 1)
    response = await run.send("POST", CONFIG_MAPS, data=data)
    status = response.json()
    assert (response.status, status["kind"], status["reason"]) == (413, "Status", "RequestEntityTooLarge")
    assert status["message"] == "Request entity too large: limit is 3145728"
    assert api_server.received == []


async def test_body_for_pod_behind_api_server_may_have_any_length(run: Run, api_server: ApiServer) -> None:
    path = "/api/v1/namespaces/ns/pods/web/proxy/upload"
    api_server.respond("POST", path, b"ok")
    assert (await run.send("POST", path, data=a_mebibyte_at_a_time(5))).status == 200
    assert len(api_server.last.body) == 5 << 20


@pytest.mark.parametrize(("length", "thread"), [(100, "MainThread"), (INLINE_BYTES, "proxy-bodies")])
async def test_large_body_is_decoded_outside_event_loop(
    run: Run, monkeypatch: pytest.MonkeyPatch, length: int, thread: str
) -> None:
    threads = set()

    def recording_decode(body: bytes, content_type: str, *, unique: bool = False) -> object:
        threads.add(threading.current_thread().name.partition("_")[0])
        return decode(body, content_type, unique=unique)

    for module in ("kube.bodies", "runner.proxy.writes"):
        monkeypatch.setattr(f"rolecall.{module}.decode", recording_decode)
    for method in ("POST", "PUT"):
        path = CONFIG_MAPS if method == "POST" else f"{CONFIG_MAPS}/cm"
        response = await run.send(method, path, json=config_map() | {"data": {"a": "x" * length}})
        assert response.status < 300
    assert threads == {thread}


async def test_deeply_nested_body_is_forwarded(run: Run, api_server: ApiServer) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_000)
    try:
        body = b'{"metadata":{"name":"cm"},"spec":' + b'{"a":' * 9_900 + b"1" + b"}" * 9_901
        api_server.respond("POST", CONFIG_MAPS, body)
        response = await run.send("POST", CONFIG_MAPS, data=body)
        assert (response.status, response.body) == (200, body)
    finally:
        sys.setrecursionlimit(limit)


async def test_interrupted_response_does_not_look_complete(run: Run, api_server: ApiServer) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half of it")
        assert request.transport is not None
        request.transport.abort()
        return response

    api_server.handlers["GET", "/version"] = break_off
    with pytest.raises(aiohttp.ClientError):
        await run.send("GET", "/version")


async def test_unreachable_api_server_gives_503(run: Run, api_server: ApiServer) -> None:
    assert api_server.stop is not None
    await api_server.stop()
    response = await run.send("GET", "/version")
    status = response.json()
    assert (response.status, status["kind"], status["reason"]) == (503, "Status", "ServiceUnavailable")
    assert f"the API server at {api_server.url} is unreachable" in status["message"]


async def test_disconnecting_api_server_gives_502(run: Run, api_server: ApiServer) -> None:
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    api_server.handlers["POST", CONFIG_MAPS] = hang_up
    response = await run.send("POST", CONFIG_MAPS, json=config_map())
    status = response.json()
    assert (response.status, status["kind"], status["code"]) == (502, "Status", 502)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_silent_api_server_gives_504(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    limit = aiohttp.ClientTimeout(total=None, sock_read=0.05)
    monkeypatch.setattr("rolecall.runner.proxy.forward.REQUEST_TIMEOUT", limit)

    async def stay_silent(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    api_server.handlers[method, CONFIG_MAPS] = stay_silent
    response = await run.send(method, CONFIG_MAPS, json=config_map())
    status = response.json()
    assert (response.status, status["kind"], status["reason"]) == (504, "Status", "Timeout")


async def test_silent_watch_does_not_time_out(run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = aiohttp.ClientTimeout(total=None, sock_read=0.05)
    monkeypatch.setattr("rolecall.runner.proxy.forward.REQUEST_TIMEOUT", limit)
    async with run.session.get(f"{CONFIG_MAPS}?watch=true") as response:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(response.content.readany(), 0.3)
        api_server.watch_events.put_nowait(b"late\n")
        assert await response.content.readline() == b"late\n"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_failed_discovery_of_group_affects_no_other_group(run: Run, api_server: ApiServer, method: str) -> None:
    failure = {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "metrics is down"}
    api_server.respond("GET", "/apis/metrics.example.com/v1", failure, 503)
    path = "/apis/metrics.example.com/v1/namespaces/ns/pods"
    api_server.respond("GET", path, {"kind": "PodMetrics", "metadata": {"uid": "x", "ownerReferences": [REFERENCE]}})
    response = await run.send(method, path, json=config_map())
    content = response.json()
    assert (response.status, content["kind"]) == ((200, "PodMetrics") if method == "GET" else (503, "Status"))
    assert method == "GET" or (content["message"], api_server.objects) == ("metrics is down", {})
    assert (await run.send("POST", CONFIG_MAPS, json=config_map())).status == 201
    assert owners(api_server) == [REFERENCE]


async def test_write_is_recorded_with_its_version(run: Run) -> None:
    created = await run.send("POST", CONFIG_MAPS, json=config_map())
    patched = await run.send("PATCH", f"{CONFIG_MAPS}/cm", json={"data": {}}, headers=MERGE)
    versions = [response.json()["metadata"]["resourceVersion"] for response in (created, patched)]
    assert [obj["metadata"]["resourceVersion"] for obj in run.itself.written] == versions


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{CONFIG_MAPS}/cm"),
        ("PUT", f"{CONFIG_MAPS}/cm"),
        ("POST", f"{CONFIG_MAPS}?dryRun=All"),
        ("DELETE", f"{CONFIG_MAPS}/cm"),
    ],
)
async def test_read_failed_write_status_and_dry_run_are_not_recorded(
    run: Run, api_server: ApiServer, method: str, path: str
) -> None:
    api_server.respond("PUT", f"{CONFIG_MAPS}/cm", api_server.add(f"{CONFIG_MAPS}/cm"), 409)
    await run.send(method, path, json=config_map())
    assert run.itself.written == []


async def test_client_that_prefers_protobuf_gets_json_for_write(run: Run, api_server: ApiServer) -> None:
    accept = {"Accept": "application/vnd.kubernetes.protobuf,application/json", "Accept-Encoding": "gzip"}
    await run.send("POST", CONFIG_MAPS, json=config_map(), headers=accept)
    assert api_server.last.headers["Accept"] == "application/json"
    assert "Accept-Encoding" not in api_server.last.headers


async def test_internal_error_is_status_and_creates_nothing(proxy: Proxy, api_server: ApiServer) -> None:
    class Failing(ProxiedRun):
        def found_dependent(self, resource: ApiResource, ownership: Ownership) -> None:
            raise LookupError(f"no watch on {resource.gvk} by {ownership}")

    failing = Failing("7", Owner(DEMO, ObjectKey("ns", "one"), "uid", namespaced=True))
    headers = {"Authorization": f"Bearer {proxy.register(failing).secret}"}
    async with aiohttp.request("POST", proxy.url + CONFIG_MAPS, json=config_map(), headers=headers) as response:
        status = await response.json()
    assert (response.status, status["reason"]) == (500, "InternalError")
    assert "no watch on" in status["message"]
    assert api_server.objects == {}


async def test_expect_100_continue_is_answered(run: Run, api_server: ApiServer) -> None:
    assert (await run.send("POST", CONFIG_MAPS, json=config_map(), expect100=True)).status == 201
    assert "Expect" not in api_server.last.headers


async def test_response_is_not_buffered_for_slow_client(run: Run, api_server: ApiServer) -> None:
    limit, sent = 64 << 20, [0]

    async def pour(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while sent[0] < limit:
            await response.write(bytes(1 << 16))
            sent[0] += 1 << 16
        return response

    api_server.handlers["GET", "/api/v1/namespaces/ns/pods/web/log"] = pour
    async with run.session.get("/api/v1/namespaces/ns/pods/web/log?follow=true"):
        before = -1
        while not sent[0] or before != sent[0]:
            before = sent[0]
            await asyncio.sleep(0.2)  # it has stopped when nothing moves for so long
        assert 0 < before < limit


async def test_group_of_write_is_reported_before_it_is_sent(run: Run, api_server: ApiServer) -> None:
    reported: list[tuple[str, int]] = []

    class Reporting(ReportedRun):
        def about_to_write(self, group: str) -> None:
            reported.append((group, len(api_server.received)))

    reporting = Reporting("8", run.itself.owner)
    run.session.headers["Authorization"] = f"Bearer {run.proxy.register(reporting).secret}"
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x"
    for target in (path, f"{path}?dryRun=All", f"{CONFIG_MAPS}/cm"):
        await run.send("DELETE", target)
    await run.send("GET", path)
    writes = [number for number, request in enumerate(api_server.received) if request.method == "DELETE"]
    assert [group for group, _ in reported] == ["apiextensions.k8s.io", ""]
    assert all(seen <= sent for (_, seen), sent in zip(reported, (writes[0], writes[2]), strict=True))


@pytest.mark.parametrize("sent", INVALID.values(), ids=INVALID)
@pytest.mark.parametrize("has_secret", [True, False])
async def test_invalid_request_is_no_error(run: Run, sent: bytes, *, has_secret: bool) -> None:
    if has_secret:
        header = f"\r\nAuthorization: Bearer {run.credentials.secret}\r\n".encode()
        sent = sent.replace(b"\r\n", header, 1)
    with capture_logs() as logs:
        await send_invalid(URL(run.credentials.url).port or 0, sent)
    assert [line for line in logs if line["log_level"] not in {"debug", "info"}] == []
