from collections.abc import AsyncIterator

import pytest

from tests.unit.runner.reads.rig import Rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    async with rig.watches.running():
        yield rig
