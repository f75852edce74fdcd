import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.client import Configuration
from yarl import URL

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import ProxyCredentials
from tests.support.proxied_run import ReportedRun
from tests.unit.runner.proxy.api_server import ApiServer

OPERATOR_TOKEN = "Bearer the-operators-own"  # noqa: S105 - nothing that opens anything
DEMO = GVK("demo.example.com", "v1", "Demo")
CONFIG_MAP = GVK("", "v1", "ConfigMap")
CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
MERGE = {"Content-Type": "application/merge-patch+json"}
REFERENCE = {"apiVersion": "demo.example.com/v1", "kind": "Demo", "name": "one", "uid": "uid-of-one"}


def config_map(name: str = "cm", **metadata: object) -> RawObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "1"}}


def owners(api_server: ApiServer, path: str = f"{CONFIG_MAPS}/cm") -> object:
    return api_server.objects[path]["metadata"].get("ownerReferences")


@dataclass(frozen=True)
class Response:
    """A response with its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)


@dataclass
class Run:
    """A registered run, and an HTTP session with its credentials."""

    proxy: Proxy
    itself: ReportedRun
    credentials: ProxyCredentials
    session: aiohttp.ClientSession

    async def send(self, method: str, target: str | URL, **options: Any) -> Response:
        """Send a request with the credentials of the run; ``options`` are those of aiohttp."""
        async with self.session.request(method, target, **options) as response:
            return Response(response.status, response.headers, await response.read())


@pytest.fixture
async def api_server() -> AsyncIterator[ApiServer]:
    stand_in = ApiServer()
    server = stand_in.server()
    await server.start_server()
    stand_in.url = str(server.make_url("/")).rstrip("/")
    stand_in.stop = server.close
    yield stand_in
    await server.close()


@dataclass
class Leadership:
    """Whether the operator of the proxy is the leader."""

    may_write: bool = True


@pytest.fixture
def leadership() -> Leadership:
    return Leadership()


@pytest.fixture
async def proxy(api_server: ApiServer, leadership: Leadership) -> AsyncIterator[Proxy]:
    configuration = Configuration(host=api_server.url)
    configuration.api_key["BearerToken"] = OPERATOR_TOKEN
    async with Client(configuration) as client, Proxy(client, may_write=lambda: leadership.may_write) as proxy:
        yield proxy


@pytest.fixture
async def start_run(proxy: Proxy) -> AsyncIterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(name: str = "one", *, namespace: str = "ns", **fields: Any) -> Run:
        owner = Owner(DEMO, ObjectKey(namespace, name), f"uid-of-{name}", bool(namespace))
        itself = ReportedRun("7", owner, **fields)
        credentials = proxy.register(itself)
        headers = {"Authorization": f"Bearer {credentials.secret}"}
        session = aiohttp.ClientSession(credentials.url, headers=headers)
        runs.append(Run(proxy, itself, credentials, session))
        return runs[-1]

    yield start
    for run in runs:
        await run.session.close()


@pytest.fixture
async def run(start_run: Callable[..., Run]) -> Run:
    return start_run()


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing sets an event for the condition
            await asyncio.sleep(0.005)
