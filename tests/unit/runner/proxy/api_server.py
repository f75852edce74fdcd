"""A fake API server: discovery, objects by path, a watch, and an echo after an upgrade."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from rolecall.kube.references import RawObject

ALL_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
DISCOVERY: dict[str, list[RawObject]] = {
    "/api/v1": [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": ALL_VERBS},
        {"name": "events", "kind": "Event", "namespaced": True, "verbs": ALL_VERBS},
        {"name": "namespaces", "kind": "Namespace", "namespaced": False, "verbs": ALL_VERBS},
        {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ALL_VERBS},
        {"name": "pods/exec", "kind": "PodExecOptions", "namespaced": True, "verbs": ["create", "get"]},
    ],
    "/apis/authorization.k8s.io/v1": [
        {
            "name": "selfsubjectaccessreviews",
            "kind": "SelfSubjectAccessReview",
            "namespaced": False,
            "verbs": ["create"],
        },
    ],
    "/apis/demo.example.com/v1": [{"name": "demos", "kind": "Demo", "namespaced": True, "verbs": ALL_VERBS}],
}


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class ReceivedRequest:
    """A request that the server has received."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)


@dataclass
class ApiServer:
    """The server's state. ``handlers`` take precedence over everything else, by method and path."""

    objects: dict[str, RawObject] = field(default_factory=dict)
    received: list[ReceivedRequest] = field(default_factory=list)
    handlers: dict[tuple[str, str], Handler] = field(default_factory=dict)
    watch_events: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    watchers: int = 0
    url: str = ""
    stop: Callable[[], Awaitable[None]] | None = None
    _version: int = 100

    def server(self) -> TestServer:
        """Return the server, not started yet."""
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return TestServer(app)

    def add(self, path: str, **metadata: Any) -> RawObject:
        """Store an object that no run has written."""
        self.objects[path] = {"metadata": {"uid": f"uid-{path}", "resourceVersion": self._next_version(), **metadata}}
        return self.objects[path]

    def respond(self, method: str, path: str, content: Any, status: int = 200, **headers: str) -> None:
        """Respond to a request with JSON, or with bytes as they are."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        media_type = {"Content-Type": "application/json"}

        async def handler(_: web.Request) -> web.Response:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, body=body, headers=media_type | named)

        self.handlers[method, path] = handler

    @property
    def last(self) -> ReceivedRequest:
        """The request that was received last."""
        return self.received[-1]

    def writes(self) -> list[ReceivedRequest]:
        """Return the received requests that are not reads."""
        return [request for request in self.received if request.method != "GET"]

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in DISCOVERY and request.method == "GET":
            return web.json_response({"kind": "APIResourceList", "resources": DISCOVERY[request.path]})
        if "Upgrade" in request.headers:
            self.received.append(ReceivedRequest(request.method, request.raw_path, dict(request.headers), b""))
        else:
            body = await request.read()
            self.received.append(ReceivedRequest(request.method, request.raw_path, dict(request.headers), body))
        if found := self.handlers.get((request.method, request.path)):
            return await found(request)
        if request.headers.get("Upgrade") == "websocket":
            return await _echo(request)
        if "watch" in request.query:
            return await self._watch(request)
        return self._objects(request, self.last)

    def _objects(self, request: web.Request, received: ReceivedRequest) -> web.Response:  # noqa: PLR0911 - one per verb
        path = request.path
        match request.method:
            case "POST":
                stored = json.loads(received.body)
                path = f"{path}/{stored['metadata'].get('name', 'generated')}"
                self.objects[path] = stored
                return self._stored(stored, 201)
            case "PUT" | "PATCH":
                if "dryRun" in request.query:
                    return web.json_response(json.loads(received.body))
                return self._changed(path.removesuffix("/status"), json.loads(received.body))
            case "DELETE":
                self.objects.pop(path, None)
                return web.json_response({"kind": "Status", "status": "Success", "details": {"uid": "x"}})
        if path in self.objects:
            return web.json_response(self.objects[path])
        if path.endswith("s"):
            items = [obj for key, obj in self.objects.items() if key.startswith(f"{path}/")]
            metadata = {"resourceVersion": str(self._version)}
            return web.json_response({"kind": "ThingList", "metadata": metadata, "items": items})
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)

    def _changed(self, path: str, content: Any) -> web.Response:
        """Change an object as the API server does: only in the requested version, and only if something differs."""
        old = self.objects.get(path)
        version = (old or {}).get("metadata", {}).get("resourceVersion")
        content = _plain(content, version)
        wanted = None if content is None else content.get("metadata", {}).pop("resourceVersion", version)
        if content is None or wanted != version:
            return web.json_response({"kind": "Status", "code": 409, "reason": "Conflict"}, status=409)
        if old is None:
            self.objects[path] = content
            return self._stored(content, 201)
        metadata = {**old["metadata"], **content.get("metadata", {})}
        if {**old, **content, "metadata": metadata} == old:
            return web.json_response(old)
        self.objects[path] = {**old, **content, "metadata": metadata}
        return self._stored(self.objects[path], 200)

    def _stored(self, obj: RawObject, status: int) -> web.Response:
        obj.setdefault("metadata", {}).setdefault("uid", f"uid-{len(self.objects)}")
        obj["metadata"]["resourceVersion"] = self._next_version()
        return web.json_response(obj, status=status)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.watchers += 1
        try:
            while event := await self.watch_events.get():
                await response.write(event)
        finally:
            self.watchers -= 1
        return response


def _plain(content: Any, version: str | None) -> Any:
    """Return the merge patch for a JSON patch that replaces top-level fields, None if its test fails."""
    if isinstance(content, dict):
        return content
    tests = [operation["value"] for operation in content if operation["op"] == "test"]
    if tests not in ([], [version]):
        return None
    return {operation["path"].strip("/"): operation["value"] for operation in content if operation["op"] == "replace"}


async def _echo(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"))
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data[::-1])
    return socket
