"""What the parity suite shares: a runner of each kind for the whole session, and a stage for each."""

import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from rolecall.jobs.cold import ColdRunner
from rolecall.jobs.runner import Runner
from tests.parity.cases import Case
from tests.parity.normalization import differences
from tests.parity.observation import Observation
from tests.parity.runners import warm_runner
from tests.parity.stage import Stage

NAMES = ("run-c", "run-w")
"""Folders of the stages; of one length, because Ansible wraps lines."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same stage twice: with cold plays and with warm ones."""

    cold: Stage
    warm: Stage

    async def run(self, case: Case) -> tuple[Observation, list[str]]:
        """Run a case on both; return what was seen cold, and every difference of the warm run."""
        cold = await self.cold.run(case)
        warm = await self.warm.run(case)
        return cold, self.differences(cold, warm, case)

    def differences(self, cold: Observation, warm: Observation, case: Case) -> list[str]:
        """Return a line for each difference between an observation of the cold stage and one of the warm stage."""
        expected = cold.comparable(self.cold.normalizer, ordered=case.ordered)
        found = warm.comparable(self.warm.normalizer, ordered=case.ordered)
        return differences(expected, found)


@pytest.fixture(scope="session")
def other_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give another virtual environment of this Python, with a package that is only there."""
    path = tmp_path_factory.mktemp("environment") / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    packages = next(path.glob("lib/python*/site-packages"))
    (packages / "only_there.py").write_text('"""Only there."""\n')
    return path


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def runners() -> AsyncIterator[tuple[Runner, Runner]]:
    """Give a cold runner and a warm one that is ready."""
    async with warm_runner() as warm:
        yield ColdRunner(), warm


@pytest.fixture
def pair(
    runners: tuple[Runner, Runner], other_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Pair:
    """Give two stages that differ in their runner and in nothing else."""
    monkeypatch.setenv("ANSIBLE_GATHERING", "explicit")
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    places = {"other_environment": str(other_environment)}
    cold, warm = (Stage(runner, tmp_path / name, places) for runner, name in zip(runners, NAMES, strict=True))
    return Pair(cold, warm)
