"""Whatever happens, in any order: when it is over, every object is as it should be, and nothing stays behind.

``make chaos`` does the same for longer, with more disturbances, and measures the recovery.
"""

from pathlib import Path

import pytest

from rolecall.workbench.controlplane import ControlPlane
from tests.chaos.campaign import carry_out
from tests.chaos.content_faults import CONTENT
from tests.chaos.disturbance import Disturbance
from tests.chaos.network_faults import cut
from tests.chaos.outcome import Result
from tests.chaos.plan import Plan
from tests.chaos.process_faults import KILLS, TERMS

pytestmark = pytest.mark.alone
SECONDS = 20.0
SEED = 1
DISTURBANCES = [*KILLS, *TERMS, *CONTENT, Disturbance("network: cut for a while", cut)]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a short name: ansible-core 2.21 has a socket below TMPDIR, and its path must be short."""
    return tmp_path_factory.mktemp("c")


async def test_after_any_disorder_every_object_comes_to_its_state(defined: ControlPlane, folder: Path) -> None:
    """Nothing is lost, said twice or left, and no two runs of an object meet; the control plane itself stays alone."""
    result = Result(SEED)
    await carry_out(Plan(SEED, DISTURBANCES, seconds=SECONDS), defined, folder, result)
    assert result.outcomes
    assert result.violations == []
