import base64
from dataclasses import replace

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request

from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.dashboard.html import object_path, run_path
from rolecall.runner.dashboard.server import HEADERS, Guard, dashboard_application, is_loopback, serving_dashboard
from rolecall.runner.serving.authentication import TokenReviewer
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.runner.serving.servers import Address, serve
from tests.support.names import HOSTILE_NAMES, LONG_NAMES
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.dashboard.conftest import OPEN, Shown
from tests.unit.runner.serving.test_authentication import ApiServer
from tests.unit.runner.serving.test_servers import INVALID, no_error, send_invalid


@pytest.mark.parametrize("is_secure", [False, True])
@pytest.mark.parametrize("address", [":0", "0.0.0.0:0", "[::]:0", "10.0.0.1:0"])
async def test_reachable_address_needs_encryption_and_tokens(
    shown: Shown,
    cluster: FakeCluster,
    address: str,
    is_secure: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    settings = replace(Settings(), ui_bind_address=address, metrics_secure=is_secure)
    with pytest.raises(ConfigurationError, match=r"--ui-bind-address: others can reach .*kubectl port-forward"):
        async with serving_dashboard(settings, cluster, OperatorMetrics("test"), shown.sources):
            pass


@pytest.mark.parametrize(("needs_token", "status"), [(False, 200), (True, 401)])
async def test_metrics_flags_apply_to_the_dashboard(
    shown: Shown,
    cluster: FakeCluster,
    needs_token: bool,  # noqa: FBT001 - a parameter of a test
    status: int,
) -> None:
    settings = replace(Settings(), ui_bind_address="127.0.0.1:0", metrics_secure=True, metrics_require_rbac=needs_token)
    async with (
        serving_dashboard(settings, cluster, OperatorMetrics("test"), shown.sources) as port,
        aiohttp.request("GET", f"https://127.0.0.1:{port}/", ssl=False) as response,
    ):
        assert response.status == status


async def test_invalid_address_is_an_error(shown: Shown, cluster: FakeCluster) -> None:
    settings = replace(Settings(), ui_bind_address="8090")
    with pytest.raises(ConfigurationError, match="--ui-bind-address: expected an address"):
        async with serving_dashboard(settings, cluster, OperatorMetrics("test"), shown.sources):
            pass


@pytest.mark.parametrize("path", ["/", "/static/style.css", "/nothing", "/kinds/A/b/c"])
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
async def test_every_response_has_the_strict_policy(shown: Shown, path: str, host: str) -> None:
    async with TestClient(TestServer(dashboard_application(shown.sources, Guard(None, is_on_loopback=True)))) as client:
        response = await client.get(path, headers={"Host": host})
        assert HEADERS.items() <= dict(response.headers).items()
        policy = response.headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")


async def test_pages_of_objects_with_any_name_are_found(shown: Shown) -> None:
    router = dashboard_application(shown.sources, Guard(None, is_on_loopback=True)).router
    for name in (*HOSTILE_NAMES, *LONG_NAMES):
        of_object = {"kind": "A.b", "namespace": "-", "name": name}
        found = await router.resolve(make_mocked_request("GET", object_path("A.b", "", name)))
        assert dict(found) == of_object
        found = await router.resolve(make_mocked_request("GET", run_path("A.b", "", name, "7")))
        assert dict(found) == of_object | {"run": "7"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_dashboard_is_read_only(shown: Shown, method: str) -> None:
    async with TestClient(TestServer(dashboard_application(shown.sources, Guard(None, is_on_loopback=True)))) as client:
        response = await client.request(method, "/")
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8090", 200),
        ("127.0.0.1:8090", 200),
        ("127.1.2.3", 200),
        ("[::1]:8090", 200),
        ("page.localhost", 200),
        ("evil.example:8090", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("10.0.0.1", 421),
        ("", 421),
    ],
)
async def test_host_must_be_loopback_on_loopback(shown: Shown, host: str, status: int) -> None:
    assert (await shown.get("/", Host=host))[0] == status


@pytest.mark.parametrize(("host", "expected"), [("", False), ("0.0.0.0", False), ("::", False), ("::1", True)])  # noqa: S104 - to be told apart
def test_all_interfaces_are_not_loopback(host: str, expected: bool) -> None:  # noqa: FBT001 - a parameter of a test
    assert is_loopback(host) is expected


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer good", 200),
        (basic("anybody:good"), 200),
        (basic(":good"), 200),
        (basic("good:bad"), 401),
        (basic("good"), 401),
        ("Basic good", 401),
        ("Basic \u00ff", 401),
        ("Bearer bad", 401),
        ("", 401),
    ],
)
@pytest.mark.parametrize("path", ["/", "/?format=json", "/static/page.js"])
async def test_token_may_be_the_password(shown: Shown, path: str, authorization: str, status: int) -> None:
    guard = Guard(TokenReviewer(ApiServer().create), is_on_loopback=False)
    assert (await shown.get(path, guard, Authorization=authorization))[0] == status


async def test_browser_asks_for_the_token(shown: Shown) -> None:
    guard = Guard(TokenReviewer(ApiServer().create), is_on_loopback=False)
    async with TestClient(TestServer(dashboard_application(shown.sources, guard))) as client:
        response = await client.get("/")
        assert response.headers["WWW-Authenticate"].startswith("Basic ")
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]


@pytest.mark.parametrize("sent", INVALID.values(), ids=INVALID)
async def test_invalid_request_is_no_error(shown: Shown, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with no_error(caplog):
        async with serve(dashboard_application(shown.sources, OPEN), Address("127.0.0.1", 0, "flag")) as port:
            await send_invalid(port, sent)
