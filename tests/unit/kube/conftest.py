import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject

WIDGET = GVK("example.com", "v1", "Widget")
KEY = ObjectKey("default", "one")
DISCOVERY = {
    "/api/v1": [{"name": "secrets", "kind": "Secret", "namespaced": True}],
    "/apis/example.com/v1": [
        {"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": ["get", "list", "watch"]},
        {"name": "widgets/status", "kind": "Widget", "namespaced": True, "verbs": ["get"]},
    ],
}
ONE: RawObject = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"namespace": "default", "name": "one"},
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiServer:
    """Serves discovery; all other requests go to ``handler``. Records method, path with query, body, and headers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.handler: Handler
        self.respond(ONE)

    def respond(self, body: object, status: int = 200) -> None:
        """Respond with JSON, or with a string as it is."""

        async def handler(_request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, text=body if isinstance(body, str) else json.dumps(body))

        self.handler = handler

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request."""
        if request.path in DISCOVERY:
            return web.json_response({"resources": DISCOVERY[request.path]})
        text = await request.text()
        self.requests.append((request.method, request.path_qs, json.loads(text) if text else None))
        self.headers.append(dict(request.headers))
        return await self.handler(request)


@asynccontextmanager
async def serving(handle: Handler, tls: ssl.SSLContext | None = None, port: int | None = None) -> AsyncIterator[str]:
    """Serve all requests, also those sent to an HTTP proxy, and yield the URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    scheme = "https" if tls else "http"
    server = TestServer(application, scheme=scheme, port=port)
    await server.start_server(ssl=tls)
    yield f"{scheme}://127.0.0.1:{server.port}"
    await server.close()


@pytest.fixture
async def api_server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[Client]:
    async with serving(api_server.handle) as url:
        configuration = Configuration(host=f"{url}/")
        configuration.api_key["BearerToken"] = "Bearer s3cret"
        async with Client(configuration) as client:
            yield client


def streaming(*lines: bytes) -> Handler:
    """Return a handler that streams these parts and ends."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        return response

    return handler


async def watched(client: Client) -> list[tuple[str, RawObject]]:
    """Return all events of a watch."""
    return [event async for event in client.watch(WIDGET, "default", "7", 30.0)]


def event(kind: str, obj: object) -> bytes:
    """Return one line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def write_kubeconfig(directory: Path, server: str, user: dict[str, object], **cluster: str) -> str:
    """Write a kubeconfig and return its path."""
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    replace_file(directory / "config", json.dumps(content).encode())
    return str(directory / "config")


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file atomically, as programs do that renew credentials."""
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(content)
    new.rename(file)
