import asyncio
from collections.abc import Callable

import pytest
from bench.stage import side_by_side, until


@pytest.mark.parametrize("is_awaitable", [True, False])
async def test_waiting_ends_when_the_condition_holds(*, is_awaitable: bool) -> None:
    found: list[int] = []

    async def later() -> bool:
        return len(found) > 1

    holds: Callable[[], object] = later if is_awaitable else lambda: len(found) > 1
    waiting = asyncio.create_task(until(holds, 10, "two numbers"))
    found.append(1)
    await asyncio.sleep(0)
    assert not waiting.done()
    found.append(2)
    await waiting


async def test_condition_that_never_holds_is_named_at_the_deadline() -> None:
    with pytest.raises(TimeoutError, match="not within 0 s: two numbers"):
        await until(lambda: False, 0, "two numbers")


async def test_responses_have_the_order_of_the_requests() -> None:
    async def ask(number: int) -> int:
        await asyncio.sleep(0.01 if number % 2 else 0)
        return number

    assert await side_by_side(map(ask, range(40))) == list(range(40))
