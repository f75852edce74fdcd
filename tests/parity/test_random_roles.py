"""Roles made by chance run warm as they run cold.

One of them is a small sample: ``ROLECALL_RANDOM_ROLES`` requests more of them, ``ROLECALL_FIRST_SEED`` for others.
"""

import os
from pathlib import Path

import pytest

from tests.parity.cases import Case
from tests.parity.conftest import Pair
from tests.parity.random_roles import TASKS, write_role

pytestmark = pytest.mark.asyncio(loop_scope="session")
FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
ROLES = int(os.environ.get("ROLECALL_RANDOM_ROLES", "1"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROLES))
async def test_random_role_has_equal_warm_and_cold_results(pair: Pair, tmp_path: Path, seed: int) -> None:
    tasks = write_role(seed, tmp_path / "content")
    case = Case(name=str(tmp_path / "content"), rule="whatever a role does, it does it warm as cold")
    cold, warm = await pair.run(case)
    assert pair.differences(cold, warm, case) == [], tasks
    assert len(cold.raw_events) > 4 * TASKS, "it has come to its end"
