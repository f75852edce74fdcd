"""Unusual request targets: none bypasses the proxy, however servers on the way parse it."""

import asyncio
import json

import pytest

from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import Run

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
BODY = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}}).encode()


async def ask(run: Run, request_line: str, *headers: str, body: bytes = b"") -> int:
    """Send a request exactly as given, and return the status of the response."""
    host, port = run.credentials.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    authorization = f"Authorization: Bearer {run.credentials.secret}"
    lines = [request_line, f"Host: {host}", authorization, f"Content-Length: {len(body)}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode("utf-8", "surrogateescape") + body)
    try:
        async with asyncio.timeout(5):
            return int((await reader.readline()).split(b" ")[1])
    finally:
        writer.close()


@pytest.mark.parametrize(
    "target",
    [
        f"{CONFIG_MAPS}#fragment",
        f"{CONFIG_MAPS}#",
        f"{CONFIG_MAPS}?a=b#c",
        "@elsewhere.example.com/api/v1",
        ".elsewhere.example.com/api/v1",
        "*",
        f"{CONFIG_MAPS}\xe4",
        f"{CONFIG_MAPS}\t",
        "",
    ],
)
async def test_a_target_that_is_no_path_is_refused(run: Run, api_server: ApiServer, target: str) -> None:
    assert await ask(run, f"POST {target} HTTP/1.1", "Content-Type: application/json", body=BODY) == 400
    assert api_server.received == []


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/namespaces/ns/../../../version",
        "/api/v1/namespaces/ns/%2e%2e/other/configmaps",
        "//api/v1/namespaces/ns/configmaps",
        "/api/v1//namespaces/ns/configmaps",
        "/api/v1/namespaces/ns%2Fconfigmaps",
        "/api/v1/namespaces/ns/configmaps/",
        "/api/v1/namespaces/ns/configmaps;x=y",
        "/api/v1/namespaces/ns/configmaps?a=%23&b=/../c",
        "/%61pi/v1/namespaces/ns/configmaps",
        "//elsewhere.example.com/api/v1",
        "/\\elsewhere",
    ],
)
async def test_any_path_arrives_letter_by_letter(run: Run, api_server: ApiServer, target: str) -> None:
    await ask(run, f"GET {target} HTTP/1.1")
    assert api_server.last.target == target


async def test_an_absolute_target_goes_to_the_api_server_whatever_its_host_says(
    run: Run, api_server: ApiServer
) -> None:
    await ask(run, "GET http://user:word@elsewhere.example.com/version?a=b HTTP/1.1")
    assert api_server.last.target == "/version?a=b"


@pytest.mark.parametrize(
    "header",
    ["Upgrade: websocket\r\nConnection: Upgrade", "Content-Encoding: identity", "Connection: Content-Type, close"],
)
async def test_no_header_keeps_the_owner_out(run: Run, api_server: ApiServer, header: str) -> None:
    line = f"POST {CONFIG_MAPS} HTTP/1.1"
    assert await ask(run, line, "Content-Type: application/json", header, body=BODY) == 201
    stored = api_server.objects[f"{CONFIG_MAPS}/cm"]
    assert [reference["uid"] for reference in stored["metadata"]["ownerReferences"]] == [run.spec.owner.uid]


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH"])
async def test_a_write_does_not_leave_http(run: Run, api_server: ApiServer, method: str) -> None:
    api_server.add(f"{CONFIG_MAPS}/cm")
    headers = ("Upgrade: websocket", "Connection: Upgrade", "Content-Type: application/merge-patch+json")
    assert await ask(run, f"{method} {CONFIG_MAPS}/cm HTTP/1.1", *headers, body=BODY) == 200
    assert "Upgrade" not in api_server.last.headers


async def test_two_lengths_are_refused(run: Run, api_server: ApiServer) -> None:
    line = f"POST {CONFIG_MAPS} HTTP/1.1"
    assert await ask(run, line, "Transfer-Encoding: chunked", body=BODY) == 400
    assert await ask(run, line, "Content-Length: 3", body=BODY) == 400
    assert api_server.received == []
