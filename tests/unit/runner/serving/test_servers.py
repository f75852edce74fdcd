import asyncio
import contextlib
import itertools
import json
import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from cryptography import x509
from structlog.testing import capture_logs

from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import RawObject
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.serving.authentication import TokenReviewer
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.runner.serving.servers import (
    FRESH_SECONDS,
    Address,
    Check,
    ServingCertificate,
    SharedResults,
    create_self_signed,
    metrics_application,
    parse_address,
    probes_application,
    run_environment,
    serve,
    user_metrics_application,
)
from rolecall.system.blocking_work import run_in_thread
from tests.support.world import eventually
from tests.unit.runner.serving.test_authentication import ApiServer

FLAG = "--metrics-bind-address"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":8443", "", 8443),
        ("0.0.0.0:80", "0.0.0.0", 80),  # noqa: S104 - as a user may write it
        ("localhost:0", "localhost", 0),
        ("[::1]:6789", "::1", 6789),
    ],
)
def test_address_has_the_format_of_go_programs(text: str, host: str, port: int) -> None:
    address = parse_address(text, FLAG)
    assert address == Address(host, port, FLAG)
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "0"])
def test_empty_address_disables_a_server(text: str) -> None:
    assert parse_address(text, FLAG) is None


@pytest.mark.parametrize("text", ["8443", ":http", ":", ":70000", "::1:80", ":-1", "1"])
def test_invalid_address_is_an_error_with_the_flag(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{FLAG}: expected an address such as ':8443'.*found '{text}'"):
        parse_address(text, FLAG)


async def status_of(url: str) -> int:
    async with aiohttp.request("GET", url) as response:
        return response.status


@pytest.mark.parametrize("host", ["", "127.0.0.1", "localhost"])
async def test_free_port_is_returned(host: str) -> None:
    async with serve(web.Application(), Address(host, 0, FLAG)) as port:
        assert await status_of(f"http://127.0.0.1:{port}/") == 404


async def test_all_interfaces_include_ipv6() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    async with serve(web.Application(), Address("", 0, FLAG)) as port:
        assert await status_of(f"http://[::1]:{port}/") == 404


async def test_port_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError) as error:
            async with serve(web.Application(), Address("127.0.0.1", port, FLAG)):
                pass
    assert str(error.value) == f"cannot listen on '127.0.0.1:{port}' ({FLAG}): Address already in use"


async def test_foreign_host_is_a_clear_error() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on 'nowhere.invalid:80'"):
        async with serve(web.Application(), Address("nowhere.invalid", 80, FLAG)):
            pass


async def test_port_is_free_afterwards() -> None:
    async with serve(web.Application(), Address("127.0.0.1", 0, FLAG)) as port:
        pass
    async with serve(web.Application(), Address("127.0.0.1", port, FLAG)) as again:
        assert again == port


async def connect(port: int, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and send something."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


ONE_SOURCE, MANY_SOURCES = ["127.0.0.2"], [f"127.0.1.{number}" for number in range(1, 200)]
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
ATTACKS = {
    "silent": b"",
    "half a line": b"GET / HT",
    "half a header": GET,
    "keep-alive": GET + b"\r\n",
    "slow body": GET.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\n",
    "unread response": GET.replace(b"/ ", b"/large ") + b"\r\n",
    "half a handshake": b"\x16\x03\x01\x02\x00\x01",
}


def is_connected(connection: socket.socket) -> bool:
    """Return whether the peer of a non-blocking connection has not closed it."""
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@contextlib.asynccontextmanager
async def attack(port: int, sent: bytes, sources: Sequence[str], pause: float = 0.001) -> AsyncIterator[None]:
    """Open connections, with a pause after each, keep those that stay open, and read nothing."""
    is_over, has_filled = threading.Event(), threading.Event()

    def connect() -> None:
        opened: deque[socket.socket] = deque()
        for source in itertools.cycle(sources):
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", port), 20, (source, 0))
                opened.append(connection)
                connection.setblocking(False)  # noqa: FBT003 - a method of the standard library
                connection.send(sent)
            if len(opened) > 200:
                has_filled.set()
                oldest = opened.popleft()
                if len(opened) < 400 and is_connected(oldest):
                    opened.append(oldest)
                else:
                    oldest.close()
            if is_over.wait(pause):
                break
        for connection in opened:
            connection.close()

    connecting = asyncio.create_task(asyncio.to_thread(connect))
    try:
        assert await asyncio.to_thread(has_filled.wait, 60)
        yield
    finally:
        is_over.set()
        await connecting


async def failed_probes(port: int, scheme: str = "http") -> list[str]:
    """Return why some of 60 probes failed, each with a connection of its own, as the kubelet's."""
    failures = []
    for _ in range(60):
        try:
            timeout = aiohttp.ClientTimeout(120)  # an attack also takes the CPU, which a busy machine hasn't
            async with aiohttp.request("GET", f"{scheme}://127.0.0.1:{port}/", ssl=False, timeout=timeout) as response:
                assert response.status == 404
        except (aiohttp.ClientError, TimeoutError) as error:
            failures.append(repr(error))
    return failures


@pytest.mark.parametrize("sources", [ONE_SOURCE, MANY_SOURCES], ids=["one source", "many sources"])
@pytest.mark.parametrize("sent", ATTACKS.values(), ids=ATTACKS)
async def test_no_attacker_shuts_out_other_clients(sent: bytes, sources: Sequence[str]) -> None:
    async def respond(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(5 << 20))

    application = web.Application()
    application.router.add_get("/large", respond)
    pause = 0.03 if sent == ATTACKS["unread response"] else 0.002  # a flood takes the CPU, which this process shares
    async with serve(application, Address("127.0.0.1", 0, FLAG)) as port, attack(port, sent, sources, pause):
        assert await failed_probes(port) == []


@pytest.mark.parametrize("sources", [ONE_SOURCE, MANY_SOURCES], ids=["one source", "many sources"])
@pytest.mark.parametrize("sent", [b"", b"GET / HT", ATTACKS["half a handshake"]])
async def test_no_attacker_shuts_out_other_clients_with_tls(
    tmp_path: Path, sent: bytes, sources: Sequence[str]
) -> None:
    certificate = ServingCertificate(tmp_path, lambda _: None)
    certificate.load()
    serving = serve(web.Application(), Address("127.0.0.1", 0, FLAG), certificate.context)
    async with serving as port, attack(port, sent, sources, pause=0.002):  # a flood takes the CPU for handshakes
        assert await failed_probes(port, "https") == []


async def test_slow_request_is_served_despite_an_attack() -> None:
    may_respond, has_started = asyncio.Event(), asyncio.Event()

    async def respond(_request: web.Request) -> web.StreamResponse:
        has_started.set()
        await may_respond.wait()
        return web.Response(text="done")

    application = web.Application()
    application.router.add_get("/slow", respond)
    async with serve(application, Address("127.0.0.1", 0, FLAG)) as port:
        reader, writer = await connect(port, GET.replace(b"/ ", b"/slow ") + b"Connection: close\r\n\r\n")
        await has_started.wait()
        async with attack(port, b"GET / HT", MANY_SOURCES):
            assert await failed_probes(port) == []
            may_respond.set()
            async with asyncio.timeout(60):
                assert (await reader.read()).endswith(b"done")
        writer.close()


LOCAL, POST = b"Host: localhost\r\n", b"POST /metrics HTTP/1.1\r\n"
INVALID = {
    "TLS": b"\x16\x03\x01\x02\x00\x01" + b"a" * 512,
    "no method": b"\x00\xff garbage\r\n\r\n",
    "long line": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: " + b"a" * 20_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + LOCAL * 500 + b"\r\n",
    "invalid header": b"GET / HTTP/1.1\r\n" + LOCAL + b"A: \x00\r\n\r\n",
    "invalid URL": b"GET http://[::1/ HTTP/1.1\r\n" + LOCAL + b"\r\n",
    "invalid path": b"GET /kinds/%ff/%00/%2e%2e?page=%ff&q=%ff HTTP/1.1\r\n" + LOCAL + b"\r\n",
    "version": b"GET / HTTP/9.9\r\n" + LOCAL + b"\r\n",
    "token": b"GET /metrics HTTP/1.1\r\n" + LOCAL + b"Authorization: Bearer \xff\r\n\r\n",
    "second request": b"GET / HTTP/1.1\r\n" + LOCAL + b"\r\n\x00garbage\r\n\r\n",
    "expectation": POST + LOCAL + b"Expect: x\r\nContent-Length: 2\r\n\r\n{}",
    "length": POST + LOCAL + b"Content-Length: -1\r\n\r\n",
    "two lengths": POST + LOCAL + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk": POST + LOCAL + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "late chunk": POST + LOCAL + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n",
    "compression": POST + LOCAL + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "long body": POST + LOCAL + b"Content-Length: 3000000\r\n\r\n" + b"a" * 3_000_000,
    "deep body": POST + LOCAL + b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000,
    "surrogate": POST + LOCAL + b'Content-Length: 46\r\n\r\n{"name": "\\ud800", "counter": {"\\ud800": true}}',
    "invalid port": POST + b"Host: a:b:c\r\nContent-Length: 2\r\n\r\n{}",
    "invalid host": POST + b"Host: \xff\r\nContent-Length: 2\r\n\r\n{}",
}
"""Each is no request, or one that no server of ours can serve."""


async def send_invalid(port: int, sent: bytes, tls: ssl.SSLContext | None = None) -> None:
    """Send something, and wait for a response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(sent)
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
    writer.transport.abort()


@contextlib.contextmanager
def no_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that nothing logs an error, or anything of a library."""
    with capture_logs() as logs:
        yield
    assert [line for line in logs if line["log_level"] not in {"debug", "info"}] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("sent", INVALID.values(), ids=INVALID)
async def test_invalid_request_is_no_error(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    telemetry, reviewer = OperatorMetrics("test"), TokenReviewer(ApiServer().create)
    applications = {
        "probes": probes_application([]),
        "metrics": metrics_application(telemetry.render, reviewer),
        "metrics of roles": user_metrics_application(telemetry.user_metrics.apply),
    }
    for name, application in applications.items():
        with no_error(caplog):
            async with serve(application, Address("127.0.0.1", 0, name)) as port:
                await send_invalid(port, sent)
                await send_invalid(port, sent)


@pytest.mark.parametrize("sent", [GET + b"\r\n", b"\x16\x03\x01\x00\x02\x01\x00", b"\x00" * 100])
async def test_invalid_handshake_is_no_error(sent: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate = ServingCertificate(tmp_path, lambda _: None)
    certificate.load()
    address = Address("127.0.0.1", 0, FLAG)
    with no_error(caplog):
        async with serve(web.Application(), address, certificate.context, idle_seconds=0.2) as port:
            await send_invalid(port, sent)


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
async def test_connection_without_request_is_closed(sent: bytes) -> None:
    async with serve(web.Application(), Address("127.0.0.1", 0, FLAG), idle_seconds=0.2) as port:
        reader, writer = await connect(port, sent)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_client_that_does_not_read_is_disconnected() -> None:
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.task.add_done_callback(lambda _: ended.set())
        return web.Response(body=b"x" * (64 << 20))

    application = web.Application()
    application.router.add_get("/", answer)
    async with serve(application, Address("127.0.0.1", 0, FLAG), request_seconds=0.2) as port:
        reader, writer = await connect(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            await ended.wait()
        writer.close()


Client = TestClient[web.Request, web.Application]


class Operator:
    """An operator that is ready when the test says so."""

    ready = False
    has_fork_server = True
    notes: tuple[str, ...] = ()


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
async def client(operator: Operator) -> AsyncIterator[Client]:
    checks = [
        Check("informers", lambda: operator.ready, notes=lambda: operator.notes),
        Check("fork-server", lambda: operator.has_fork_server, "not alive", is_required=False),
    ]
    async with TestClient(TestServer(probes_application(checks))) as client:
        yield client


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("path", ["/healthz", "/healthz/", "/healthz/ping", "/readyz/readyz"])
async def test_liveness_does_not_depend_on_readiness(
    client: Client, operator: Operator, path: str, *, ready: bool
) -> None:
    operator.ready = ready
    response = await client.get(path)
    assert (response.status, await response.text()) == (200, "ok")
    assert (await client.head(path)).status == 200


@pytest.mark.parametrize("path", ["/readyz", "/readyz/informers"])
async def test_operator_is_ready_when_its_informers_are(client: Client, operator: Operator, path: str) -> None:
    assert (await client.get(path)).status == 500
    operator.ready = True
    assert (await client.get(path)).status == 200


async def test_verbose_lists_checks_and_notes(client: Client, operator: Operator) -> None:
    response = await client.get("/readyz?verbose")
    assert (response.status, (await response.text()).splitlines()) == (
        500,
        ["[+]readyz ok", "[-]informers failed: not yet", "[+]fork-server ok", "readyz check failed"],
    )
    operator.ready = True
    operator.notes = ("informer of example.com/v1, Kind=Widget: Failed to list or watch; retrying",)
    assert await (await client.get("/readyz")).text() == "ok"
    response = await client.get("/readyz?verbose=1")
    assert (response.status, (await response.text()).splitlines()) == (
        200,
        [
            "[+]readyz ok",
            "[+]informers ok",
            "[+]fork-server ok",
            "[!]informer of example.com/v1, Kind=Widget: Failed to list or watch; retrying",
            "readyz check passed",
        ],
    )


async def test_failed_check_that_is_not_required_fails_only_its_own_path(client: Client, operator: Operator) -> None:
    operator.ready, operator.has_fork_server = True, False
    assert await (await client.get("/readyz")).text() == "ok"
    response = await client.get("/readyz?verbose")
    assert (response.status, (await response.text()).splitlines()[2]) == (200, "[!]fork-server failed: not alive")
    assert (await client.get("/readyz/fork-server")).status == 500
    operator.has_fork_server = True
    assert (await client.get("/readyz/fork-server")).status == 200


@pytest.mark.parametrize("path", ["/", "/healthz/informers", "/metrics", "/readyz/readyz/more"])
async def test_unknown_probe_is_not_found(client: Client, path: str) -> None:
    assert (await client.get(path)).status == 404


class Silent:
    """An API server that does not answer."""

    async def create(self, _obj: RawObject) -> RawObject:
        """Not answer."""
        raise UnreachableError("connection refused")


async def ask(
    reviewer: TokenReviewer | None, headers: dict[str, str] | None = None, path: str = "/metrics"
) -> tuple[int, str]:
    async with TestClient(TestServer(metrics_application(lambda: b"some 1\n", reviewer))) as client:
        response = await client.get(path, headers=headers)
        return response.status, await response.text()


async def test_metrics_are_open_without_reviewer() -> None:
    assert await ask(None) == (200, "some 1\n")
    assert (await ask(None, path="/"))[0] == 404


async def test_metrics_have_the_content_type_of_prometheus() -> None:
    async with TestClient(TestServer(metrics_application(lambda: b"", None))) as client:
        response = await client.get("/metrics")
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer good", 200),
        ("bearer good", 200),
        ("Bearer bad", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        ("Basic good", 401),
        ("", 401),
    ],
)
async def test_metrics_need_a_valid_token(authorization: str, status: int) -> None:
    found, text = await ask(TokenReviewer(ApiServer().create), {"Authorization": authorization})
    assert found == status
    assert ("some" in text) == (status == 200)


async def test_metrics_need_an_authorization_header() -> None:
    assert await ask(TokenReviewer(ApiServer().create)) == (401, "Unauthorized\n")


async def test_token_without_permission_is_forbidden() -> None:
    server = ApiServer()
    server.allowed = False
    assert await ask(TokenReviewer(server.create), {"Authorization": "Bearer good"}) == (403, "Forbidden\n")


async def test_failed_review_is_an_error() -> None:
    assert await ask(TokenReviewer(Silent().create), {"Authorization": "Bearer good"}) == (
        500,
        "Authentication failed\n",
    )


@pytest.mark.usefixtures("full_default_executor")
async def test_rendering_does_not_use_the_default_executor() -> None:
    async with asyncio.timeout(20):
        assert await ask(None) == (200, "some 1\n")


class Renders:
    """Counts renders, which last until ``may_end``; the text is the number of the render."""

    def __init__(self) -> None:
        self.count, self.now, self.may_end = 0, 0.0, threading.Event()
        self.fails = False

    def __call__(self) -> bytes:
        """Render."""
        self.count += 1
        self.may_end.wait()
        if self.fails:
            raise ValueError("broken")
        return str(self.count).encode()


@pytest.fixture
def renders() -> Renders:
    return Renders()


async def asked(shared: SharedResults[str, bytes], number: int) -> list[asyncio.Task[bytes]]:
    """Send this number of concurrent requests, and return when all of them wait."""
    tasks = [asyncio.create_task(shared.get("all")) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def test_concurrent_clients_share_one_render(renders: Renders) -> None:
    shared = SharedResults[str, bytes](lambda _: run_in_thread(renders), lambda: renders.now)
    tasks = await asked(shared, 400)
    renders.may_end.set()
    assert set(await asyncio.gather(*tasks)) == {b"1"}
    assert renders.count == 1


async def test_render_is_cached_for_a_second(renders: Renders) -> None:
    shared = SharedResults[str, bytes](lambda _: run_in_thread(renders), lambda: renders.now)
    renders.may_end.set()
    assert await shared.get("all") == b"1"
    renders.now = FRESH_SECONDS - 0.01
    assert await shared.get("all") == b"1"
    renders.now = FRESH_SECONDS
    assert await shared.get("all") == b"2"


async def test_cancelled_client_does_not_cancel_the_render(renders: Renders) -> None:
    shared = SharedResults[str, bytes](lambda _: run_in_thread(renders), lambda: renders.now)
    first, second = await asked(shared, 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    renders.may_end.set()
    assert await second == b"1"


async def test_failed_render_is_retried(renders: Renders) -> None:
    shared = SharedResults[str, bytes](lambda _: run_in_thread(renders), lambda: renders.now)
    renders.may_end.set()
    renders.fails = True
    with pytest.raises(ValueError, match="broken"):
        await shared.get("all")
    renders.fails = False
    assert await shared.get("all") == b"2"


async def post(telemetry: OperatorMetrics, body: str, method: str = "POST") -> tuple[int, str]:
    async with TestClient(TestServer(user_metrics_application(telemetry.user_metrics.apply))) as client:
        response = await client.request(method, "/metrics", data=body)
        return response.status, await response.text()


async def test_metric_of_a_role_is_served_with_the_others() -> None:
    telemetry = OperatorMetrics("test")
    body = {"name": "mine", "description": "", "counter": {"increment": True, "add": None}, "gauge": None}
    assert await post(telemetry, json.dumps(body)) == (200, "")
    assert b"\nmine 1.0\n" in telemetry.render()
    assert b"ansible_operator_build_info" in telemetry.render()


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example.com"}, {"Host": "evil.example.com:80"}, {"Origin": "http://evil.example.com"}],
    ids=["another name", "with a port", "another origin"],
)
async def test_metric_of_a_website_is_rejected(headers: dict[str, str]) -> None:
    """A browser on the machine reaches loopback, too."""
    telemetry = OperatorMetrics("test")
    body = json.dumps({"name": "mine", "description": "", "counter": {"increment": True}})
    async with TestClient(TestServer(user_metrics_application(telemetry.user_metrics.apply))) as client:
        response = await client.post("/metrics", data=body, headers=headers)
        assert response.status == 421
    assert b"mine" not in telemetry.render()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{}", "a request should contain at least one metric"),
        ('{"counter": {}, "gauge": {}}', "only one metric can be processed at a time"),
        ('{"name": "a", "counter": {"add": -1}}', "counter metrics cannot decrease in value"),
        ("no json", "Expecting value: line 1 column 1 (char 0)"),
        ("", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
async def test_invalid_request_is_rejected_with_the_reason(body: str, text: str) -> None:
    assert await post(OperatorMetrics("test"), body) == (400, f"{text}\n")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_metrics_endpoint_of_roles_accepts_only_post(method: str) -> None:
    assert (await post(OperatorMetrics("test"), "{}", method))[0] == 405


def test_run_environment_has_the_url() -> None:
    assert run_environment(5050) == {"ROLECALL_METRICS_URL": "http://127.0.0.1:5050/metrics"}


class Mounted:
    """A directory with a certificate, as a Secret is mounted, and what was read from it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.reads: list[bool] = []
        self.certificate = ServingCertificate(directory, self.reads.append)

    def put(self) -> int:
        """Write a new certificate and return its serial number."""
        certificate, key = create_self_signed()
        (self.directory / "tls.key").write_bytes(key)
        (self.directory / "tls.crt").write_bytes(certificate)
        return x509.load_pem_x509_certificate(certificate).serial_number

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[int]:
        """Serve something with it and give the port."""
        async with (
            self.certificate.loaded() as context,
            serve(web.Application(), Address("127.0.0.1", 0, "flag"), context) as port,
        ):
            yield port


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


async def seen(port: int) -> int:
    """Return the serial number of the certificate that a client sees."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


async def until_seen(port: int, serial: int) -> None:
    await eventually(lambda: seen(port), lambda found: found == serial, 60, "the new certificate is served")


async def test_mounted_certificate_is_served(mounted: Mounted) -> None:
    serial = mounted.put()
    async with mounted.served() as port:
        assert await seen(port) == serial
    assert mounted.reads == [True]


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
def test_half_of_a_mounted_certificate_is_invalid(missing: str, mounted: Mounted, tmp_path: Path) -> None:
    """A self-signed certificate in its place would be found by the first client only."""
    mounted.put()
    (found,) = tmp_path.rglob(missing)
    found.unlink()
    with pytest.raises(ConfigurationError, match=r"invalid certificate in .*No such file"):
        mounted.certificate.load()


async def test_renewed_certificate_is_served_without_restart(mounted: Mounted) -> None:
    mounted.put()
    async with mounted.served() as port:
        await until_seen(port, mounted.put())
    assert mounted.reads[-1] is True


async def test_invalid_renewal_keeps_the_old_certificate(mounted: Mounted) -> None:
    serial = mounted.put()
    async with mounted.served() as port:
        (mounted.directory / "tls.crt").write_text("no certificate")

        async def last_read() -> bool:
            return mounted.reads[-1]

        await eventually(last_read, lambda succeeded: not succeeded, 60, "the broken certificate is noticed")
        assert await seen(port) == serial


async def test_self_signed_certificate_is_created_by_default(mounted: Mounted) -> None:
    async with mounted.served() as port:
        assert await seen(port) > 0
    assert mounted.reads == []


async def test_self_signed_certificate_is_not_watched(mounted: Mounted) -> None:
    before = asyncio.all_tasks()
    async with mounted.certificate.loaded():
        assert asyncio.all_tasks() == before


def test_invalid_certificate_is_an_error(mounted: Mounted) -> None:
    mounted.put()
    (mounted.directory / "tls.key").write_text("no key")
    with pytest.raises(ConfigurationError, match=r"invalid certificate in '.*'"):
        mounted.certificate.load()
    assert mounted.reads == [False]
