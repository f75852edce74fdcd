"""Waiting for the results of tasks instead of looking for them a thousand times a second.

While a worker is busy, ansible-core's strategies sleep for a millisecond, look for a result and sleep again. Here that
sleep ends when a result has come, and else after `LOOK_AGAIN_SECONDS`, so that a worker that has died is noticed too.
Every other sleep is left alone.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ansible import constants
from ansible.plugins import strategy as strategy_plugins

LOOK_AGAIN_SECONDS = 0.02


class _Results(deque[Any]):
    """The results that have come; tells when there is a new one."""

    def __init__(self, has_come: threading.Event) -> None:
        super().__init__()
        self._has_come = has_come

    def append(self, result: Any) -> None:
        """Take a result."""
        super().append(result)
        self._has_come.set()


def install() -> None:
    """Let strategies wait from now on in this process."""
    has_come = threading.Event()
    base = strategy_plugins.StrategyBase
    base.__init__ = _around_init(base.__init__, has_come)
    strategy_plugins.time = SimpleNamespace(**{**vars(time), "sleep": _sleep(has_come)})


def _around_init(original: Callable[..., None], has_come: threading.Event) -> Callable[..., None]:
    def init(strategy: Any, *args: Any, **options: Any) -> None:
        original(strategy, *args, **options)
        strategy._results = _Results(has_come)  # noqa: SLF001 - the seam

    return init


def _sleep(has_come: threading.Event) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        if seconds != constants.DEFAULT_INTERNAL_POLL_INTERVAL:
            time.sleep(seconds)
        elif has_come.wait(LOOK_AGAIN_SECONDS):
            has_come.clear()

    return sleep
