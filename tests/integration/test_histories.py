"""Random histories of changes and wrong responses of the API server end as if every response had been right.

``make histories`` runs 200 of them. These found a fault of an earlier version: objects that were forgotten after one
response with 404, changes that were missed, finalizers that did not run, and a status that stayed old.
"""

from pathlib import Path

from rolecall.workbench.controlplane import ControlPlane
from tests.chaos.histories import histories
from tests.support.world import TIMEOUT_SECONDS

SEEDS = (5, 28, 29, 45, 54, 59, 62, 72, 77, 80, 85, 119, 151, 164, 209, 269, 279, 281, 301, 368)


async def test_histories_end_as_without_faults(defined: ControlPlane, tmp_path: Path) -> None:
    """They share an operator, one after the other."""
    async with histories(defined, tmp_path, TIMEOUT_SECONDS) as each:
        assert {seed: found for seed in SEEDS if (found := await each.findings(seed))} == {}
