"""Blocking work beside the event loop: files, and looking through /proc.

Each piece of work gets a thread of its own. asyncio's default executor has few threads, and name look-ups of the API
server need them: a slow disk must not hold them back, nor the Lease.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def run_in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Do blocking work in a thread and return its result, or raise what it raises.

    A cancellation is raised when the work has ended: nothing goes on behind the caller's back. If no thread can be
    started, the work is done on the loop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    results: list[ResultT] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
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
