"""Asking the API server who a token belongs to, and whether its owner may read a path.

A TokenReview says who, a SubjectAccessReview whether. Answers are kept for a short time, refusals for a shorter one, so
that a scraper does not cost two requests each time and a new permission is soon felt. Tokens are kept as digests only.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from rolecall.kube.references import RawObject

ALLOWED_SECONDS = 60.0
REFUSED_SECONDS = 10.0
CACHE_SIZE = 256


class Verdict(Enum):
    """What the API server says about a request."""

    ALLOWED = "allowed"
    UNAUTHENTICATED = "nobody knows the token"
    FORBIDDEN = "its owner may not"


class ReviewClient(Protocol):
    """What is needed of the API server; ``rolecall.kube.client.Client`` is one."""

    async def create(self, obj: RawObject) -> RawObject:
        """Create an object and return what the API server made of it."""
        ...


@dataclass(slots=True)
class TokenReviewer:
    """Judges requests by the API server's own rules; ``now`` is a monotonic clock in seconds."""

    client: ReviewClient
    now: Callable[[], float] = time.monotonic
    _cache: OrderedDict[tuple[bytes, str, str], tuple[Verdict, float]] = field(default_factory=OrderedDict, init=False)

    async def authorize(self, token: str, verb: str, path: str) -> Verdict:
        """Say whether the owner of a token may do something with a path. Raises KubeError."""
        key = (hashlib.sha256(token.encode(errors="surrogateescape")).digest(), verb, path)
        verdict, until = self._cache.get(key, (Verdict.UNAUTHENTICATED, 0.0))
        if self.now() < until:
            return verdict
        verdict = await self._ask(token, verb, path)
        kept_seconds = ALLOWED_SECONDS if verdict is Verdict.ALLOWED else REFUSED_SECONDS
        self._cache[key] = (verdict, self.now() + kept_seconds)
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return verdict

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
