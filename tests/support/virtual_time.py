"""An event loop without waiting: when nothing is ready, its time jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any


class _JumpingSelector(selectors.BaseSelector):
    """Moves the time instead of waiting."""

    def __init__(self) -> None:
        self.time = 0.0
        self._real = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is scheduled: the simulation would wait indefinitely")
        self.time += timeout
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs every callback immediately, in the order of their times; it gets no signals and no calls from threads."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the simulated time."""
        return self._jumping.time


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in virtual time, and end the tasks that it has left running."""

    @wraps(test)
    def run(**arguments: Any) -> None:
        loop = VirtualTimeLoop()
        try:
            loop.run_until_complete(test(**arguments))
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(asyncio.sleep(0.1))
            loop.close()

    return run
