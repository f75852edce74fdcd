"""Requests of the harness itself, which is as patient as a person: it asks again while the API server cannot answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rolecall.kube.errors import ApiError, UnknownKindError, UnreachableError

PATIENCE_SECONDS = 120.0
AGAIN_SECONDS, LOOK_SECONDS = 0.2, 0.1
_TOO_MANY, _SERVER_ERROR = 429, 500
Answer = TypeVar("Answer")


async def accepted(request: Callable[[], Awaitable[Answer]]) -> Answer:
    """Send a request until it is answered. Raises what the last answer was, at the latest after two minutes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await request()
        except (UnreachableError, UnknownKindError, ApiError) as error:
            if not is_passing(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(AGAIN_SECONDS)


async def until(
    holds: Callable[[], Awaitable[object]], within_seconds: float, what: str, look_seconds: float = LOOK_SECONDS
) -> None:
    """Look until something holds, also while the API server cannot answer. Raises TimeoutError that names it."""
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            if await holds():
                return
        except (UnreachableError, UnknownKindError, ApiError) as error:
            if not is_passing(error):
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_seconds:g} s: {what}")
        await asyncio.sleep(look_seconds)


def is_passing(error: Exception) -> bool:
    """Tell whether an error says nothing about the object that was asked for."""
    if isinstance(error, ApiError):
        return error.status == _TOO_MANY or error.status >= _SERVER_ERROR
    return isinstance(error, UnreachableError | UnknownKindError)
