"""The network between a replica and the simulated API server: latency, faults, and replicas that are cut off.

A ``Session`` takes the place of ``aiohttp.ClientSession`` below the operator's client. **Every draw comes from the one
random generator of the history**, so a seed repeats all latencies and faults. The API server handles a request at one
moment, between two latencies: a replica may be cut off before it, or when only the response is missing.

Requests of runs get errors, but no false statement about an object that exists: kubernetes.core would believe it, so a
role would do nothing and succeed, with and without an operator.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from rolecall.kube.references import RawObject
from tests.simulation.cluster import Answer, SimulatedApiServer, Watch
from tests.simulation.requests import RequestError

RUN_HEADER: Final = "X-Simulated-Run"
"""Marks the requests of runs, which the operator's proxy forwards."""

OPERATOR: Final = "operator"
"""The sender of the operator's own requests."""

DEAD_AFTER_SECONDS: Final = 35.0
"""How long TCP takes to notice that its peer is lost."""

_LATENCIES: Final = (0.001, 0.001, 0.004, 0.02, 0.15)
_ERRORS: Final = {
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_ERRORS_OF_ANY: Final = ("error", "refused", "lost request", "error after", "lost response", "truncated")
_WITHOUT_EFFECT: Final = ("error", "refused", "lost request", "404", "404 of a gateway", "409", "410", "outdated")
_EVENTS: Final = ("late", "repeated", "cut within", "cut after", "unreadable", "expired")
EMPHASES: Final = (0.0, 1.0, 1.0, 5.0)
"""A history leaves out some kinds of faults and steps, and repeats others: some findings need several of one kind."""

_LATE_SECONDS: Final = 5.0
_BOOKMARK_SECONDS: Final = 60.0


class Content:
    """The body of a response or request, in chunks."""

    def __init__(self, chunks: Callable[[], AsyncIterator[bytes]]) -> None:
        self._chunks = chunks

    def iter_any(self) -> AsyncIterator[bytes]:
        """Return the chunks as they arrive."""
        return self._chunks()


class Response:
    """What the operator uses of ``aiohttp.ClientResponse``."""

    def __init__(self, status: int, body: bytes | None, chunks: Callable[[], AsyncIterator[bytes]]) -> None:
        self.status, self.reason = status, ""
        headers = CIMultiDict({"Content-Type": "application/json"})
        self.content_length = None if body is None else len(body)
        if body is not None:
            headers["Content-Length"] = str(len(body))
        self.headers = CIMultiDictProxy(headers)
        self.content = Content(chunks)

    @classmethod
    def whole(cls, status: int, body: bytes) -> Self:
        """Return a response that arrives at once."""

        async def chunks() -> AsyncIterator[bytes]:
            yield body

        return cls(status, body, chunks)

    @classmethod
    def cut(cls, status: int, body: bytes) -> Self:
        """Return a response whose connection breaks in the middle."""

        async def chunks() -> AsyncIterator[bytes]:
            yield body[: len(body) // 2]
            raise aiohttp.ClientPayloadError("the response ended too early")

        return cls(status, body, chunks)

    async def read(self) -> bytes:
        """Return the body."""
        return b"".join([chunk async for chunk in self.content.iter_any()])

    def close(self) -> None:
        """Do nothing: the reader of a stream has ended."""

    async def __aenter__(self) -> Self:
        """Return the response itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""


@dataclass(slots=True)
class Network:
    """What all replicas share; ``fault_rate`` is the share of requests, and of events of a watch, with a fault."""

    server: SimulatedApiServer
    chance: random.Random
    tell: Callable[[str], None]
    fault_rate: float = 0.0
    hides_kinds_until: float = 0.0
    """Until then, a gateway responds to discovery of the kinds below ``hidden_kinds``, and knows none of them."""

    hidden_kinds: str = "/"

    sender: str = ""
    """Who sends the request that the API server carries out: the value of ``RUN_HEADER``, ``OPERATOR``, or a user."""

    requests: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    """How often each fault happened."""

    _emphases: dict[str, float] = field(default_factory=dict)
    """How much more often than usual each fault happens."""

    observers: list[Callable[["Session", str, str, Any, Answer], None]] = field(default_factory=list)
    """Each receives the session, method, path, body, and answer of every request that had an effect."""

    def latency(self) -> float:
        """Draw the time of one way, in seconds."""
        return self.chance.choice(_LATENCIES)

    def draw(self, faults: Callable[[], tuple[str, ...]]) -> str:
        """Return one of the faults for a request or an event, empty for none."""
        if not self.fault_rate or self.chance.random() >= self.fault_rate:
            return ""
        possible = faults()
        weights = [self._emphases.setdefault(each, self.chance.choice(EMPHASES)) for each in possible]
        if not any(weights):
            return ""
        [fault] = self.chance.choices(possible, weights)
        self.faults[fault] = self.faults.get(fault, 0) + 1
        return fault


class Session:
    """The connections of one replica."""

    def __init__(self, network: Network, replica: str) -> None:
        self.network, self.replica = network, replica
        self._is_connected = asyncio.Event()
        self._is_connected.set()
        self._is_dead = False
        self._breaks = 0
        """How often all connections broke."""

    def cut(self) -> None:
        """Lose all packets from now on."""
        self._is_connected.clear()

    def break_watches(self) -> None:
        """Let no watch survive: each gets nothing of what happens from now on."""
        self._breaks += 1

    def restore(self, *, breaks: bool = False) -> None:
        """Let packets pass again, unless the replica was killed; with ``breaks``, no watch has survived."""
        if breaks:
            self.break_watches()
        if not self._is_dead:
            self._is_connected.set()

    def kill(self) -> None:
        """Lose all packets forever."""
        self._is_dead = True
        self.cut()

    async def request(
        self,
        method: str,
        url: str | URL,
        *,
        headers: Mapping[str, str],
        data: object = None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - of aiohttp's method
        **_: object,
    ) -> Response:
        """Send a request; see ``aiohttp.ClientSession.request``."""
        url = url if isinstance(url, URL) else URL(url, encoded=True)
        seconds = timeout.total or timeout.sock_read
        try:
            async with asyncio.timeout(seconds):
                return await self._request(method, url, headers, data if isinstance(data, str | bytes) else None)
        except TimeoutError:
            self.network.tell(f"{self.replica} {method} {url.raw_path_qs}: no response")
            raise

    async def _request(self, method: str, url: URL, headers: Mapping[str, str], data: str | bytes | None) -> Response:
        network = self.network
        network.requests += 1
        await self._travel()
        fault = network.draw(lambda: self._possible_faults(method, url, is_run=RUN_HEADER in headers))
        is_hidden = network.hides_kinds_until > asyncio.get_running_loop().time()
        if (
            is_hidden
            and url.raw_path.startswith(f"{network.hidden_kinds.rstrip('/')}/")
            and _is_discovery(url.raw_path)
        ):
            fault = "404 of a gateway"
        if fault:
            network.tell(f"{self.replica} {method} {url.raw_path}: fault {fault}")
        if fault in _WITHOUT_EFFECT:
            return await self._respond_without_effect(fault, url.raw_path)
        answer = self._carry_out(method, url, headers, data)
        if isinstance(answer, Watch):
            seconds = float(url.query.get("timeoutSeconds", "3600"))
            return Response(200, None, partial(self._events, answer, seconds))
        if fault == "error after":
            answer = self._error()
        elif fault == "lost response":
            await asyncio.Event().wait()
        await self._travel()
        body = json.dumps(answer.body).encode()
        return (Response.cut if fault == "truncated" else Response.whole)(answer.status, body)

    def _possible_faults(self, method: str, url: URL, *, is_run: bool) -> tuple[str, ...]:
        """Return the faults that can meet a request."""
        found: tuple[str, ...] = _ERRORS_OF_ANY
        if is_run:
            return found
        if method == "GET":
            found += ("404", "404 of a gateway")
            found += ("410",) if url.query.get("watch") or url.query.get("continue") else ()
            found += ("outdated", "outdated") if self._earlier(url.raw_path) else ()
        return found + (("409",) if method in ("PUT", "PATCH") else ())

    async def _respond_without_effect(self, fault: str, path: str) -> Response:
        """Return the response to a request that the API server doesn't carry out."""
        details = {"name": path.rpartition("/")[2]}
        match fault:
            case "lost request":
                await asyncio.Event().wait()
            case "refused":
                raise aiohttp.ClientOSError(111, "Connection refused")
            case "404 of a gateway":
                await self._travel()
                return Response.whole(404, b"page not found")
        answers = {
            "404": lambda: _status(404, "NotFound", details),
            "409": lambda: _status(409, "Conflict", details),
            "410": lambda: _status(410, "Expired", {}),
            "outdated": lambda: Answer(200, self._earlier(path) or {}),
            "error": self._error,
        }
        answer = answers[fault]()
        await self._travel()
        return Response.whole(answer.status, json.dumps(answer.body).encode())

    def _earlier(self, path: str) -> RawObject | None:
        """Return the object of a path before its last change, as a lagging cache has it."""
        current = self.network.server.handle("GET", path)
        if current.status != 200 or "items" in current.body:
            return None
        metadata = current.body.get("metadata", {})
        uid, version = metadata.get("uid"), int(metadata.get("resourceVersion") or 0)
        known = self.network.server.history  # which has what a restore has undone, too
        found = [obj for at, _, obj in known if obj["metadata"].get("uid") == uid and at < version]
        return json.loads(json.dumps(found[-1])) if uid and found else None

    def _error(self) -> Answer:
        code = self.network.chance.choice(list(_ERRORS))
        return _status(code, _ERRORS[code], {})

    def _carry_out(self, method: str, url: URL, headers: Mapping[str, str], data: str | bytes | None) -> Answer | Watch:
        network, path, query = self.network, url.raw_path, dict(url.query)
        accept = headers.get("Accept", "application/json")
        if method == "GET" and query.get("watch", "") not in ("", "0", "false"):
            network.tell(f"{self.replica} WATCH {path} from {query.get('resourceVersion', '')}")
            return network.server.watch(path, query, accept)
        body = json.loads(data) if data else None
        network.sender = headers.get(RUN_HEADER, OPERATOR)
        answer = network.server.handle(method, path, query, body, accept, headers.get("Content-Type", ""))
        by = "run" if RUN_HEADER in headers else self.replica
        network.tell(f"{by} {method} {url.raw_path_qs}: {answer.status}")
        if "dryRun" not in query and "dryRun" not in (body or ()):
            for observe in network.observers:
                observe(self, method, path, body, answer)
        network.sender = ""
        return answer

    async def _travel(self) -> None:
        """Wait for one way; forever while all packets are lost."""
        await asyncio.sleep(self.network.latency())
        await self._is_connected.wait()

    async def _events(self, watch: Watch, seconds: float) -> AsyncIterator[bytes]:
        """Yield the lines of a watch until its end, or until the connection breaks."""
        network, loop = self.network, asyncio.get_running_loop()
        changed = asyncio.Event()
        network.server.on_change.append(changed.set)
        now, breaks = loop.time(), self._breaks
        ends, bookmark_at = now + seconds, now + _BOOKMARK_SECONDS
        alarm = loop.call_at(min(ends, bookmark_at), changed.set)
        try:
            while (now := loop.time()) < ends:
                if now >= bookmark_at:
                    bookmark_at = now + _BOOKMARK_SECONDS
                    alarm = loop.call_at(min(ends, bookmark_at), changed.set)
                    watch.bookmark()
                if events := watch.take():
                    await asyncio.sleep(network.latency())
                    await self._until_connected()
                if self._breaks != breaks or watch.is_closed:
                    raise aiohttp.ClientOSError(104, "Connection reset by peer")
                for event in events:
                    async for line in self._line(event):
                        yield line
                    if event["type"] == "ERROR":
                        return
                if not events:
                    await changed.wait()
                    changed.clear()
        finally:
            alarm.cancel()
            network.server.on_change.remove(changed.set)
            watch.close()

    async def _until_connected(self) -> None:
        """Wait for the network, as long as TCP does."""
        if self._is_connected.is_set():
            return
        try:
            async with asyncio.timeout(DEAD_AFTER_SECONDS):
                await self._is_connected.wait()
        except TimeoutError:
            raise aiohttp.ClientOSError(110, "Connection timed out") from None

    async def _line(self, event: RawObject) -> AsyncIterator[bytes]:
        """Yield the line of an event, with the fault that meets it."""
        line = json.dumps(event).encode() + b"\n"
        obj, fault = event["object"], self.network.draw(lambda: _EVENTS)
        name = obj.get("metadata", {}).get("name", "")
        self.network.tell(f"{self.replica} gets {event['type']} {obj.get('kind')} {name} {fault}".rstrip())
        match fault:
            case "late":
                await asyncio.sleep(_LATE_SECONDS)
            case "repeated":
                yield line
            case "cut within":
                yield line[: len(line) // 2]
                raise aiohttp.ClientPayloadError("the watch broke")
            case "cut after":
                yield line
                raise aiohttp.ClientPayloadError("the watch broke")
            case "unreadable":
                yield b"no event\n"
                return
            case "expired":
                yield line
                yield json.dumps({"type": "ERROR", "object": _status(410, "Expired", {}).body}).encode() + b"\n"
                return
        yield line

    async def close(self) -> None:
        """Do nothing: the tasks that use a connection end it."""


def _is_discovery(path: str) -> bool:
    """Return whether a path is that of the kinds of a group and version."""
    parts = path.strip("/").split("/")
    return len(parts) == (2 if parts[0] == "api" else 3)


def _status(code: int, reason: str, details: RawObject) -> Answer:
    return RequestError(code, reason, f"simulated {reason}", details).answer
