import asyncio
import threading
from contextvars import ContextVar

import pytest

from rolecall.threads import in_own_thread

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


@pytest.mark.usefixtures("full_default_executor")
async def test_blocking_work_waits_for_no_other() -> None:
    ended = threading.Event()
    others = [asyncio.create_task(in_own_thread(ended.wait)) for _ in range(50)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await in_own_thread(threading.get_ident) != threading.get_ident()
    ended.set()
    assert await asyncio.gather(*others) == [True] * 50


async def test_a_thread_has_the_context_of_its_caller() -> None:
    WHO.set("me")
    assert await in_own_thread(WHO.get) == "me"


async def test_an_error_is_that_of_the_function() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await in_own_thread(int, "x")
