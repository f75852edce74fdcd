import asyncio
import json
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from kubernetes import client, config

from rolecall.runner.proxy import ProxyCredentials
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import Run

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
