"""Authorizes clients by their tokens: a TokenReview, then a SubjectAccessReview.

Positive results are cached for a minute, so that a scrape doesn't cost two requests; negative ones for a shorter time,
so that new permissions take effect soon. Only digests of tokens are stored. Few tokens are reviewed concurrently:
anyone can send one, and the API server has more important requests of the operator to process.

Programs send a bearer token. A browser can only ask for a name and a password, so where a server allows it, the token
may also be the password, with any name.
"""

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

from aiohttp import web

from rolecall.kube.errors import KubeError
from rolecall.kube.references import RawObject
from rolecall.system.clock import SYSTEM_CLOCK
from rolecall.system.logs import get_logger

logger = get_logger("serving")

ALLOWED_SECONDS = 60.0
REFUSED_SECONDS = 10.0
CACHE_SIZE = 256
MAX_CONCURRENT_REVIEWS = 4


class Verdict(Enum):
    """The decision of the API server about a request."""

    ALLOWED = "allowed"
    UNAUTHENTICATED = "the token is invalid"
    FORBIDDEN = "the user is not permitted"


@dataclass(slots=True)
class TokenReviewer:
    """Authorize requests by the rules of the API server.

    ``create`` creates an object and returns it with the result in its status. ``now`` is a monotonic clock in seconds.
    """

    create: Callable[[RawObject], Awaitable[RawObject]]
    now: Callable[[], float] = SYSTEM_CLOCK.monotonic
    _cache: OrderedDict[tuple[bytes, str, str], tuple[Verdict, float]] = field(default_factory=OrderedDict, init=False)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_REVIEWS), init=False)

    async def authorize(self, token: str, verb: str, path: str) -> Verdict:
        """Return whether the user of a token may use a verb on a path. Raise KubeError."""
        key = (hashlib.sha256(token.encode(errors="surrogateescape")).digest(), verb, path)
        if (known := self._known(key)) is not None:
            return known
        async with self._slots:
            if (known := self._known(key)) is not None:
                return known
            verdict = await self._review(token, verb, path)
            kept_seconds = ALLOWED_SECONDS if verdict is Verdict.ALLOWED else REFUSED_SECONDS
            self._cache[key] = (verdict, self.now() + kept_seconds)
            # Anyone can fill the cache with invalid tokens: those must not displace the valid ones.
            self._cache.move_to_end(key, last=verdict is Verdict.ALLOWED)
        if len(self._cache) > CACHE_SIZE:
            self._cache = OrderedDict((key, each) for key, each in self._cache.items() if self.now() < each[1])
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return verdict

    def _known(self, key: tuple[bytes, str, str]) -> Verdict | None:
        verdict, until = self._cache.get(key, (None, 0.0))
        return verdict if self.now() < until else None

    async def _review(self, token: str, verb: str, path: str) -> Verdict:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self.create(review)).get("status") or {}
        if not status.get("authenticated"):
            return Verdict.UNAUTHENTICATED
        user = status.get("user") or {}
        names = {"username": "user", "uid": "uid", "groups": "groups", "extra": "extra"}
        subject = {name: user[field] for field, name in names.items() if user.get(field)}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**subject, "nonResourceAttributes": {"path": path, "verb": verb}},
        }
        is_allowed = ((await self.create(review)).get("status") or {}).get("allowed") is True
        return Verdict.ALLOWED if is_allowed else Verdict.FORBIDDEN


async def refusal(
    request: web.Request, reviewer: TokenReviewer, path: str, *, takes_password: bool = False
) -> web.Response | None:
    """Return the response to a request that isn't authorized to read ``path``, None if it is.

    With ``takes_password``, a browser asks its user for the token.
    """
    header = request.headers.get("Authorization", "")
    token = bearer_token(header) or (basic_credentials(header)[1].strip() if takes_password else "")
    if not token:
        return _unauthorized(takes_password=takes_password)
    try:
        verdict = await reviewer.authorize(token, request.method.lower(), path)
    except KubeError as error:
        logger.error("Failed to authenticate a client", path=path, error=str(error))  # noqa: TRY400
        return web.Response(status=500, text="Authentication failed\n")
    if verdict is Verdict.UNAUTHENTICATED:
        return _unauthorized(takes_password=takes_password)
    return web.Response(status=403, text="Forbidden\n") if verdict is Verdict.FORBIDDEN else None


def _unauthorized(*, takes_password: bool) -> web.Response:
    challenge = 'Basic realm="rolecall: any name, and a token as the password"' if takes_password else "Bearer"
    return web.Response(status=401, text="Unauthorized\n", headers={"WWW-Authenticate": challenge})


def bearer_token(authorization: str) -> str:
    """Return the token in an Authorization header, empty for another header."""
    scheme, _, value = authorization.strip().partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def basic_credentials(authorization: str) -> tuple[str, str]:
    """Return the user name and the password in an Authorization header, both empty for another header."""
    scheme, _, value = authorization.strip().partition(" ")
    try:
        text = base64.b64decode(value.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
    except ValueError:
        return "", ""
    name, _, password = text.partition(":")
    return name, password
