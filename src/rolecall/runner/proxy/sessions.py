"""Sessions of the runs that may use the proxy, and authentication of their requests.

A run's secret is valid from registration to revocation. When revocation returns, the secret is invalid, every request
in flight is cancelled, including streams and tunnels, and every write that had been sent to the API server has ended.
So nothing is written after revocation, and every write is recorded. Secrets are stored and compared as digests, so
that response times reveal nothing about them.

What the proxy tells about the reads of a run, before they are answered and when they are.

Nothing may be lost between a read and the watch on what it has read. So the read is registered before it goes to the
API server, and its answer says afterwards what the run has seen. Which reads count is decided by who is told.

Lets somebody prepare for a request of a run, or answer it, before it goes to the API server.

What an observer of a run is told about each exchange with the API server, and which task of the run asked.

A task names itself: what it appends to the run's secret is not a part of the secret, and is never forwarded. It is a
note for the record, not a credential: a run that appends something else lies to its own record and gains nothing. A
request whose secret has nothing appended belongs to the run, but to no task that is known.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl

from aiohttp import web

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.forward import NO_CONTEXT, BodyCapture, NewTraceparent, TraceContext
from rolecall.runner.proxy.ownership import Owner, Ownership
from rolecall.runner.proxy.request_info import READ_VERBS, RequestInfo
from rolecall.runner.proxy.upgrade import SWITCHING_PROTOCOLS, HijackedResponse
from rolecall.system.logs import get_logger

logger = get_logger("proxy")

_READABLE: Final = frozenset({"", "status", "scale"})
"""The subresources that show the object itself."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read of one object, or of a collection if the name in ``key`` is empty.

    ``key.namespace`` is empty for all namespaces and for cluster-scoped kinds. ``start`` is the resourceVersion from
    which a watch starts, empty for other reads and if it names none.
    """

    resource: ApiResource
    verb: str
    key: ObjectKey
    label_selector: str = ""
    start: str = ""


class PendingRead(Protocol):
    """A read that was registered and is not answered yet."""

    @property
    def needs_keys(self) -> bool:
        """Return whether the keys of the objects in a list matter."""

    def record_response(self, status: int, content: Any, keys: frozenset[ObjectKey] | None) -> None:
        """Take note of the answer: its status (0: none), and its JSON, None if it could not be read.

        ``keys`` are those of the objects in a list, None if they were not read.
        """


class ReadObserver(Protocol):
    """Is told about the reads of one run; must return at once."""

    def register(self, read: Read) -> PendingRead | None:
        """Take note of a read that is about to be sent, None if it does not matter."""


@dataclass(slots=True)
class Answer:
    """The answer to a read, as far as it is known."""

    needs_keys: bool = False
    status: int = 0
    content: Any = None
    keys: frozenset[ObjectKey] | None = None


@dataclass(frozen=True, slots=True)
class ReadTracking:
    """Tells the observer of a run about its reads."""

    client: Client

    async def register(self, observer: ReadObserver | None, info: RequestInfo, target: str) -> PendingRead | None:
        """Register a request if it is a read that somebody wants to know of."""
        if observer is None or not info.is_resource or info.verb not in READ_VERBS or info.subresource not in _READABLE:
            return None
        try:
            resource = await self.client.resource_for_path(info.group, info.version, info.resource)
        except KubeError as error:
            resource = None
            logger.debug("Cannot discover the kind of a read", resource=info.resource, reason=str(error))
        return None if resource is None else observer.register(_read(resource, info, target))


@contextmanager
def tracked(pending: PendingRead | None) -> Iterator[Answer]:
    """Yield an answer to fill in; at the end of the request, however it ends, it is passed on."""
    answer = Answer(pending is not None and pending.needs_keys)
    try:
        yield answer
    finally:
        if pending is not None:
            pending.record_response(
                answer.status, answer.content if answer.status == HTTPStatus.OK else None, answer.keys
            )


def _read(resource: ApiResource, info: RequestInfo, target: str) -> Read:
    query = dict(parse_qsl(target.partition("?")[2], keep_blank_values=True))
    key = info.key
    if resource.namespaced and not key.namespace:
        key = ObjectKey("", "")  # one name in all namespaces
    is_watch = info.verb == "watch"
    return Read(
        resource, info.verb, key, query.get("labelSelector", ""), query.get("resourceVersion", "") if is_watch else ""
    )


SEPARATOR: Final = "."
HIDDEN_MARK: Final = "hidden"
MAX_NOTE_CHARACTERS: Final = 1024
MAX_ANSWER_BYTES: Final = 8 << 20
"""A longer answer is forwarded but not kept."""

MAX_STREAM_BYTES: Final = 1 << 20
"""The same for a watch or a log."""


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The task that has sent a request, by Ansible's id of it, and its host; ``is_hidden`` if it may say no_log."""

    task: str = ""
    host: str = ""
    is_hidden: bool = False

    @classmethod
    def parse(cls, note: str) -> "RequestOrigin":
        """Return the origin that a note names; an unreadable note names nobody."""
        task, _, rest = note[:MAX_NOTE_CHARACTERS].partition(SEPARATOR)
        host, _, mark = rest.partition(SEPARATOR)
        try:
            padded = host + "=" * (-len(host) % 4)
            return cls(task, base64.b64decode(padded, b"-_", validate=True).decode(), mark == HIDDEN_MARK)
        except (binascii.Error, ValueError):
            return cls()


UNKNOWN_ORIGIN: Final = RequestOrigin()


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a run and its answer.

    ``body`` is as the task sent it, ``sent`` as it was sent on if the proxy has changed it. ``status`` is None if the
    request ended without an answer. ``response`` is None if there is none, or if it was not kept: ``is_cut`` tells.
    ``impersonated`` has the names and values of the headers by which the request acts as somebody else. ``context``
    says to which trace the request belongs.
    """

    origin: RequestOrigin
    method: str
    target: str
    info: RequestInfo
    started: float
    duration_seconds: float
    content_type: str = ""
    body: bytes = b""
    sent: bytes | None = None
    status: int | None = None
    response_type: str = ""
    response: bytes | None = None
    is_cut: bool = False
    impersonated: tuple[tuple[str, str], ...] = ()
    context: TraceContext = NO_CONTEXT


OnExchange = Callable[[Exchange], None]


class Observation:
    """Collects one exchange for an observer; without an observer it does nothing.

    Set ``body``, ``sent`` and ``context`` when they are known, and call ``finish`` once, with None if there is no
    response.
    """

    def __init__(
        self, observer: OnExchange | None, origin: RequestOrigin, request: web.BaseRequest, info: RequestInfo
    ) -> None:
        self.body = b""
        self.sent: bytes | None = None
        self.context = NO_CONTEXT
        self._observer = observer
        self._asker, self._request, self._info = origin, request, info
        self._started, self._clock = time.time(), time.monotonic()
        self._capture: BodyCapture | None = None

    def capture(self, inspected: BodyCapture | None) -> BodyCapture | None:
        """Return the capture for an answer that is forwarded as it arrives: the given one, or one for the observer."""
        if self._observer is not None:
            limit = MAX_STREAM_BYTES if self._info.is_long_running else MAX_ANSWER_BYTES
            self._capture = inspected or BodyCapture(limit)
        return self._capture or inspected

    def finish(self, target: str, response: web.StreamResponse | None) -> None:
        """Tell the observer about the exchange."""
        if self._observer is None:
            return
        headers: Mapping[str, str] = self._request.headers
        answer, is_cut = self._answer(response)
        exchange = Exchange(
            origin=self._asker,
            method=self._request.method,
            target=target,
            info=self._info,
            started=self._started,
            duration_seconds=time.monotonic() - self._clock,
            content_type=headers.get("Content-Type", ""),
            body=self.body,
            sent=None if self.sent == self.body else self.sent,
            status=_status_of(response),
            response_type="" if response is None else response.headers.get("Content-Type", ""),
            response=answer,
            is_cut=is_cut,
            impersonated=tuple(each for each in headers.items() if each[0].lower().startswith("impersonate-")),
            context=self.context,
        )
        self._observer(exchange)

    def _answer(self, response: web.StreamResponse | None) -> tuple[bytes | None, bool]:
        if isinstance(response, web.Response) and isinstance(response.body, bytes | bytearray):
            return bytes(response.body), False
        if self._capture is None:
            return None, False
        return self._capture.body, response is None or self._capture.body is None


def _status_of(response: web.StreamResponse | None) -> int | None:
    if response is None:
        return None
    return SWITCHING_PROTOCOLS if isinstance(response, HijackedResponse) else response.status


SECRET_BYTES = 32
WRITE_GRACE_SECONDS = 2.0
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class SessionSpec:
    """What the proxy must know about a run. Two specs are never equal.

    ``on_write`` is called with every object that the run has changed, as the API server returned it, ``on_removal``
    with the uid of every object that the run has deleted and that no longer exists. ``on_dependent`` is called with the
    kind of a dependent that the run is about to create, or has read, and with the way it names the primary. Without
    ``inject_owner``, created objects are not changed and dependents are not reported. ``ident`` identifies the run in
    the log. ``on_exchange`` is told about every request of the run, ``reads`` about every read before it is sent, and
    ``before_write`` about the API group of every write before that. ``new_traceparent`` returns the ``traceparent``
    with which a request is sent on.
    """

    request_gvk: GVK
    key: ObjectKey
    uid: str
    namespaced: bool
    on_write: Callable[[RawObject], None]
    on_dependent: Callable[[ApiResource, Ownership], None]
    inject_owner: bool = True
    ident: str = ""
    on_removal: Callable[[str], None] | None = None
    on_exchange: OnExchange | None = None
    reads: ReadObserver | None = None
    before_write: Callable[[str], None] | None = None
    new_traceparent: NewTraceparent | None = None

    @property
    def owner(self) -> Owner:
        """The primary, as the owner of the objects that the run creates."""
        return Owner(self.request_gvk, self.key, self.uid, self.namespaced)

    @property
    def log_fields(self) -> dict[str, str]:
        """The keys and values on every log line about this run."""
        kind, key = self.request_gvk.kind, self.key
        return {"kind": kind, "namespace": key.namespace, "name": key.name, "job": self.ident}


@dataclass(slots=True, eq=False)
class Session:
    """A registered run with its requests in flight."""

    spec: SessionSpec
    is_revoked: bool = False
    _requests: set[asyncio.Task[Any]] = field(default_factory=set)
    _writes: set[asyncio.Task[Any]] = field(default_factory=set)
    _versions: dict[tuple[str, str, str, str], str] = field(default_factory=dict)

    def last_seen_version(self, info: RequestInfo) -> str | None:
        """Return the version of the object that the run saw last: empty if it did not exist, None if never read."""
        return self._versions.get((info.group, info.resource, info.namespace, info.name))

    def record_version(self, info: RequestInfo, version: str, name: str = "") -> None:
        """Record the version (empty: does not exist) that the run has seen of the requested object, or of ``name``."""
        self._versions[info.group, info.resource, info.namespace, name or info.name] = version

    @contextmanager
    def track_request(self) -> Iterator[None]:
        """Let revocation cancel the current task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("the request is not handled in a task: expected a running event loop")
        self._requests.add(task)
        try:
            yield
        finally:
            self._requests.discard(task)

    async def shield_write(self, write: Coroutine[Any, Any, _Result]) -> _Result:
        """Await a write that continues if its request is cancelled, because the API server may already have it."""
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    async def revoke(self) -> None:
        """Cancel all requests, let writes in flight end, and wait for both; invalidate the secret before."""
        self.is_revoked = True
        requests, writes = tuple(self._requests), tuple(self._writes)
        for task in requests:
            task.cancel()
        if writes:
            _, late = await asyncio.wait(writes, timeout=WRITE_GRACE_SECONDS)
            for task in late:
                task.cancel()
        await asyncio.gather(*requests, *writes, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request: a run, and which of its tasks."""

    session: Session
    origin: RequestOrigin


@dataclass(slots=True)
class Sessions:
    """The sessions by the digest of their secret."""

    _by_digest: dict[bytes, Session] = field(default_factory=dict)

    def add(self, spec: SessionSpec) -> str:
        """Start a session for a run and return its secret, which is stored nowhere else."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._by_digest[_digest(secret)] = Session(spec)
        return secret

    def authenticate(self, authorization: str) -> Caller | None:
        """Return the caller whose secret is in an Authorization header, None for any other header.

        Only the secret is verified; what a task has appended to it says which task it is.
        """
        secret, _, note = _secret_of(authorization).partition(SEPARATOR)
        presented = _digest(secret)
        for known, session in self._by_digest.items():
            if hmac.compare_digest(known, presented):
                return Caller(session, RequestOrigin.parse(note))
        return None

    async def revoke(self, spec: SessionSpec) -> None:
        """Invalidate the secret of a run, cancel its requests and wait until they have ended."""
        revoked = {digest: session for digest, session in self._by_digest.items() if session.spec is spec}
        for digest in revoked:
            del self._by_digest[digest]
        await asyncio.gather(*(session.revoke() for session in revoked.values()))

    async def revoke_all(self) -> None:
        """Revoke every run."""
        for session in list(self._by_digest.values()):
            await self.revoke(session.spec)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()


def _secret_of(authorization: str) -> str:
    """Return the token of a Bearer header or the user name of a Basic header, else an empty string."""
    scheme, _, value = authorization.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                decoded = base64.b64decode(value, validate=True).decode(errors="replace")
            except (binascii.Error, ValueError):
                return ""
            return decoded.partition(":")[0]
    return ""


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request that has not been sent on; ``body`` is empty unless it is a write. ``query`` is still encoded."""

    spec: SessionSpec
    origin: RequestOrigin
    info: RequestInfo
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = ""


class RequestInterceptor(Protocol):
    """Is awaited before each request."""

    async def before(self, request: ProxiedRequest) -> web.Response | None:
        """Return None to let the request pass, or the response that the run gets instead."""
