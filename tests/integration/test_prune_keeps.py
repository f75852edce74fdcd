"""Pruning deletes nothing that a role names only sometimes, according to the audit log.

``python -m tests.chaos.prune_keeps`` tells stories of all classes until a thousand runs have started, and also stops
the operator. Such a story has found that what a role makes because something changed was deleted.
"""

from pathlib import Path

from tests.chaos.keeping_stage import stage_of
from tests.chaos.prune_keeps import Stories
from tests.support.world import TIMEOUT_SECONDS

KINDS = (
    "adopted",
    "changed",
    "confirmed",
    "copies",
    "ends",
    "lookup",
    "opted",
    "phase",
    "ready",
    "released",
    "restored",
    "shared",
    "switched",
)
FEWEST_RUNS = 30
"""A slow machine does several requests in one run, and deletes objects before their last runs start."""


async def test_runs_delete_only_what_is_switched_off(tmp_path: Path) -> None:
    async with stage_of(tmp_path, TIMEOUT_SECONDS) as stage:
        stage.may_stop = False
        stories = Stories(stage)
        assert await stories.tell(KINDS, number=1, moves=2, at_once=len(KINDS)) == []
        assert stories.findings() == []
        assert stories.deleted("switched") > 0
        stage.runs.read()
        assert stage.runs.started.total() >= FEWEST_RUNS
