"""Blocking work outside the event loop, such as reading files and /proc.

Each piece of work gets its own thread. asyncio's default executor has few threads, and name lookups of the API server
need them: a slow disk must block neither them nor the Lease.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def run_in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Do blocking work in a thread and return its result, or raise its exception.

    A cancellation is raised when the work has ended, so that nothing continues in the background. If no thread can be
    started, the work is done on the loop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    results: list[ResultT] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            errors.append(error)
        loop.call_soon_threadsafe(ended.set_result, None)

    try:
        threading.Thread(target=contextvars.copy_context().run, args=(run,), name="blocking-work").start()
    except RuntimeError:
        return work()
    await uninterrupted(ended)
    if errors:
        raise errors[0]
    return results[0]


async def uninterrupted(work: Awaitable[ResultT]) -> ResultT:
    """Return the result of the work, which ends even if this task is cancelled; raise the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interruption = error
    result = task.result()
    if interruption:
        raise interruption
    return result
