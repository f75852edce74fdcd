"""Reconciles of a dispatcher that a test starts and ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rolecall.runner.controller.controller import Dispatcher
from tests.unit.manual_clock import settle


@contextlib.asynccontextmanager
async def dispatching(dispatcher: Dispatcher) -> AsyncIterator[asyncio.Task[None]]:
    """Run a dispatcher, and cancel it at the end."""
    task = asyncio.create_task(dispatcher.run())
    await settle()
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
