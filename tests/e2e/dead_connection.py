"""Watches an API server whose network fails silently, and prints after how many seconds the watch ends.

Both are in this process. Run it in a network namespace of its own: it takes its loopback interface down.
"""

import asyncio
import fcntl
import json
import socket
import struct
import time

from aiohttp import web
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import GVK

SIOCSIFFLAGS = 0x8914
IFF_UP = 1
CONFIG_MAP = GVK("", "v1", "ConfigMap")
RESOURCES = {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": ["list"]}]}


def set_loopback(*, up: bool) -> None:
    """Set the state of the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP if up else 0))


async def _answer(request: web.Request) -> web.StreamResponse:
    if "watch" not in request.query:
        return web.json_response(RESOURCES)
    response = web.StreamResponse()
    await response.prepare(request)
    event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}
    await response.write(json.dumps(event).encode() + b"\n")
    await asyncio.Event().wait()
    return response


async def main() -> None:
    """Watch, cut the connection and wait."""
    set_loopback(up=True)
    application = web.Application()
    application.router.add_get("/{path:.*}", _answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 8080).start()
    cut = 0.0
    async with Client(Configuration(host="http://127.0.0.1:8080")) as client:
        try:
            async for _ in client.watch(CONFIG_MAP, None, "1", 300):
                set_loopback(up=False)
                cut = time.monotonic()
        except UnreachableError:
            print(time.monotonic() - cut)  # noqa: T201 - its only result


if __name__ == "__main__":
    asyncio.run(main())
