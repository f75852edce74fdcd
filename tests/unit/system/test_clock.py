import asyncio
import time

import pytest

from rolecall.system.clock import LoopClock, sleep
from tests.unit.manual_clock import ManualClock, settle


async def test_callback_is_not_called_early() -> None:
    clock = LoopClock()
    called: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    start = clock.monotonic()
    clock.call_at(start + 0.01, lambda: called.set_result(clock.monotonic()))
    assert await asyncio.wait_for(called, 60) - start >= 0.0099


async def test_callback_in_the_past_is_called_immediately() -> None:
    called = asyncio.Event()
    clock = LoopClock()
    clock.call_at(clock.monotonic() - 100, called.set)
    await asyncio.wait_for(called.wait(), 60)


async def test_canceled_callback_is_not_called() -> None:
    clock = LoopClock()
    called, later = asyncio.Event(), asyncio.Event()
    clock.call_at(clock.monotonic() + 0.001, called.set).cancel()
    clock.call_at(clock.monotonic() + 0.005, later.set)
    await asyncio.wait_for(later.wait(), 60)
    assert not called.is_set()


def test_wall_clock_is_that_of_system() -> None:
    assert LoopClock().now() == pytest.approx(time.time(), abs=5)


async def test_sleep_ends_on_time() -> None:
    clock = ManualClock()
    task = asyncio.create_task(sleep(clock, 5))
    await settle()
    await clock.advance_and_settle(4.9)
    assert not task.done()
    await clock.advance_and_settle(0.1)
    assert task.done()


async def test_canceled_sleep_leaves_no_timer() -> None:
    clock = ManualClock()
    task = asyncio.create_task(sleep(clock, 5))
    await settle()
    task.cancel()
    await settle()
    assert task.cancelled()
    assert clock.handles == 0


@pytest.mark.parametrize("seconds", [0, -1])
async def test_sleep_of_zero_needs_no_timer(seconds: float) -> None:
    clock = ManualClock()
    await asyncio.wait_for(sleep(clock, seconds), 60)
    assert clock.handles == 0
