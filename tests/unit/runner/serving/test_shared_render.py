import asyncio
import threading

import pytest

from rolecall.runner.serving.servers import FRESH_SECONDS, SharedRender


class Renders:
    """Counts renders, which last until ``may_end``; the text is the number of the render."""

    def __init__(self) -> None:
        self.count, self.now, self.may_end = 0, 0.0, threading.Event()
        self.fails = False

    def __call__(self) -> bytes:
        """Render."""
        self.count += 1
        self.may_end.wait()
        if self.fails:
            raise ValueError("broken")
        return str(self.count).encode()


@pytest.fixture
def renders() -> Renders:
    return Renders()


async def asked(shared: SharedRender, number: int) -> list[asyncio.Task[bytes]]:
    """Ask so many times at once, and return when everybody waits."""
    tasks = [asyncio.create_task(shared.text()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def test_all_who_ask_meanwhile_share_one_render(renders: Renders) -> None:
    shared = SharedRender(renders, lambda: renders.now)
    tasks = await asked(shared, 400)
    renders.may_end.set()
    assert set(await asyncio.gather(*tasks)) == {b"1"}
    assert renders.count == 1


async def test_a_text_serves_for_a_second(renders: Renders) -> None:
    shared = SharedRender(renders, lambda: renders.now)
    renders.may_end.set()
    assert await shared.text() == b"1"
    renders.now = FRESH_SECONDS - 0.01
    assert await shared.text() == b"1"
    renders.now = FRESH_SECONDS
    assert await shared.text() == b"2"


async def test_a_reader_that_goes_away_takes_the_text_from_nobody(renders: Renders) -> None:
    shared = SharedRender(renders, lambda: renders.now)
    first, second = await asked(shared, 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    renders.may_end.set()
    assert await second == b"1"


async def test_a_failed_render_is_tried_again(renders: Renders) -> None:
    shared = SharedRender(renders, lambda: renders.now)
    renders.may_end.set()
    renders.fails = True
    with pytest.raises(ValueError, match="broken"):
        await shared.text()
    renders.fails = False
    assert await shared.text() == b"2"
