"""Retries of writes that must not get lost: the status and the finalizers of a primary.

The result of a run is worth nothing if nobody sees it, and no run should be repeated because a write failed. So after
a conflict the object is read and written again, and an API server that is down is waited for. A server that answers
but keeps refusing, for example because a webhook is broken or because of one conflict after the other, blocks a worker
for a minute at most.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rolecall.kube.errors import ApiError, ConflictError, KubeError, TooLargeError, UnreachableError
from rolecall.system.logs import get_logger

logger = get_logger("persistence")
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.1, 2.0
REFUSED_SECONDS = 60.0
TOO_MANY_REQUESTS, FIRST_SERVER_ERROR = 429, 500
Written = TypeVar("Written")


async def write_with_retry(write: Callable[[], Awaitable[Written]]) -> Written:
    """Call ``write``, which reads and then writes, until it succeeds; return what it returns.

    Raises KubeError for an answer that waiting does not change: gone, forbidden, invalid, or refused for a minute. If
    ``may_pass`` is true for the error, a later attempt may succeed.
    """
    delay = FIRST_DELAY_SECONDS
    refused_since: float | None = None
    while True:
        try:
            return await write()
        except KubeError as error:
            if not may_pass(error):
                raise
            now = time.monotonic()
            if isinstance(error, UnreachableError):
                refused_since = None
            else:
                refused_since = now if refused_since is None else refused_since
                if now - refused_since >= REFUSED_SECONDS:
                    raise
            logger.info("Write failed, retrying", error=str(error), delay_seconds=delay)
        await asyncio.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY_SECONDS)


def may_pass(error: KubeError) -> bool:
    """Return whether the cause of an error may pass by itself."""
    if isinstance(error, ConflictError | UnreachableError):
        return True
    if isinstance(error, TooLargeError) or not isinstance(error, ApiError):
        return False
    return error.status == TOO_MANY_REQUESTS or error.status >= FIRST_SERVER_ERROR
