"""Lets somebody prepare for a request of a run, or answer it, before it goes to the API server."""

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from rolecall.runner.proxy.exchanges import Asker
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.sessions import SessionSpec


@dataclass(frozen=True, slots=True)
class GatedRequest:
    """A request that has not been sent on; ``body`` is empty unless it is a write. ``query`` is still encoded."""

    spec: SessionSpec
    asker: Asker
    info: RequestInfo
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = ""


class Gate(Protocol):
    """Is awaited before each request."""

    async def before(self, request: GatedRequest) -> web.Response | None:
        """Return None to let the request pass, or the response that the run gets instead."""
