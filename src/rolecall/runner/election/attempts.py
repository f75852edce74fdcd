"""Attempts at something that may fail or hang, each limited in time; a failure is logged once, not at every attempt."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from rolecall.kube.errors import KubeError
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("leader")


@dataclass(slots=True)
class Attempts:
    """Attempts to read or write a Lease; ``trouble`` says why the last one failed, empty if it did not."""

    clock: Clock
    lease: str
    trouble: str = field(default="", init=False)

    async def within(self, seconds: float, work: Coroutine[Any, Any, bool]) -> bool:
        """Return what the work returns; False if it raises a KubeError or has not ended after so many seconds."""
        task = asyncio.create_task(work)
        timer = asyncio.create_task(sleep(self.clock, seconds))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._note(f"no answer within {seconds:g} s")
                return False
            succeeded = task.result()
        except KubeError as error:
            self._note(str(error))
            return False
        finally:
            for each in (task, timer):
                each.cancel()
        self.trouble = ""
        return succeeded

    def _note(self, text: str) -> None:
        if text != self.trouble:
            logger.warning("Could not read or write the Lease", lease=self.lease, error=text)
        self.trouble = text
