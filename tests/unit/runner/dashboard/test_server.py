from dataclasses import replace

import aiohttp
import pytest

from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.dashboard.server import serving_dashboard
from rolecall.runner.serving.metrics import OperatorMetrics
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.dashboard.conftest import Shown


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


async def test_loopback_needs_no_encryption(shown: Shown, cluster: FakeCluster) -> None:
    settings = replace(Settings(), ui_bind_address="127.0.0.1:0")
    async with (
        serving_dashboard(settings, cluster, OperatorMetrics("test"), shown.sources) as port,
        aiohttp.request("GET", f"http://localhost:{port}/") as response,
    ):
        assert response.status == 200


async def test_invalid_address_is_an_error(shown: Shown, cluster: FakeCluster) -> None:
    settings = replace(Settings(), ui_bind_address="8090")
    with pytest.raises(ConfigurationError, match="--ui-bind-address: expected an address"):
        async with serving_dashboard(settings, cluster, OperatorMetrics("test"), shown.sources):
            pass
