"""Blocking work in a thread of its own.

asyncio's default executor has few threads, and looking up the API server's host name needs one of them. So nothing else
runs there: work that blocks gets a thread for itself, and cannot hold back a request, such as a renewal of the Lease.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


async def in_own_thread(
    function: Callable[_Parameters, _Result], *args: _Parameters.args, **kwargs: _Parameters.kwargs
) -> _Result:
    """Call a function that blocks, in a new thread with the current context, and return its result.

    The caller limits how many of these calls there are at once.
    """
    context = contextvars.copy_context()
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=getattr(function, "__name__", "blocking"))
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(executor, lambda: context.run(function, *args, **kwargs))
    finally:
        executor.shutdown(wait=False)
