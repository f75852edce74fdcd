"""Fixtures of the parity suite: a runner of each kind for the whole session, and a stage for each."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from rolecall.runner.runs.process import ColdStarter, ProcessRunner, Runner
from rolecall.runner.warm.ansible_patches.patches import PatchStatus
from rolecall.runner.warm.starter import ForkserverStarter, StartLimits
from tests.parity.cases import Case
from tests.parity.normalization import differences
from tests.parity.observation import Observation
from tests.parity.stage import COLLECTIONS, CONTENT, Stage

NOTE = "Process not forked"
NAMES = ("run-c", "run-w")
"""Directories of the stages; of one length, because Ansible wraps lines."""

LIMITS = StartLimits(cpu_seconds=120.0)
"""A server prepares for all contents of the suite, which may need more CPU time than an operator's server."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same stage twice: with cold plays and with warm ones."""

    cold: Stage
    warm: Stage

    async def run(self, case: Case) -> tuple[Observation, Observation]:
        """Run a case on both; return the observations of the cold and of the warm one.

        Both run at the same time, unless the case changes the environment of this process.
        """
        with capture_logs() as lines:
            if case.environment:
                cold, warm = await self.cold.run(case), await self.warm.run(case)
            else:
                cold, warm = await asyncio.gather(self.cold.run(case), self.warm.run(case))
        notes = [str(line["reason"]) for line in lines if line["event"] == NOTE]
        return cold, replace(warm, notes=notes)

    def differences(self, cold: Observation, warm: Observation, case: Case) -> list[str]:
        """Return a line for each difference between an observation of the cold stage and one of the warm stage."""
        expected = cold.comparable(self.cold.normalizer, ordered=case.ordered)
        found = warm.comparable(self.warm.normalizer, ordered=case.ordered)
        return differences(expected, found)


@pytest.fixture(scope="session")
def other_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return another virtual environment of this Python, with a package that is only there."""
    path = tmp_path_factory.mktemp("environment") / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    packages = next(path.glob("lib/python*/site-packages"))
    (packages / "only_there.py").write_text('"""Only there."""\n')
    return path


@pytest.fixture(scope="session", autouse=True)
def operator_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Yield this process, which stands for the operator, the same environment for all runs."""
    collections = tmp_path_factory.mktemp("collections")
    shutil.copytree(COLLECTIONS, collections, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("ANSIBLE_", "PYTHON"))]:
            patch.delenv(name)
        patch.setenv("ANSIBLE_GATHERING", "explicit")
        patch.setenv("ANSIBLE_COLLECTIONS_PATH", str(collections))
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def runners(operator_environment: None) -> AsyncIterator[tuple[Runner, Runner]]:  # noqa: ARG001 - the order
    """Yield a cold runner and a warm one."""
    async with start_warm(CONTENT) as warm:
        yield ProcessRunner(ColdStarter()), warm


@pytest.fixture
def pair(runners: tuple[Runner, Runner], other_environment: Path, tmp_path: Path) -> Pair:
    """Return two stages that differ in their runner and in nothing else."""
    places = {"other_environment": str(other_environment)}
    cold, warm = runners
    return Pair(
        Stage(cold, start_cold, tmp_path / NAMES[0], places), Stage(warm, start_warm, tmp_path / NAMES[1], places)
    )


@asynccontextmanager
async def start_cold(_content: Path) -> AsyncIterator[Runner]:
    """Yield a runner that starts plays cold."""
    yield ProcessRunner(ColdStarter())


@asynccontextmanager
async def start_warm(content: Path) -> AsyncIterator[Runner]:
    """Yield a runner whose server starts now, in this process's environment, and prepares itself for this content.

    The server must last until the end and use every patch: runs that are cold or not patched compare nothing.
    """
    replaced, patches = list[str](), list[PatchStatus]()
    async with ForkserverStarter(
        [content], on_replaced=replaced.append, on_patches=patches.extend, limits=LIMITS
    ) as starter:
        assert starter.server
        await starter.server.ready  # without a limit: other work on the machine may delay it
        yield ProcessRunner(starter)
        assert starter.server, "there is no fork server"
        assert not replaced
        assert patches
        assert [each for each in patches if each.state == "disabled"] == []
