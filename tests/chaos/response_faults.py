"""Faults of single responses of the API server: wrong, late, incomplete, repeated, or lost, before or after the commit.

A fault affects some requests of one kind, for example reads of one primary, and then is used up. A relay between the
operator and the API server carries it out, so runs are affected too.
"""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web

from tests.chaos.relay import Edit, Relay, Respond, rejection

_MAX_REQUESTS, _MAX_DELAY_SECONDS = 4, 2.0
_PRIMARY = re.compile(r"/apis/test\.rolecall\.dev/v1/namespaces/[^/]+/thing[a-z]s(/[^/]+)?(/status)?")
_DEPENDENT = re.compile(r"/api/v1/namespaces/[^/]+/configmaps(/[^/]+)?")
_BELIEVED = (404, 409)
"""Responses to a run that aren't faked: kubernetes.core takes any 404 of a read for an absent object, and any 409 of a
POST for an existing one. Then the role does nothing and succeeds, with and without an operator."""
_DISCOVERY = re.compile(r"/apis?(/[^/]+(/[^/]+)?)?|/api/v1")


def _is_watch(request: web.Request) -> bool:
    return request.query.get("watch") in ("true", "1")


def _is_primary(request: web.Request, *methods: str, named: bool = True, subresource: bool = False) -> bool:
    found = _PRIMARY.fullmatch(request.path)
    if found is None or request.method not in methods or _is_watch(request):
        return False
    return bool(found[1]) is named and bool(found[2]) is subresource


def _is_dependent(request: web.Request, *methods: str) -> bool:
    return bool(_DEPENDENT.fullmatch(request.path)) and request.method in methods and not _is_watch(request)


TARGETS: Mapping[str, Callable[[web.Request], bool]] = {
    "reads of a primary": lambda request: _is_primary(request, "GET"),
    "lists of primaries": lambda request: _is_primary(request, "GET", named=False),
    "status writes": lambda request: _is_primary(request, "PUT", "PATCH", subresource=True),
    "finalizer writes": lambda request: _is_primary(request, "PUT", "PATCH"),
    "reads of dependents": lambda request: _is_dependent(request, "GET"),
    "writes of dependents": lambda request: _is_dependent(request, "POST", "PUT", "PATCH", "DELETE"),
    "discovery": lambda request: bool(_DISCOVERY.fullmatch(request.path)),
    "all requests": lambda request: not _is_watch(request),
}
"""Requests that a fault affects, except watches."""


@dataclass(slots=True)
class ResponseFault:
    """A fault of the next responses to some requests; ``left`` counts those that it still affects."""

    name: str
    matches: Callable[[web.Request], bool]
    respond: Respond
    left: int


@dataclass(slots=True)
class ResponseFaults:
    """The faults of one relay that are in effect."""

    relay: Relay
    active: list[ResponseFault] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    """The names of the faults that affected a request, once for each."""

    def __post_init__(self) -> None:
        """Respond instead of the relay."""
        self.relay.choose = self._choose

    def draw(self, chance: random.Random) -> str:
        """Inject a random fault and return its name."""
        if chance.random() < 0.3:
            what, respond = chance.choice(list(_watch_faults(self.relay, chance).items()))
            return self._add(ResponseFault(f"watches: {what}", _is_watch, respond, chance.randint(1, 2)), ends=True)
        target = chance.choice(list(TARGETS))
        what, respond = chance.choice(list(_faults(self.relay, chance).items()))
        return self._add(ResponseFault(f"{target}: {what}", TARGETS[target], respond, chance.randint(1, _MAX_REQUESTS)))

    def _add(self, fault: ResponseFault, *, ends: bool = False) -> str:
        self.active.append(fault)
        if ends:
            self.relay.end_watches()  # a watch that has started is not affected, the next one is
        return f"{fault.name}, {fault.left} times"

    def clear(self) -> None:
        """End all faults."""
        self.active.clear()

    def _choose(self, request: web.Request) -> Respond | None:
        for fault in self.active:
            if fault.left and fault.matches(request):
                fault.left -= 1
                self.met.append(f"{fault.name} ({request.method} {request.path})")
                return fault.respond
        return None


def _faults(relay: Relay, chance: random.Random) -> Mapping[str, Respond]:
    """Return faults of a response by name."""
    seconds = chance.uniform(0.2, _MAX_DELAY_SECONDS)

    async def status(code: int, request: web.Request) -> web.StreamResponse:
        if code in _BELIEVED and _DEPENDENT.fullmatch(request.path):
            return await relay.exchange(request)
        return rejection(code)

    async def page_404(request: web.Request) -> web.StreamResponse:
        if _DEPENDENT.fullmatch(request.path):
            return await relay.exchange(request)
        return web.Response(status=404, text="404 page not found\n")

    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await relay.exchange(request)

    async def out_of_order(request: web.Request) -> web.StreamResponse:
        found = await relay.exchange(request)
        await asyncio.sleep(seconds)  # what happens now is older than the response
        return found

    async def twice(request: web.Request) -> web.StreamResponse:
        await relay.exchange(request)
        return await relay.exchange(request)

    async def committed(code: int, request: web.Request) -> web.StreamResponse:
        found = await relay.exchange(request)
        return rejection(code) if code else _cut(request, found)

    async def lost(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return _cut(request, web.Response())

    return {
        "404 of a gateway": page_404,
        **{str(code): partial(status, code) for code in (404, 409, 410, 429, 500, 503)},
        "slow": slow,
        "out of order": out_of_order,
        "twice": twice,
        "truncated": partial(_truncated_response, relay),
        **{f"{code} after the commit": partial(committed, code) for code in (500, 504)},
        "connection lost after the commit": partial(committed, 0),
        "no response": lost,
    }


async def _truncated_response(relay: Relay, request: web.Request) -> web.StreamResponse:
    found = await relay.exchange(request)
    body = found.body if isinstance(found.body, bytes) else b""
    response = web.StreamResponse(status=found.status, headers=found.headers)
    response.content_length = len(body) + 1
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    return _cut(request, response)


def _cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Break the connection of a request."""
    if isinstance(request.transport, asyncio.Transport):
        request.transport.abort()
    return response


def _watch_faults(relay: Relay, chance: random.Random) -> Mapping[str, Respond]:
    """Return faults of a watch by name."""
    seconds = chance.uniform(0.2, _MAX_DELAY_SECONDS)

    async def status(code: int, _request: web.Request) -> web.StreamResponse:
        return rejection(code)

    async def edited(edit: Edit, request: web.Request) -> web.StreamResponse:
        return await relay.forward(request, edit)

    async def late(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for part in parts:
            await asyncio.sleep(seconds)
            yield part

    edits = {
        "late": late,
        "events twice": _twice,
        "an unreadable line": _unreadable,
        "truncated": _truncated,
        "expired after an event": _expired,
    }
    return {
        **{str(code): partial(status, code) for code in (404, 410, 429, 500, 503)},
        **{name: partial(edited, edit) for name, edit in edits.items()},
    }


async def _twice(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for line in _lines(parts):
        yield line + line


async def _unreadable(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b'{"type": "ADDED", "object": {]\n'
    yield b"\n"
    async for part in parts:
        yield part


async def _truncated(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for line in _lines(parts):
        yield line[: len(line) // 2]
        return


async def _expired(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for line in _lines(parts):
        yield line
        body = json.loads(rejection(410).text or "{}")
        yield json.dumps({"type": "ERROR", "object": body}).encode() + b"\n"
        return


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield whole lines."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line + b"\n"
