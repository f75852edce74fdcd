"""Work next to the requests of an event loop: blocking work in threads, and background tasks.

Each piece of work gets its own thread. asyncio's default executor has few threads, and name lookups of the API server
need them: a slow disk must block neither them nor the Lease.
"""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Never, TypeVar

from rolecall.system.logs import get_logger

logger = get_logger("background")

ResultT = TypeVar("ResultT")
_FIRST_RESTART_SECONDS, _MAX_RESTART_SECONDS = 1.0, 300.0


async def run_in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Do blocking work in a thread and return its result, or raise its exception.

    A cancellation is raised when the work has ended, so that nothing continues in the background. If no thread can be
    started, the work is done on the loop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    outcome: Future[ResultT] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            outcome.set_exception(error)
        loop.call_soon_threadsafe(ended.set_result, None)

    try:
        threading.Thread(target=contextvars.copy_context().run, args=(run,), name="blocking-work").start()
    except RuntimeError:
        return work()
    await uninterrupted(ended)
    return outcome.result()


async def kept_running(name: str, work: Callable[[], Awaitable[Never]]) -> Never:
    """Do work that never ends, until cancelled; if it fails, log this and start it again.

    The type of ``work`` is a rule: mypy rejects a function that can return. Don't start work without anything to do,
    and raise if its source ends: otherwise it would be started again indefinitely. The delay doubles from a second up
    to five minutes. Nothing dies silently: without this work, the operator would continue and look healthy.
    """
    loop = asyncio.get_running_loop()
    delay = _FIRST_RESTART_SECONDS
    while True:
        started = loop.time()
        try:
            await work()
            reason = "it ended, despite its type"  # mypy doesn't check every caller, for example a mock
        except Exception as error:  # noqa: BLE001 - logged
            reason = repr(error)
        if loop.time() - started > _MAX_RESTART_SECONDS:
            delay = _FIRST_RESTART_SECONDS
        logger.error("Background task failed; starting it again", task=name, reason=reason, delay_seconds=delay)
        await asyncio.sleep(delay)
        delay = min(2 * delay, _MAX_RESTART_SECONDS)


@asynccontextmanager
async def running_in_background(name: str, work: Callable[[], Awaitable[Never]]) -> AsyncIterator[None]:
    """Do work as ``kept_running`` does until the block ends; then cancel it and wait for its end."""
    task = asyncio.create_task(kept_running(name, work))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


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
