"""Sessions of the runs that may use the proxy, and authentication of their requests.

A run's secret is valid from registration to revocation. When revocation returns, the secret is invalid, every request
in flight is cancelled, including streams and tunnels, and every write that had been sent to the API server has ended.
So nothing is written after revocation, and every write is recorded. Secrets are stored and compared as digests, so
that response times reveal nothing about them.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.exchanges import SEPARATOR, Asker, OnExchange
from rolecall.runner.proxy.ownership import Owner, Ownership
from rolecall.runner.proxy.read_tracking import ReadObserver
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.trace_context import NewTraceparent

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
    asker: Asker


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
                return Caller(session, Asker.of_note(note))
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
