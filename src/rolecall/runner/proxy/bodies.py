"""The bodies of runs' requests: how they are read, and where they are decoded.

Large bodies are decoded outside the event loop, because that takes longer than other runs, and the renewal of the
leader's Lease, should wait. The proxy has two threads for it, so that it doesn't delay other parts of the operator, and
one slow body leaves a thread for the others. Bodies have a limit: a run can't fill the operator's memory.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, TypeVar

from aiohttp import web

from rolecall.kube.bodies import GZIP_MAGIC
from rolecall.kube.errors import TooLargeError

MAX_REQUEST_BYTES: Final = 3 << 20
"""The limit of a write's body; the API server has the same."""

INLINE_BYTES: Final = 16 << 10
"""Bodies up to this length are decoded in the event loop; that takes less than a millisecond as JSON."""

Result = TypeVar("Result")


class BodyWorker:
    """Runs functions on bodies, in a thread if the body is large or compressed."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="proxy-bodies")

    async def run(self, body: bytes, work: Callable[[], Result]) -> Result:
        """Return the result of ``work``, which only reads ``body``."""
        if len(body) <= INLINE_BYTES and not body.startswith(GZIP_MAGIC):
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def stop(self) -> None:
        """Drop work that has not started."""
        self._executor.shutdown(wait=False, cancel_futures=True)


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the body of a write. Raise TooLargeError beyond the limit; no more is ever in memory."""
    body = bytearray()
    if (request.content_length or 0) <= MAX_REQUEST_BYTES:
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > MAX_REQUEST_BYTES:
                break
        else:
            return bytes(body)
    message = f"Request entity too large: limit is {MAX_REQUEST_BYTES}"
    raise TooLargeError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)
