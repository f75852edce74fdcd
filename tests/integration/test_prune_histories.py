"""Pruning keeps what a spec has, whatever the API server responds and whenever the operator is killed.

``make histories`` runs 200 of these histories, and kills the operator after each write. Seed 7 found that the first
annotation of the operator counted as an input of the role.
"""

from pathlib import Path

from tests.chaos.prune_histories import prune_histories
from tests.support.world import TIMEOUT_SECONDS

SEEDS = (2, 4, 7)
FEWEST_KILLS = 3
"""The operator and its runs write about twenty times while two parts are switched off."""


async def test_histories_and_kills_after_writes_delete_only_what_was_switched_off(tmp_path: Path) -> None:
    async with prune_histories(tmp_path, TIMEOUT_SECONDS) as each:
        assert {seed: found for seed in SEEDS if (found := await each.findings(seed))} == {}
        kills, found = await each.findings_of_kills(every=5)
        assert (kills >= FEWEST_KILLS, found) == (True, [])
