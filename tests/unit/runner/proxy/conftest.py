import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import aiohttp
import pytest
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy import OnExchange, Owner, Ownership, Proxy, ProxyCredentials, SessionSpec
from rolecall.runner.proxy.sessions import ReadObserver
from tests.unit.runner.proxy.api_server import ApiServer

OPERATOR_TOKEN = "Bearer the-operators-own"  # noqa: S105 - nothing that opens anything
DEMO = GVK("demo.example.com", "v1", "Demo")


@dataclass
class Run:
    """A registered run, what it has reported, and an HTTP session with its credentials."""

    proxy: Proxy
    spec: SessionSpec
    credentials: ProxyCredentials
    session: aiohttp.ClientSession
    written: list[RawObject] = field(default_factory=list)
    dependents: list[tuple[GVK, Ownership]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


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
    async with Client(configuration) as client:
        proxy = Proxy(client, may_write=lambda: leadership.may_write)
        await proxy.start()
        yield proxy
        await proxy.stop()


@pytest.fixture
async def start_run(proxy: Proxy) -> AsyncIterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(
        name: str = "one",
        *,
        namespace: str = "ns",
        inject_owner: bool = True,
        on_exchange: OnExchange | None = None,
        reads: ReadObserver | None = None,
    ) -> Run:
        written: list[RawObject] = []
        removed: list[str] = []
        dependents: list[tuple[GVK, Ownership]] = []
        spec = SessionSpec(
            owner=Owner(DEMO, ObjectKey(namespace, name), f"uid-of-{name}", bool(namespace)),
            on_write=written.append,
            on_removal=removed.append,
            on_dependent=lambda resource, ownership: dependents.append((resource.gvk, ownership)),
            inject_owner=inject_owner,
            on_exchange=on_exchange,
            reads=reads,
        )
        credentials = proxy.register(spec)
        headers = {"Authorization": f"Bearer {credentials.secret}"}
        session = aiohttp.ClientSession(credentials.url, headers=headers)
        runs.append(Run(proxy, spec, credentials, session, written, dependents, removed))
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
