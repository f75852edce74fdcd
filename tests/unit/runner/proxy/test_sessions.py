import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from rolecall.runner.proxy.sessions import Exchange, ProxyCredentials, RequestOrigin
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import CONFIG_MAPS, Run, until

CREDENTIALS = ProxyCredentials("http://127.0.0.1:4711", "s3cret", "ns")


@pytest.fixture
async def observed(start_run: Callable[..., Run]) -> Run:
    return start_run(is_recorded=True)


@pytest.fixture
def exchanges(observed: Run) -> list[Exchange]:
    return observed.itself.exchanges


async def test_task_name_after_secret_is_origin_of_request(observed: Run, exchanges: list[Exchange]) -> None:
    for name in (".task-1.bG9jYWxob3N0", ".task-2.d2ViMQ.hidden", "", ".task-3.!"):
        headers = {"Authorization": f"Bearer {observed.credentials.secret}{name}"}
        assert (await observed.send("GET", CONFIG_MAPS, headers=headers)).status == 200
    assert [each.origin for each in exchanges] == [
        RequestOrigin("task-1", "localhost"),
        RequestOrigin("task-2", "web1", is_hidden=True),
        RequestOrigin(),
        RequestOrigin(),
    ]


async def test_only_whole_secret_is_accepted(run: Run) -> None:
    secret = run.credentials.secret
    for token in (f"{secret}task-1", f".{secret}", f"x.{secret}", f"{secret[:-1]}.task-1.bG9jYWxob3N0"):
        assert (await run.send("GET", CONFIG_MAPS, headers={"Authorization": f"Bearer {token}"})).status == 401


async def test_observer_receives_request_forwarded_body_and_response(
    api_server: ApiServer, observed: Run, exchanges: list[Exchange]
) -> None:
    body = {"kind": "ConfigMap", "metadata": {"name": "a"}}
    response = await observed.send("POST", CONFIG_MAPS, json=body)
    (exchange,) = exchanges
    assert (exchange.info.verb, exchange.info.resource, exchange.status) == ("create", "configmaps", 201)
    assert json.loads(exchange.body) == body
    assert exchange.sent == api_server.last.body != exchange.body
    assert exchange.response == response.body


async def test_observer_receives_stream_when_it_has_ended(
    api_server: ApiServer, observed: Run, exchanges: list[Exchange]
) -> None:
    event = json.dumps({"type": "ADDED", "object": {"kind": "ConfigMap"}}).encode() + b"\n"
    async with observed.session.get(f"{CONFIG_MAPS}?watch=true") as response:
        await api_server.watch_events.put(event)
        assert await response.content.readline() == event
        await api_server.watch_events.put(b"")
        await response.read()
    (exchange,) = exchanges
    assert (exchange.info.verb, exchange.status, exchange.response, exchange.is_cut) == ("watch", 200, event, False)


async def test_observer_receives_revoked_request_without_status(
    api_server: ApiServer, observed: Run, exchanges: list[Exchange]
) -> None:
    async with observed.session.get(f"{CONFIG_MAPS}?watch=true"):
        await until(lambda: api_server.watchers == 1)
        await observed.proxy.revoke(observed.itself)
    assert [(each.info.verb, each.status) for each in exchanges] == [("watch", None)]


def test_secret_is_in_no_repr() -> None:
    assert "s3cret" not in repr(CREDENTIALS)


@pytest.mark.parametrize("inherited", [{}, {"NO_PROXY": "", "https_proxy": ""}, {"PATH": "/bin"}])
def test_environment_has_no_proxy_variables_unless_operator_has(inherited: dict[str, str]) -> None:
    """Roles copy these variables into the cluster, as ``lookup('env', 'NO_PROXY')``."""
    assert CREDENTIALS.environment(inherited) == {}


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
def test_no_proxy_has_loopback_and_exclusions_of_operator(
    inherited: dict[str, str], upper: str, lower: str | None
) -> None:
    """Go programs read NO_PROXY first, Python no_proxy, so neither may hide exclusions of the other."""
    environment = CREDENTIALS.environment(inherited)
    assert (environment["NO_PROXY"], environment["no_proxy"]) == (upper, lower or upper)


def test_kubeconfig_has_names_of_go_runner() -> None:
    content = yaml.safe_load(CREDENTIALS.kubeconfig())
    assert content["current-context"] == "ns/proxy-server"
    assert content["contexts"] == [
        {"name": "ns/proxy-server", "context": {"cluster": "proxy-server", "user": "admin/proxy-server"}}
    ]
    cluster = {"server": "http://127.0.0.1:4711", "proxy-url": "http://s3cret:unused@127.0.0.1:4711"}
    assert content["clusters"] == [{"name": "proxy-server", "cluster": cluster}]
    assert content["users"] == [{"name": "admin/proxy-server", "user": {"token": "s3cret"}}]


def test_context_of_cluster_scoped_primary_has_no_namespace() -> None:
    assert yaml.safe_load(ProxyCredentials("http://h:1", "s").kubeconfig())["current-context"] == "/proxy-server"


@pytest.mark.parametrize("no_proxy", ["", "127.0.0.1"])
async def test_python_client_uses_kubeconfig(
    run: Run, api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: str
) -> None:
    names = ("major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion")
    api_server.respond("GET", "/version/", dict.fromkeys((*names, "compiler", "platform"), "1"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, no_proxy)
    path = tmp_path / "kubeconfig"
    path.write_text(run.credentials.kubeconfig())

    def read_version() -> str:
        with config.new_client_from_config(str(path)) as api:
            return json.dumps(client.VersionApi(api).get_code().to_dict())

    assert '"major": "1"' in await asyncio.to_thread(read_version)
