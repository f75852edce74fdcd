"""Warm plays and cold plays do the same: each case runs both ways and everything that can be seen is compared.

Runs that contradict each other do not meet, in turn and side by side, and chance stays chance.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rolecall.runner.runs.events import strip_colors
from rolecall.runner.runs.process import Runner
from tests.parity.cases import CASES, FIRST, SECOND, Case
from tests.parity.conftest import NAMES, Pair, start_warm
from tests.parity.observation import Observation
from tests.parity.stage import Stage

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


DRAWING = Case(name="randomness", rule="what is drawn by chance differs from run to run and from module to module")


def by_job(case: Case) -> Case:
    """Return the case with all its settings given to the run alone, so that its server forks others too."""
    return replace(case, environment={}, job_environment={**case.environment, **case.job_environment})


async def test_contradicting_settings_in_turn_and_side_by_side(pair: Pair, tmp_path: Path) -> None:
    cases = [by_job(FIRST), by_job(SECOND)]
    cold = [await pair.cold.run(case) for case in cases]
    stages = [
        Stage(pair.warm.runner, start_warm, tmp_path / str(number) / NAMES[1], pair.warm.places) for number in range(4)
    ]
    in_turn = [await stage.run(case) for stage, case in zip(stages[:3], cases * 2, strict=False)]
    side_by_side = await asyncio.gather(*(stage.run(case) for stage, case in zip(stages, cases * 2, strict=True)))
    for warm in (in_turn, side_by_side):
        for number, (stage, seen) in enumerate(zip(stages, warm, strict=False)):
            case, expected = cases[number % 2], cold[number % 2]
            assert_has_worked(expected, case)
            assert_equal(Pair(pair.cold, stage), expected, seen, case)


async def test_random_values_never_repeat(runners: tuple[Runner, Runner], tmp_path: Path) -> None:
    stages = [Stage(runners[1], start_warm, tmp_path / str(number)) for number in range(2)]
    runs = await asyncio.gather(*(stage.run(DRAWING) for stage in stages))
    drawn = [run.summary.stats for run in runs]
    numbers = [number for stats in drawn for number in (*stats["modules"], *stats["filters"], stats["password"])]
    assert len(numbers) == 10
    assert len({str(number) for number in numbers}) == len(numbers)
