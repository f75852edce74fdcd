import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.world import World
from tests.unit.fake_cluster import FakeCluster

pytest.register_assert_rewrite("tests.support.reconciler_contract")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def world(cluster: FakeCluster) -> World:
    return World(cluster, "default")


@pytest.fixture
async def full_default_executor() -> AsyncIterator[None]:
    """Fill every thread of the loop's default executor, and some places in its queue, until the end of the test."""
    ended = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(max_workers=2))
    waiting = [loop.run_in_executor(None, ended.wait) for _ in range(4)]
    yield
    ended.set()
    await asyncio.gather(*waiting)
