"""Sessions of the runs that may use the proxy, their requests, and the carriers of what observers receive.

A run's secret is valid from registration to revocation. When revocation returns, the secret is invalid, every request
in flight is cancelled, including streams and tunnels, and every write that had been sent to the API server has ended.
So nothing is written after revocation, and every write is recorded. Secrets are stored and compared as digests, so
that response times reveal nothing about them.

A task names itself: its name, appended to the run's secret, isn't a part of the secret, and is never forwarded. It is a
note for the record, not a credential: a run that appends another name only falsifies its own record. A request without
such a name belongs to the run, but to no known task.

Clients differ in their use of credentials. The Python client and kubernetes.core send a token over plain HTTP.
client-go (kubectl, helm) does not; over plain HTTP it sends only credentials that are part of a URL. It also names its
caches after the server's URL, which should therefore be the same for all runs. So the kubeconfig uses the proxy's
address twice: without the secret as the server, and with it as the ``proxy-url``. The secret never appears in a
``repr``.
"""

import asyncio
import base64
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Protocol, Self, TypeVar

from aiohttp import web

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.forward import NO_CONTEXT, BodyCapture, NewTraceparent, TraceContext
from rolecall.runner.proxy.ownership import Owner, Ownership
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.seen_objects import SeenObject

SEPARATOR: Final = "."
HIDDEN_MARK: Final = "hidden"
MAX_NAME_CHARACTERS: Final = 1024
MAX_RESPONSE_BYTES: Final = 8 << 20
"""A longer response is forwarded, but observers don't receive it."""

MAX_STREAM_BYTES: Final = 1 << 20
"""The same for a watch or a log."""

WRITE_GRACE_SECONDS = 2.0
_LOOPBACK: Final = ("127.0.0.1", "localhost")
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_PROXY: Final = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", *_NO_PROXY)
_CLUSTER: Final = "proxy-server"
_IMPERSONATE: Final = "impersonate-"
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The task that sent a request, by its id in Ansible, and its host; ``is_hidden`` if it may have ``no_log``."""

    task: str = ""
    host: str = ""
    is_hidden: bool = False

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the origin for the name that follows a secret, the unknown origin for an unreadable name."""
        task, _, rest = name[:MAX_NAME_CHARACTERS].partition(SEPARATOR)
        host, _, mark = rest.partition(SEPARATOR)
        try:
            padded = host + "=" * (-len(host) % 4)
            return cls(task, base64.b64decode(padded, b"-_", validate=True).decode(), mark == HIDDEN_MARK)
        except ValueError:
            return cls()


@dataclass(slots=True)
class Exchange:
    """One request of a run and its response.

    ``target`` is its path and query as in the request line. ``body`` is that of a write, empty for any other request,
    and ``sent`` the forwarded one, None if it is the same. ``status`` is None if the request ended without a
    response. ``response`` is its body, None if there is none, or if it was too long: ``is_cut``. ``impersonated`` has
    the names and values of the impersonation headers. ``context`` is the trace that the request belongs to.
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

    def without_bodies(self) -> "Exchange":
        """Return a copy without the bodies, which takes little memory."""
        kept = (each.name for each in fields(Exchange) if each.name not in {"body", "sent", "response"})
        return Exchange(**{name: getattr(self, name) for name in kept})


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
    """A registered read that has no response yet."""

    @property
    def needs_keys(self) -> bool:
        """Return whether the keys of the objects in a list matter."""

    def record_response(self, status: int, content: Any, keys: frozenset[ObjectKey] | None) -> None:
        """Record the response: its status (0: none), and its JSON, None if it is unreadable.

        ``keys`` are those of the objects in a list, None if they were not read.
        """


@dataclass(slots=True, eq=False)
class ProxiedRun:
    """A run as the proxy sees it. The proxy tells it what it does; the methods of this class ignore that.

    The methods must return immediately. ``id`` identifies the run in the log; two runs are never equal. Without
    ``inject_owner``, created objects are not changed and dependents are not reported. Only if ``is_recorded``, the run
    gets requests with the bodies of their responses, and only if ``observes_reads``, its reads are registered. Only if
    ``follows_waiting``, the objects of others in lists are examined. With ``prunes``, each object that the run has
    created gets a mark with its uid, see ``made_for.py``, which takes a request.
    ``new_traceparent`` returns the ``traceparent`` to send with a request.
    """

    id: str
    owner: Owner
    inject_owner: bool = True
    is_recorded: bool = False
    observes_reads: bool = False
    follows_waiting: bool = False
    prunes: bool = False
    new_traceparent: NewTraceparent | None = None

    def about_to_write(self, group: str) -> None:
        """Receive the API group of a write before it is sent."""

    def wrote(self, obj: RawObject) -> None:
        """Receive an object that the run has changed, as the API server returned it."""

    def deleted(self, uid: str) -> None:
        """Receive the uid of an object that the run has deleted and that no longer exists."""

    def found_dependent(self, resource: ApiResource, ownership: Ownership) -> None:
        """Receive the kind of a dependent that the run is about to create, or has read, and how it names its owner."""

    def saw_dependent(self, obj: RawObject) -> None:
        """Receive a dependent as the run has read it. Its kind was found before."""

    def is_gone(self, kind: str, primary: str) -> bool:  # noqa: ARG002 - for those that know other primaries
        """Return whether the primary that two annotations name certainly doesn't exist."""
        return False

    def reading(self, read: Read) -> PendingRead | None:  # noqa: ARG002 - for those that observe reads
        """Register a read that is about to be sent; return None if it is irrelevant.

        Nothing may be lost between a read and the watch on its objects. So a read is registered before it is sent to
        the API server, and its response determines later which state the run has seen.
        """
        return None

    def responded(self, info: RequestInfo, status: int, seen: tuple[SeenObject, ...] | None) -> None:
        """Receive any request, the status of its response (0: none), and the objects in it; None if it is unreadable.

        Of the objects in a list, these are the run's own, and with ``follows_waiting`` those that wait.
        """

    def exchanged(self, exchange: Exchange) -> None:
        """Receive a request and its response."""

    @property
    def log_fields(self) -> dict[str, str]:
        """The keys and values on every log line about this run."""
        key = self.owner.key
        return {"kind": self.owner.gvk.kind, "namespace": key.namespace, "name": key.name, "job": self.id}


@dataclass(slots=True, eq=False)
class Session:
    """A registered run with its requests in flight."""

    run: ProxiedRun
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

    def forget_version(self, info: RequestInfo) -> None:
        """Forget the version that the run has seen of the requested object."""
        self._versions.pop((info.group, info.resource, info.namespace, info.name), None)

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


@dataclass(slots=True, kw_only=True)
class ProxiedRequest(Exchange):
    """A request of a run on its way through the proxy; ``capture`` copies a streamed response."""

    session: Session
    capture: BodyCapture | None = None
    seen: tuple[SeenObject, ...] | None = None
    key_in_body: ObjectKey | None = None
    """The key of the object that the request creates, None if it is unknown."""

    _started_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def run(self) -> ProxiedRun:
        """The run."""
        return self.session.run

    @property
    def named_info(self) -> RequestInfo:
        """The info, for a creation with the name of the object, which is only in its body."""
        if self.key_in_body is None or self.info.name:
            return self.info
        return replace(self.info, namespace=self.key_in_body.namespace, name=self.key_in_body.name)

    @property
    def path(self) -> str:
        """The path, still encoded."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The query, still encoded."""
        return self.target.partition("?")[2]

    @property
    def object_path(self) -> str:
        """The path of the object, without the subresource."""
        return self.path.removesuffix(f"/{self.info.subresource}") if self.info.subresource else self.path

    def capture_response(self, inspected_bytes: int | None) -> BodyCapture | None:
        """Start to copy the response, up to the limit of the inspection, else that of the observer, if there is one."""
        if inspected_bytes is not None:
            self.capture = BodyCapture(inspected_bytes)
        elif self.run.is_recorded:
            self.capture = BodyCapture(MAX_STREAM_BYTES if self.info.is_long_running else MAX_RESPONSE_BYTES)
        return self.capture

    def finish(self, request: web.BaseRequest, response: web.StreamResponse | None) -> None:
        """Add the response, None if the request ended without one."""
        self.duration_seconds = asyncio.get_running_loop().time() - self._started_at
        self.impersonated = tuple(each for each in request.headers.items() if each[0].lower().startswith(_IMPERSONATE))
        if isinstance(response, web.Response) and isinstance(response.body, bytes | bytearray):
            self.response = bytes(response.body)
        elif self.capture is not None:
            self.response, self.is_cut = self.capture.body, response is None or self.capture.body is None
        if response is not None:
            self.status, self.response_type = response.status, response.headers.get("Content-Type", "")


RequestInterceptor = Callable[[ProxiedRequest], Awaitable[web.Response | None]]
"""Is awaited before each request, and returns None, or the response that the run gets instead."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The run, and its task, that a request comes from."""

    session: Session
    origin: RequestOrigin


@dataclass(frozen=True, slots=True)
class ProxyCredentials:
    """The credentials of one run, valid until the run is revoked.

    ``url`` is the same for all runs; ``namespace`` is the primary's namespace, empty for a cluster-scoped primary.

    Clients find the API server only by the kubeconfig, as with the Go runner: variables such as ``K8S_AUTH_HOST`` would
    override the ``kubeconfig`` of a task, and its work for another cluster would happen in this one.
    """

    url: str
    secret: str = field(repr=False)
    namespace: str = ""

    def environment(self, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the variables to add to a play's environment; ``inherited`` is the environment without them.

        ``NO_PROXY`` is among them only if the inherited environment configures a proxy: roles copy these variables into
        the objects that they create.
        """
        variables: dict[str, str] = {}
        if not any(inherited.get(name) for name in _PROXY):
            return variables
        for name in _NO_PROXY:  # a client takes the first of the two that is set
            excluded = next(filter(None, (inherited.get(each, "") for each in (name, *_NO_PROXY))), "")
            hosts = [host.strip() for host in excluded.split(",") if host.strip()]
            variables[name] = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
        return variables

    def kubeconfig(self) -> str:
        """Return the content of a kubeconfig file (JSON, which is YAML). It contains the secret: restrict access."""
        context, user = f"{self.namespace}/{_CLUSTER}", f"admin/{_CLUSTER}"
        scheme, _, address = self.url.partition("://")
        # client-go's WebSocket dialer sends the user name only if there is a password.
        proxy_url = f"{scheme}://{self.secret}:unused@{address}"
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _CLUSTER, "cluster": {"server": self.url, "proxy-url": proxy_url}}],
            "users": [{"name": user, "user": {"token": self.secret}}],
            "contexts": [{"name": context, "context": {"cluster": _CLUSTER, "user": user}}],
            "current-context": context,
            "preferences": {},
        }
        return json.dumps(content)
