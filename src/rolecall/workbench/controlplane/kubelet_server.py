"""The kubelet endpoint of the simulated nodes: serves exec, attach, and logs for their pods.

It runs no command and reads no file for a request: it finds the response in the
ConfigMaps of the pod's namespace. kwok has such an endpoint too, but executes the requested command on this machine,
for every process that connects to its port, and loses the exit code. Only the API server can connect here, with the
certificate of its kubelet client. Exec and attach use WebSockets, which an API server since 1.36 passes through to a
node that declares the feature ``DECLARED_FEATURE``. The process is ``rolecall.workbench.controlplane.kubelet``.

The responses of simulated pods to exec, attach, and logs.

No container runs, so a command has no real output. A user states it in ConfigMaps with the label
``rolecall.dev/pod-responses`` in the pods' namespace: each key holds a YAML list of responses, and the first response
whose conditions all hold is used. Without a matching response a command succeeds without output, as the pods of a Job
succeed, and a log is empty. Everything here is pure; ``rolecall.workbench.controlplane.kubelet`` serves it.
"""

import asyncio
import http
import json
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from rolecall.workbench.controlplane.certificates import ADMIN
from rolecall.workbench.controlplane.components import HOST, KUBELET, KUBELET_CLIENT, Layout

LABEL = "rolecall.dev/pod-responses"
MAX_EXIT_CODE = 255


class InvalidResponseError(Exception):
    """A ConfigMap with responses is invalid; the message names the ConfigMap, the key, the item, and the problem."""


@dataclass(frozen=True)
class Target:
    """A container of a pod, and the command to execute in it (None for logs and attach)."""

    pod: str
    container: str
    command: Sequence[str] | None = None


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

    def matches(self, target: Target) -> bool:
        """Return whether this is a response for the target: one with ``log`` is for logs and attach only."""
        if (self.log is None) != (target.command is not None):
            return False
        names = ((self.pod, target.pod), (self.container, target.container))
        return all(not pattern or re.fullmatch(pattern, name) for pattern, name in names) and bool(
            re.search(self.command, " ".join(target.command or ()))
        )


_TYPES: Mapping[str, type] = {field.name: int if field.name == "exitCode" else str for field in fields(Response)}
_PATTERNS = ("pod", "container", "command")


def find_response(config_maps: Iterable[Mapping[str, Any]], target: Target) -> Response:
    """Return the first matching response in ConfigMaps of the target's namespace, ordered by name and key.

    Raises InvalidResponseError if any response is invalid, even if another one matches.
    """
    responses = [response for config_map in sorted(config_maps, key=_name) for response in _responses(config_map)]
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
    if not 0 <= item.get("exitCode", 0) <= MAX_EXIT_CODE:
        raise InvalidResponseError(f"{place}: exitCode: expected 0 to {MAX_EXIT_CODE}, found {item['exitCode']}")
    if "log" in item and not {"command", "stdout", "stderr", "exitCode"}.isdisjoint(item):
        raise InvalidResponseError(f"{place}: expected either log or a command's response, found {', '.join(item)}")
    for key in _PATTERNS:
        try:
            re.compile(item.get(key, ""))
        except re.error as error:
            raise InvalidResponseError(f"{place}: {key}: expected a regular expression: {error}") from error
    return Response(**item)


STDOUT, STDERR, ERROR = 1, 2, 3
"""The channels of the remote command protocol; the first byte of each message names its channel."""

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
CHUNK_BYTES = 32 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=10)
CERTIFICATES = Layout(Path()).certificates
TRUE = frozenset({"1", "true"})

log = logging.getLogger(KUBELET)


class Kubelet:
    """The HTTP handlers."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        """Take a client of the API server with the permission to read ConfigMaps."""
        self._client = client

    def application(self) -> web.Application:
        """Return the application with all routes; pods are addressed with and without their UID."""
        application = web.Application(middlewares=[_only_api_server])
        pod = "/{namespace}/{pod}"
        for uid in ("", "/{uid}"):
            application.router.add_get(f"/exec{pod}{uid}/{{container}}", self._exec)
            application.router.add_post(f"/exec{pod}{uid}/{{container}}", _websockets_only)
            application.router.add_get(f"/attach{pod}{uid}/{{container}}", self._attach)
            application.router.add_post(f"/attach{pod}{uid}/{{container}}", _websockets_only)
            application.router.add_route("*", f"/portForward{pod}{uid}", _no_port_forward)
        application.router.add_get(f"/containerLogs{pod}/{{container}}", self._logs)
        return application

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        command = request.query.getall("command", [])
        response = await self._response(request, command)
        log.info("exec %s %s: exit code %d", _place(request), command[:1], response.exitCode)
        return await _serve_streams(request, response)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        response = await self._response(request, None)
        return await _serve_streams(request, Response(stdout=response.log or ""))

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("previous") in TRUE:
            raise web.HTTPBadRequest(text=f"previous terminated container of {_place(request)} not found")
        response = await self._response(request, None)
        lines = (response.log or "").splitlines(keepends=True)
        if (tail := request.query.get("tailLines")) is not None:
            lines = lines[max(0, len(lines) - int(tail)) :]
        body = "".join(lines).encode()
        limit = request.query.get("limitBytes")
        return web.Response(body=body if limit is None else body[: int(limit)], content_type="text/plain")

    async def _response(self, request: web.Request, command: list[str] | None) -> Response:
        """Return the response for the request's container. Raises HTTPException, before any upgrade, if it can't."""
        path = f"/api/v1/namespaces/{request.match_info['namespace']}/configmaps"
        try:
            async with self._client.get(path, params={"labelSelector": LABEL}) as answer:
                config_maps = (await answer.json())["items"]
        except (aiohttp.ClientError, OSError) as error:
            raise web.HTTPServiceUnavailable(text=f"cannot read the responses of simulated pods: {error}") from error
        target = Target(request.match_info["pod"], request.match_info["container"], command)
        try:
            return find_response(config_maps, target)
        except InvalidResponseError as error:
            raise web.HTTPInternalServerError(text=f"invalid response of simulated pods: {error}") from error


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


async def _websockets_only(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPBadRequest(text="simulated pods support exec and attach over WebSockets only, not over SPDY")


async def _no_port_forward(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPBadRequest(text="simulated pods do not support port-forward: no process listens in them")


async def _serve_streams(request: web.Request, response: Response) -> web.StreamResponse:
    """Send the output and the status as the remote command protocol does; input is ignored."""
    connection = web.WebSocketResponse(protocols=PROTOCOLS)
    if not connection.can_prepare(request):
        return await _websockets_only(request)
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
        runner = web.AppRunner(Kubelet(client).application(), access_log=None)
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=inbound).start()
        log.info("serving on port %d", listener.getsockname()[1])
        await asyncio.Event().wait()
