"""Authenticates a token with a TokenReview and authorizes its user with a SubjectAccessReview.

Positive answers are cached for a minute, so that a scrape does not cost two requests; negative answers are cached for a
shorter time, so that new permissions take effect soon. Only digests of tokens are stored. Few tokens are reviewed at
once: anybody may show one, and the API server has more important requests of the operator to answer.

Whether a client may read what a server has: the API server reviews its token.

Programs show the token as a bearer token. A browser can only ask for a name and a password, so the token may also be
the password, with any name, where a server says so.
"""

import asyncio
import base64
import binascii
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from aiohttp import web

from rolecall.kube.errors import KubeError
from rolecall.kube.references import RawObject
from rolecall.system.logs import get_logger

ALLOWED_SECONDS = 60.0
REFUSED_SECONDS = 10.0
CACHE_SIZE = 256
REVIEWS_AT_ONCE = 4


class Verdict(Enum):
    """The decision of the API server about a request."""

    ALLOWED = "allowed"
    UNAUTHENTICATED = "the token is invalid"
    FORBIDDEN = "the user is not permitted"


class ReviewClient(Protocol):
    """The part of ``rolecall.kube.client.Client`` that creates reviews."""

    async def create(self, obj: RawObject) -> RawObject:
        """Create an object and return it with the answer in its status."""
        ...


@dataclass(slots=True)
class TokenReviewer:
    """Authorize requests by the rules of the API server; ``now`` is a monotonic clock in seconds."""

    client: ReviewClient
    now: Callable[[], float] = time.monotonic
    _cache: OrderedDict[tuple[bytes, str, str], tuple[Verdict, float]] = field(default_factory=OrderedDict, init=False)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REVIEWS_AT_ONCE), init=False)

    async def authorize(self, token: str, verb: str, path: str) -> Verdict:
        """Return whether the user of a token may use a verb on a path. Raise KubeError."""
        key = (hashlib.sha256(token.encode(errors="surrogateescape")).digest(), verb, path)
        if (known := self._known(key)) is not None:
            return known
        async with self._turn:
            if (known := self._known(key)) is not None:
                return known
            verdict = await self._ask(token, verb, path)
            kept_seconds = ALLOWED_SECONDS if verdict is Verdict.ALLOWED else REFUSED_SECONDS
            self._cache[key] = (verdict, self.now() + kept_seconds)
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return verdict

    def _known(self, key: tuple[bytes, str, str]) -> Verdict | None:
        verdict, until = self._cache.get(key, (None, 0.0))
        return verdict if self.now() < until else None

    async def _ask(self, token: str, verb: str, path: str) -> Verdict:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self.client.create(review)).get("status") or {}
        if not status.get("authenticated"):
            return Verdict.UNAUTHENTICATED
        answer = await self.client.create(_access_review(status.get("user") or {}, verb, path))
        is_allowed = (answer.get("status") or {}).get("allowed") is True
        return Verdict.ALLOWED if is_allowed else Verdict.FORBIDDEN


def _access_review(user: dict[str, Any], verb: str, path: str) -> RawObject:
    who = {name: user[field] for name, field in _USER_FIELDS if user.get(field)}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, "nonResourceAttributes": {"path": path, "verb": verb}},
    }


_USER_FIELDS = (("user", "username"), ("uid", "uid"), ("groups", "groups"), ("extra", "extra"))


logger = get_logger("serving")

_FORBIDDEN = web.HTTPForbidden.status_code


async def refusal(
    request: web.Request, reviewer: TokenReviewer, path: str, *, takes_password: bool = False
) -> web.Response | None:
    """Return the answer to a request that is not authorized to read ``path``, None if it is.

    With ``takes_password`` a browser asks its user for the token.
    """
    token = _token(request.headers.get("Authorization", ""), takes_password=takes_password)
    if not token:
        return _unauthorized(takes_password=takes_password)
    try:
        verdict = await reviewer.authorize(token, request.method.lower(), path)
    except KubeError as error:
        logger.error("Cannot authenticate a client", path=path, error=str(error))  # noqa: TRY400
        return web.Response(status=500, text="Authentication failed\n")
    if verdict is Verdict.UNAUTHENTICATED:
        return _unauthorized(takes_password=takes_password)
    return web.Response(status=_FORBIDDEN, text="Forbidden\n") if verdict is Verdict.FORBIDDEN else None


def _unauthorized(*, takes_password: bool) -> web.Response:
    challenge = 'Basic realm="rolecall: any name, and a token as the password"' if takes_password else "Bearer"
    return web.Response(status=401, text="Unauthorized\n", headers={"WWW-Authenticate": challenge})


def _token(header: str, *, takes_password: bool) -> str:
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic" and takes_password:
        try:
            return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2].strip()
        except (binascii.Error, ValueError):
            return ""
    return ""
