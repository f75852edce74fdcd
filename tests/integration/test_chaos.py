"""After any sequence of faults, every object converges and nothing leaks.

``make chaos`` does the same for longer, with more faults, and measures recovery.
"""

from pathlib import Path

import pytest

from rolecall.workbench.controlplane import ControlPlane
from tests.chaos.api_server_faults import cut
from tests.chaos.campaign import run_campaign
from tests.chaos.content_faults import CONTENT
from tests.chaos.fault import Fault
from tests.chaos.outcome import Result
from tests.chaos.plan import Plan
from tests.chaos.process_faults import KILLS, TERMS

pytestmark = pytest.mark.alone
SECONDS = 20.0
SEED = 1
FAULTS = [*KILLS, *TERMS, *CONTENT, Fault("network: cut for a while", cut)]


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a short path, because ansible-core 2.21 creates a socket below TMPDIR."""
    return tmp_path_factory.mktemp("c")


async def test_objects_converge_after_random_faults(defined: ControlPlane, directory: Path) -> None:
    """There are no violations. Without faults of the control plane, which other tests share."""
    result = Result(SEED)
    await run_campaign(Plan(SEED, FAULTS, seconds=SECONDS), defined, directory, result)
    assert result.outcomes
    assert result.violations == []
