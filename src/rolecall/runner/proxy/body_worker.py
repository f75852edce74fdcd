"""Work on bodies, outside of the event loop if they are large.

Decoding a large body takes longer than other runs, and the renewal of the leader's Lease, should wait. The proxy has
two threads of its own for it, so that no other part of the operator waits for it, and one slow body leaves a thread to
the others. Bodies have a limit, too: a run cannot fill the operator's memory.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, TypeVar

from aiohttp import web

from rolecall.kube.errors import TooLargeError

MAX_REQUEST_BYTES: Final = 3 << 20
"""The limit of a write's body; the API server has the same."""

MAX_INSPECTED_BYTES: Final = 8 << 20
"""The limit for responses that are inspected; it holds before and after decompression."""

INLINE_BYTES: Final = 16 << 10
"""Bodies up to this length are decoded in the event loop; that takes less than a millisecond as JSON."""

GZIP_MAGIC: Final = b"\x1f\x8b"
Result = TypeVar("Result")


class BodyWorker:
    """Runs functions on bodies, in a thread if the body is large or compressed."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="proxy-bodies")

    async def run(self, body: bytes, work: Callable[[], Result]) -> Result:
        """Return the result of ``work``, which does nothing but to look at ``body``."""
        if len(body) <= INLINE_BYTES and not body.startswith(GZIP_MAGIC):
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def stop(self) -> None:
        """Drop the work that has not begun."""
        self._executor.shutdown(wait=False, cancel_futures=True)


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the body of a write. Raise TooLargeError beyond the limit; no more than that is ever in memory."""
    if (request.content_length or 0) > MAX_REQUEST_BYTES:
        raise _too_large()
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_REQUEST_BYTES:
            raise _too_large()
    return bytes(body)


def _too_large() -> TooLargeError:
    message = f"Request entity too large: limit is {MAX_REQUEST_BYTES}"
    return TooLargeError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)
