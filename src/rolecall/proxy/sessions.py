"""The runs that may use the proxy, and who of them a request comes from.

A secret is valid from registration to revocation. Revocation is complete when it returns: the secret is unknown, every
request that was under way has been cancelled, streams and tunnels too, and a write that the API server had before has
come to its end, so that nothing is written afterwards and everything written is noted. Secrets are kept as digests, so
that the time of an answer tells nothing about them.
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
from rolecall.proxy.reads.read_watermark import ReadWatermark
from rolecall.proxy.request_info import RequestInfo
from rolecall.proxy.writes.ownership import Owner, Ownership

SECRET_BYTES = 32
LAST_WRITES_SECONDS = 2.0
_Result = TypeVar("_Result")


def _nobody(_uid: str) -> None:
    """Stand for somebody who wants to hear of removals."""


@dataclass(frozen=True, slots=True, eq=False)
class SessionSpec:
    """One run of a primary's role, as the proxy needs to know it. Two runs are never equal.

    ``on_write`` gets every object that a write of the run has changed, as the API server returned it, ``on_removal``
    the uid of each that it has deleted and that is gone. ``on_dependent`` gets the kind of a dependent that is about to
    be created, or was read, and how it names the primary. With ``inject_owner`` off, created objects are left alone and
    no dependent is reported. ``job`` names the run in the log. ``seen`` is what the primary's runs have seen, None when
    nothing is to be answered from a cache; kinds that are ``uncached`` never are.
    """

    request_gvk: GVK
    key: ObjectKey
    uid: str
    namespaced: bool
    on_write: Callable[[RawObject], None]
    on_dependent: Callable[[ApiResource, Ownership], None]
    inject_owner: bool = True
    job: str = ""
    seen: ReadWatermark | None = None
    uncached: frozenset[GVK] = frozenset()
    on_removal: Callable[[str], None] = _nobody

    @property
    def owner(self) -> Owner:
        """The primary as the owner of what the run creates."""
        return Owner(self.request_gvk, self.key, self.uid, self.namespaced)

    @property
    def log_fields(self) -> dict[str, str]:
        """What stands on every log line about this run."""
        kind, key = self.request_gvk.kind, self.key
        return {"kind": kind, "namespace": key.namespace, "name": key.name, "job": self.job}


@dataclass(slots=True, eq=False)
class Session:
    """A run that has not been revoked, with its requests under way."""

    run: SessionSpec
    is_revoked: bool = False
    _requests: set[asyncio.Task[Any]] = field(default_factory=set)
    _writes: set[asyncio.Task[Any]] = field(default_factory=set)
    _versions: dict[tuple[str, str, str, str], str] = field(default_factory=dict)

    def version_of(self, info: RequestInfo) -> str | None:
        """Return the version in which the run saw the object last: empty if it was not there, None if never."""
        return self._versions.get((info.group, info.resource, info.namespace, info.name))

    def saw(self, info: RequestInfo, version: str, name: str = "") -> None:
        """Remember the version (empty: not there) in which the run has seen the object of a request, or another one."""
        self._versions[info.group, info.resource, info.namespace, name or info.name] = version

    @contextmanager
    def request_under_way(self) -> Iterator[None]:
        """Make the current task one that revocation cancels."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is served outside a task: expected a running event loop")
        self._requests.add(task)
        try:
            yield
        finally:
            self._requests.discard(task)

    async def finish(self, write: Coroutine[Any, Any, _Result]) -> _Result:
        """Carry out a write that goes on when its request is cancelled, because the API server may have it already."""
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    async def revoke(self) -> None:
        """Cancel all requests, let begun writes end, and wait for both; the secret must be unknown before."""
        self.is_revoked = True
        requests, writes = tuple(self._requests), tuple(self._writes)
        for task in requests:
            task.cancel()
        if writes:
            _, late = await asyncio.wait(writes, timeout=LAST_WRITES_SECONDS)
            for task in late:
                task.cancel()
        await asyncio.gather(*requests, *writes, return_exceptions=True)


@dataclass(slots=True)
class Sessions:
    """The live runs by the digest of their secret."""

    _by_digest: dict[bytes, Session] = field(default_factory=dict)

    def add(self, run: SessionSpec) -> str:
        """Issue a secret for a run and return it; it is stored nowhere else."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._by_digest[_digest(secret)] = Session(run)
        return secret

    def authenticate(self, authorization: str) -> Session | None:
        """Return the run whose secret an Authorization header carries, None for any other header."""
        presented = _digest(_secret_of(authorization))
        for known, session in self._by_digest.items():
            if hmac.compare_digest(known, presented):
                return session
        return None

    async def revoke(self, run: SessionSpec) -> None:
        """Forget the secrets of a run, cancel its requests and wait until they have ended."""
        revoked = {digest: session for digest, session in self._by_digest.items() if session.run is run}
        for digest in revoked:
            del self._by_digest[digest]
        await asyncio.gather(*(session.revoke() for session in revoked.values()))

    async def revoke_all(self) -> None:
        """Revoke every run."""
        for session in list(self._by_digest.values()):
            await self.revoke(session.run)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()


def _secret_of(authorization: str) -> str:
    """Return the token of a Bearer header or the user name of a Basic one, else empty text."""
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
