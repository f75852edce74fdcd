"""The kubelet endpoint of the simulated nodes: serves exec, attach, logs, and port-forward for their pods.

No container runs, so a user states what a command prints in ConfigMaps with the label ``rolecall.dev/pod-responses`` in
the pods' namespace: each key holds a YAML list of responses, and the first response whose conditions all hold is used.
Without a matching response, a command succeeds without output, a log is empty, and a port refuses connections.

A response can also state what becomes of a container, for example a crash. kwok writes the status of pods, but knows
only the pod. So an admission webhook adds the states to a pod's Binding, whose annotations the API server copies to the
pod: it has its name by then, and kwok has not started it. The endpoint registers this webhook when another webhook
calls it for the first ConfigMap with responses, so that the process stays idle in control planes without them. The
process is ``rolecall.workbench.controlplane.kubelet``.

kwok has such an endpoint too, but executes the requested command on this machine, for every process that connects to
its port, and loses the exit code. This one runs no command, and only the API server can connect, with the certificate
of its kubelet client. Streams are WebSockets, which an API server since 1.36 passes through to a node that declares the
feature ``ExtendWebSocketsToKubelet``.
"""

import asyncio
import base64
import functools
import http
import json
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from rolecall.kube.discovery import path_segment
from rolecall.workbench.controlplane import components
from rolecall.workbench.controlplane.certificates import ADMIN
from rolecall.workbench.controlplane.components import HOST, KUBELET, KUBELET_CLIENT, RESPONSES_LABEL, Layout
from rolecall.workbench.controlplane.port_forward import PROTOCOL, PortForward

STATES_ANNOTATION = "rolecall.dev/container-states"
"""Where the stages of kwok read the states of a pod's containers."""

log = logging.getLogger(KUBELET)

STATES = ("Running", "Terminated", "ImagePullBackOff")
_VALUES: Mapping[str, tuple[str, Container[object]]] = {
    "exitCode": ("0 to 255", range(256)),
    "state": (", ".join(STATES), STATES),
    **dict.fromkeys(("port", "targetPort"), ("1 to 65535", range(1, 65536))),
}

_PATTERNS = ("pod", "container", "command")
_KEYS: Mapping[str, Sequence[str]] = {
    "command": ("pod", "container", "stdout", "stderr", "exitCode", "command"),
    "log": ("pod", "container", "log"),
    "state": ("pod", "container", "exitCode", "state"),
    "port": ("pod", "targetPort", "port"),
}

STDOUT, STDERR, ERROR = 1, 2, 3
"""The channels of the remote command protocol; the first byte of each message names its channel."""

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
CHUNK_BYTES = 32 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=10)
CERTIFICATES = Layout(Path()).certificates
TRUE = frozenset({"1", "true"})
WEBSOCKETS_ONLY = (
    "simulated pods support exec, attach, and port-forward over WebSockets only, with the protocols of kubectl, not "
    "over SPDY, which kubectl uses before 1.31, and the API server before 1.36"
)


class InvalidResponseError(Exception):
    """A ConfigMap with responses is invalid; the message names the ConfigMap, the key, the item, and the problem."""


@dataclass(frozen=True)
class Target:
    """A container of a pod, and the request to it: for a command, its log (or attach), its state, or a port."""

    pod: str
    container: str
    kind: str = "log"
    command: Sequence[str] = ()
    port: int = 0


@dataclass(frozen=True)
class Response:
    """A response and its conditions.

    ``pod`` and ``container`` are regular expressions for the whole name, ``command`` is one to search for in the
    command and its arguments, joined by spaces. An empty condition always holds.
    """

    pod: str = ""
    container: str = ""
    command: str = ""
    stdout: str = ""
    stderr: str = ""
    exitCode: int = 0  # noqa: N815 - the key in the ConfigMap, in the style of the Kubernetes API
    log: str | None = None
    state: str = ""
    port: int = 0
    targetPort: int = 0  # noqa: N815 - as above

    @property
    def kind(self) -> str:
        """The kind of request that this responds to."""
        if self.log is not None:
            return "log"
        return "state" if self.state else "port" if self.port else "command"

    def matches(self, target: Target) -> bool:
        """Return whether this is a response for the target."""
        if (self.kind, self.port) != (target.kind, target.port):
            return False
        names = ((self.pod, target.pod), (self.container, target.container))
        return all(not pattern or re.fullmatch(pattern, name) for pattern, name in names) and bool(
            re.search(self.command, " ".join(target.command))
        )


_TYPES: Mapping[str, type] = {
    field.name: type("" if field.default is None else field.default) for field in fields(Response)
}


def all_responses(config_maps: Iterable[Mapping[str, Any]]) -> list[Response]:
    """Return the responses in ConfigMaps, ordered by name and key. Raises InvalidResponseError if any is invalid."""
    return [response for config_map in sorted(config_maps, key=_name) for response in _responses(config_map)]


def find_response(responses: Iterable[Response], target: Target) -> Response:
    """Return the first matching response."""
    return next((response for response in responses if response.matches(target)), Response())


def _name(config_map: Mapping[str, Any]) -> str:
    return str(config_map["metadata"]["name"])


def _responses(config_map: Mapping[str, Any]) -> Iterator[Response]:
    for key, text in sorted((config_map.get("data") or {}).items()):
        place = f"ConfigMap {_name(config_map)!r}, key {key!r}"
        try:
            items = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InvalidResponseError(f"{place}: expected YAML: {' '.join(str(error).split())}") from error
        if not isinstance(items, list):
            raise InvalidResponseError(f"{place}: expected a list of responses, found {items!r}")
        for number, item in enumerate(items, 1):
            yield _response(item, f"{place}, item {number}")


def _response(item: Any, place: str) -> Response:
    if not isinstance(item, dict) or not item:
        raise InvalidResponseError(f"{place}: expected a response with any of {', '.join(_TYPES)}, found {item!r}")
    for key, value in item.items():
        if key not in _TYPES:
            raise InvalidResponseError(f"{place}: unknown key {key!r}; the keys are {', '.join(_TYPES)}")
        if type(value) is not _TYPES[key]:
            raise InvalidResponseError(f"{place}: {key}: expected {_TYPES[key].__name__}, found {value!r}")
        expected, values = _VALUES.get(key, ("", (value,)))
        if value not in values:
            raise InvalidResponseError(f"{place}: {key}: expected {expected}, found {value!r}")
    response = Response(**item)
    keys = _KEYS[response.kind]
    if unexpected := item.keys() - keys:
        raise InvalidResponseError(
            f"{place}: with {keys[-1]}, expected only {', '.join(keys)}; found {min(unexpected)}"
        )
    for key in _PATTERNS:
        try:
            re.compile(item.get(key, ""))
        except re.error as error:
            raise InvalidResponseError(f"{place}: {key}: expected a regular expression: {error}") from error
    return response


class Kubelet:
    """The HTTP handlers."""

    def __init__(self, client: aiohttp.ClientSession, webhook: Mapping[str, object]) -> None:
        """Take an administrator's client of the API server, and the manifest of the webhook for Bindings."""
        self._client = client
        self._webhook = webhook
        self._has_webhook = False

    def application(self) -> web.Application:
        """Return the application with all routes; pods are addressed with and without their UID."""
        application = web.Application(middlewares=[_only_api_server])
        streams = {"exec": self._exec, "attach": self._attach, "portForward": self._port_forward}
        for pod in ("{namespace}/{pod}", "{namespace}/{pod}/{uid}"):
            for name, handler in streams.items():
                path = f"/{name}/{pod}" if name == "portForward" else f"/{name}/{pod}/{{container}}"
                application.router.add_route("*", path, handler)
        application.router.add_post("/configmaps", self._admit_config_map)
        application.router.add_post("/bindings", self._admit_binding)
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        return application

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        command = request.query.getall("command", [])
        await self._check_running(request)
        response = await self._response(request, "command", command)
        log.info("exec %s %s: exit code %d", _place(request), command[:1], response.exitCode)
        return await _serve_streams(request, response)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        await self._check_running(request)
        response = await self._response(request, "log")
        return await _serve_streams(request, Response(stdout=response.log or ""))

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        container = await self._container(request)
        if request.query.get("previous") in TRUE and not container.get("lastState"):
            raise web.HTTPBadRequest(text=f"previous terminated container of {_place(request)} not found")
        if "waiting" in container.get("state", {}) and not container.get("lastState"):
            raise web.HTTPBadRequest(text=f"container of {_place(request)} is waiting to start")
        response = await self._response(request, "log")
        lines = (response.log or "").splitlines(keepends=True)
        if (tail := request.query.get("tailLines")) is not None:
            lines = lines[max(0, len(lines) - int(tail)) :]
        body = "".join(lines).encode()
        limit = request.query.get("limitBytes")
        return web.Response(body=body if limit is None else body[: int(limit)], content_type="text/plain")

    async def _port_forward(self, request: web.Request) -> web.StreamResponse:
        connection = web.WebSocketResponse(protocols=(PROTOCOL,))
        if not connection.can_prepare(request).protocol:
            raise web.HTTPBadRequest(text=WEBSOCKETS_ONLY)
        find = await self._finder(request.match_info["namespace"])

        def find_target(port: int) -> int:
            response = find(Target(request.match_info["pod"], "", "port", port=port))
            if not response.port:
                raise ConnectionRefusedError("no response of simulated pods has this port")
            return response.targetPort or port

        await connection.prepare(request)
        await PortForward(connection, find_target).run()
        return connection

    async def _admit_config_map(self, request: web.Request) -> web.StreamResponse:
        """Register the webhook for Bindings, and wait until it is called for one that changes nothing."""
        trial = {"metadata": {"name": "none"}, "target": {"name": "none"}}
        binding = "/api/v1/namespaces/default/pods/none/binding?dryRun=All"
        async with asyncio.timeout(TIMEOUT.total):
            while not self._has_webhook:
                for path, body in ((components.WEBHOOKS_PATH, self._webhook), (binding, trial)):
                    async with self._client.post(path, json=body, raise_for_status=False):
                        pass
        return await _admitted(request)

    async def _admit_binding(self, request: web.Request) -> web.StreamResponse:
        """Annotate the Binding with the states of the pod's containers."""
        self._has_webhook = True
        binding = (await request.json())["request"]
        spec = (await self._get(_pod_path(binding["namespace"], binding["name"]))).get(
            "spec", {}
        )  # none: the pod was deleted, or this is the trial
        find = await self._finder(binding["namespace"])
        states = {}
        for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
            response = find(Target(binding["name"], container["name"], "state"))
            if response.state:
                states[container["name"]] = {"state": response.state, "exitCode": response.exitCode}
        annotations = binding["object"]["metadata"].get("annotations", {}) | {STATES_ANNOTATION: json.dumps(states)}
        return await _admitted(request, annotations if states else None)

    async def _container(self, request: web.Request) -> dict[str, Any]:
        """Return the status of the request's container, {} if there is none."""
        path = _pod_path(request.match_info["namespace"], request.match_info["pod"])
        status = (await self._get(path)).get("status", {})
        statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return next((one for one in statuses if one["name"] == request.match_info["container"]), {})

    async def _check_running(self, request: web.Request) -> None:
        """Raise HTTPException, as a kubelet responds, unless the request's container runs."""
        if "running" not in (await self._container(request)).get("state", {}):
            raise web.HTTPInternalServerError(text=f'container not found ("{request.match_info["container"]}")')

    async def _response(self, request: web.Request, kind: str, command: Sequence[str] = ()) -> Response:
        """Return the response for the request's container. Raises HTTPException, before any upgrade, if it can't."""
        find = await self._finder(request.match_info["namespace"])
        return find(Target(request.match_info["pod"], request.match_info["container"], kind, command))

    async def _finder(self, namespace: str) -> Callable[[Target], Response]:
        """Return a function that finds responses for a namespace's pods. Raises HTTPException for invalid ones."""
        found = await self._get(
            f"/api/v1/namespaces/{path_segment(namespace)}/configmaps", labelSelector=RESPONSES_LABEL
        )
        try:
            responses = all_responses(found["items"])
        except InvalidResponseError as error:
            raise web.HTTPInternalServerError(text=f"invalid response of simulated pods: {error}") from error
        return functools.partial(find_response, responses)

    async def _get(self, path: str, **params: str) -> dict[str, Any]:
        """Return the response of the API server, {} if it finds nothing. Raises HTTPException without a response."""
        try:
            async with self._client.get(path, params=params) as answer:
                return dict(await answer.json())
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, aiohttp.ClientResponseError) and error.status == http.HTTPStatus.NOT_FOUND:
                return {}
            raise web.HTTPServiceUnavailable(text=f"cannot read the responses of simulated pods: {error}") from error


async def _admitted(request: web.Request, annotations: Mapping[str, str] | None = None) -> web.StreamResponse:
    """Return the response to an AdmissionReview, with new annotations of its object."""
    review = await request.json()
    operations = [{"op": "add", "path": "/metadata/annotations", "value": annotations}] if annotations else []
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
    return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}"


def _place(request: web.Request) -> str:
    return "{namespace}/{pod}/{container}".format_map(request.match_info)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _only_api_server(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reject clients with another certificate of our authority, which signs those of users too."""
    certificate: dict[str, Any] = request.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if names != [KUBELET_CLIENT]:
        raise web.HTTPForbidden(text="only the API server can use the kubelet of simulated nodes")
    return await handler(request)


async def _serve_streams(request: web.Request, response: Response) -> web.StreamResponse:
    """Send the output and the status as the remote command protocol does; input is ignored."""
    connection = web.WebSocketResponse(protocols=PROTOCOLS)
    if not connection.can_prepare(request):
        raise web.HTTPBadRequest(text=WEBSOCKETS_ONLY)
    await connection.prepare(request)
    has_terminal = request.query.get("tty") in TRUE
    for channel, text in ((STDOUT, response.stdout), (STDOUT if has_terminal else STDERR, response.stderr)):
        if request.query.get("output" if channel == STDOUT else "error") in TRUE:
            content = text.replace("\n", "\r\n") if has_terminal else text
            await _send(connection, channel, content.encode())
    await _send(connection, ERROR, json.dumps(_status(response.exitCode)).encode())
    await connection.close()
    return connection


async def _send(connection: web.WebSocketResponse, channel: int, content: bytes) -> None:
    for start in range(0, len(content), CHUNK_BYTES):
        await connection.send_bytes(bytes([channel]) + content[start : start + CHUNK_BYTES])


def _status(exit_code: int) -> dict[str, Any]:
    """Return the Status object that a kubelet sends at the end of a command."""
    if exit_code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
        "code": http.HTTPStatus.INTERNAL_SERVER_ERROR,
    }


async def serve(listener: socket.socket, api_server_port: int) -> None:
    """Serve on the listening socket until the process is stopped, in the root directory of a control plane."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    authority = CERTIFICATES / "authority.crt"
    inbound = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
    inbound.verify_mode = ssl.CERT_REQUIRED
    inbound.load_cert_chain(CERTIFICATES / f"{KUBELET}.crt", CERTIFICATES / f"{KUBELET}.key")
    outbound = ssl.create_default_context(cafile=authority)
    outbound.load_cert_chain(CERTIFICATES / f"{ADMIN}.crt", CERTIFICATES / f"{ADMIN}.key")
    connector = aiohttp.TCPConnector(ssl=outbound)
    url = f"https://{HOST}:{api_server_port}"
    async with aiohttp.ClientSession(url, connector=connector, raise_for_status=True, timeout=TIMEOUT) as client:
        webhook = components.webhooks(Layout(Path()), listener.getsockname()[1])[1]
        runner = web.AppRunner(Kubelet(client, webhook).application(), access_log=None)
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=inbound).start()
        log.info("serving on port %d", listener.getsockname()[1])
        await asyncio.Event().wait()
