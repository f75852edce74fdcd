"""Warm plays and cold plays do the same: each case runs both ways and everything that can be seen is compared."""

import pytest

from rolecall.runner.runs.events import strip_colors
from tests.parity.cases import CASES, Case
from tests.parity.conftest import Pair
from tests.parity.observation import Observation

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
async def test_warm_is_like_cold(pair: Pair, case: Case) -> None:
    cold, warm = await pair.run(case)
    assert_has_worked(cold, case)
    assert_was_warm(warm, case)
    assert_equal(pair, cold, warm, case)


def assert_has_worked(cold: Observation, case: Case) -> None:
    """Check that the case has done what it is for, so that the comparison means something."""
    said = strip_colors("\n".join(str(event.get("stdout")) for event in cold.raw_events))
    assert cold.summary.status == case.status, cold.summary.message
    missing = [text for text in case.says if text not in said]
    assert not missing, f"{missing} not in:\n{said[-6000:]}"
    assert not cold.processes


def assert_was_warm(warm: Observation, case: Case) -> None:
    """Check that nothing took the ordinary path but for the reasons that the case expects, and that those were met."""
    unexpected = [note for note in warm.notes if not any(reason in note for reason in case.ordinary)]
    assert not unexpected, "\n".join(unexpected)
    missing = [reason for reason in case.ordinary if not any(reason in note for note in warm.notes)]
    assert not missing, f"{missing} not in {warm.notes}"


def assert_equal(pair: Pair, cold: Observation, warm: Observation, case: Case) -> None:
    """Check that nothing differs that anybody could see."""
    found = pair.differences(cold, warm, case)
    assert not found, "\n".join(found)
