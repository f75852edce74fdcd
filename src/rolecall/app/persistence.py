"""Writes that must not get lost: repeated until the API server has taken them.

What came of a run is worth nothing if nobody hears of it, and no run is repeated because a write had to wait. So a
conflict means to read again and write again, and an API server that is away or in trouble is waited for. Neighbours:
``status_writer`` writes conditions this way, ``reconciler`` finalizers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rolecall.kube.errors import ApiError, ConflictError, KubeError, UnreachableError
from rolecall.logs import get_logger

logger = get_logger("persistence")
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
TOO_MANY_REQUESTS, FIRST_OF_THE_SERVER = 429, 500
Written = TypeVar("Written")


async def until_written(write: Callable[[], Awaitable[Written]]) -> Written:
    """Call ``write``, which reads and then writes, until it succeeds; return what it returns.

    Raises KubeError for an answer that waiting does not change: gone, forbidden, refused.
    """
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await write()
        except KubeError as error:
            if not _passes(error):
                raise
            logger.info("A write is tried again", error=str(error), pause_seconds=pause)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _passes(error: KubeError) -> bool:
    """Tell whether what stands in the way passes by itself."""
    if isinstance(error, ApiError) and not isinstance(error, ConflictError):
        return error.status == TOO_MANY_REQUESTS or error.status >= FIRST_OF_THE_SERVER
    return isinstance(error, ConflictError | UnreachableError)
