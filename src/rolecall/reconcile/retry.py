"""Writes that must not get lost: repeated until the API server has taken them.

What came of a run is worth nothing if nobody hears of it, and no run is repeated because a write had to wait. So a
conflict means to read again and write again, and an API server that is away or in trouble is waited for; one that
answers but goes on refusing (a webhook that is broken, say) keeps its worker no longer than a minute.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rolecall.kube.errors import ApiError, ConflictError, KubeError, TooLargeError, UnreachableError
from rolecall.logs import get_logger

logger = get_logger("persistence")
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
REFUSED_SECONDS = 60.0
TOO_MANY_REQUESTS, FIRST_OF_THE_SERVER = 429, 500
Written = TypeVar("Written")


async def write_with_retry(write: Callable[[], Awaitable[Written]]) -> Written:
    """Call ``write``, which reads and then writes, until it succeeds; return what it returns.

    Raises KubeError for an answer that waiting does not change: gone, forbidden, refused, refused for a minute.
    """
    pause = FIRST_PAUSE_SECONDS
    refused_since: float | None = None
    while True:
        try:
            return await write()
        except KubeError as error:
            if not _passes(error):
                raise
            now = time.monotonic()
            refused_since = (refused_since or now) if is_refusal(error) else None
            if refused_since is not None and now - refused_since >= REFUSED_SECONDS:
                raise
            logger.info("A write is tried again", error=str(error), pause_seconds=pause)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def is_refusal(error: KubeError) -> bool:
    """Tell whether the server answered that it cannot for now, which may pass and may not."""
    if isinstance(error, TooLargeError) or not isinstance(error, ApiError):
        return False
    return error.status == TOO_MANY_REQUESTS or error.status >= FIRST_OF_THE_SERVER


def _passes(error: KubeError) -> bool:
    """Tell whether what stands in the way passes by itself."""
    return is_refusal(error) or isinstance(error, ConflictError | UnreachableError)
