"""The text of all metrics, rendered once for everybody who asks at the same time.

With thousands of objects rendering takes long, and any pod may ask as often as it likes. So there is one render at a
time, in a thread of its own, and its text answers everybody for a second.
"""

import asyncio
import time
from collections.abc import Callable

from rolecall.system.blocking_work import in_thread

FRESH_SECONDS = 1.0


class SharedRender:
    """Call ``render`` at most once at a time; ``now`` is a monotonic clock in seconds."""

    def __init__(self, render: Callable[[], bytes], now: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._now = now
        self._current: asyncio.Task[tuple[bytes, float]] | None = None

    async def text(self) -> bytes:
        """Return a text that is at most a second old. Raise what ``render`` raises."""
        if self._current is None or self._is_over(self._current):
            self._current = asyncio.create_task(self._render_once())
        # A reader that goes away must not end what others wait for.
        text, _ = await asyncio.shield(self._current)
        return text

    def _is_over(self, rendering: asyncio.Task[tuple[bytes, float]]) -> bool:
        if not rendering.done():
            return False
        return rendering.cancelled() or rendering.exception() is not None or self._now() >= rendering.result()[1]

    async def _render_once(self) -> tuple[bytes, float]:
        text = await in_thread(self._render)
        return text, self._now() + FRESH_SECONDS
