"""Changes of objects by the harness, and requests that it retries while the API server is unavailable."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from rolecall.kube.errors import ApiError, UnknownKindError, UnreachableError

TIMEOUT_SECONDS = 120.0
RETRY_SECONDS, POLL_SECONDS = 0.2, 0.1
_TOO_MANY, _SERVER_ERROR = 429, 500
Answer = TypeVar("Answer")


async def accepted(request: Callable[[], Awaitable[Answer]]) -> Answer:
    """Send a request until it succeeds. Raises the last error, at the latest after two minutes."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return await request()
        except (UnreachableError, UnknownKindError, ApiError) as error:
            if not is_temporary(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def until(
    holds: Callable[[], Awaitable[object]], within_seconds: float, what: str, poll_seconds: float = POLL_SECONDS
) -> None:
    """Poll until a condition holds, also while the API server is unavailable. Raises TimeoutError that names it."""
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            if await holds():
                return
        except (UnreachableError, UnknownKindError, ApiError) as error:
            if not is_temporary(error):
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_seconds:g} s: {what}")
        await asyncio.sleep(poll_seconds)


def is_temporary(error: Exception) -> bool:
    """Return whether an error is temporary and unrelated to the requested object."""
    if isinstance(error, ApiError):
        return error.status == _TOO_MANY or error.status >= _SERVER_ERROR
    return isinstance(error, UnreachableError | UnknownKindError)


@dataclass(frozen=True, slots=True)
class Change:
    """A change by a user; ``make`` returns when the API server has accepted it."""

    name: str
    make: Callable[[], Coroutine[Any, Any, None]]
