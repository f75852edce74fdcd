"""How long a run may take, whatever its process does."""

import asyncio
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.runs import process as process_runner
from rolecall.runner.runs import process as termination
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.process import ProcessRunner, RunProcess, RunSpec, grace_seconds, new_ident
from rolecall.runner.runs.workspace import Workspace


def spec(root: Path, timeout_seconds: float | None) -> RunSpec:
    """Return a run of a role that is never read."""
    workspace = Workspace(root, GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample"))
    return RunSpec("77", workspace, RoleContent(root), timeout_seconds=timeout_seconds, grace_seconds=0.05)


class Unkillable:
    """A process that hangs in the kernel and keeps its pipes open."""

    returncode = None

    def __init__(self) -> None:
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()

    async def wait(self) -> int:
        """Wait for ever."""
        await asyncio.Event().wait()
        return 0

    def terminate(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing either."""


class Starter:
    """Starts nothing, or a process that does not end."""

    def __init__(self, process: RunProcess | None = None) -> None:
        self.process = process

    async def start(self, _spec: RunSpec) -> RunProcess:
        """Return the process, or wait for ever."""
        if not self.process:
            await asyncio.Event().wait()
        assert self.process
        return self.process


async def test_the_timeout_of_a_run_includes_its_start(tmp_path: Path) -> None:
    running = ProcessRunner(Starter()).run(spec(tmp_path, 0.05), lambda _: None)
    assert (await asyncio.wait_for(running, 20)).status == "timeout"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten every limit."""
    monkeypatch.setattr(process_runner, "_LAST_OUTPUT_SECONDS", 0.05)
    monkeypatch.setattr(termination, "_KILL_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(termination, "KILL_LIMIT_SECONDS", 0.05)


@pytest.mark.usefixtures("hasty")
async def test_a_process_that_cannot_be_killed_does_not_hold_its_run(tmp_path: Path) -> None:
    running = ProcessRunner(Starter(Unkillable())).run(spec(tmp_path, 0.05), lambda _: None)
    assert (await asyncio.wait_for(running, 20)).status == "timeout"


@pytest.mark.usefixtures("hasty")
async def test_a_process_that_cannot_be_killed_does_not_hold_its_cancellation(tmp_path: Path) -> None:
    running = asyncio.create_task(ProcessRunner(Starter(Unkillable())).run(spec(tmp_path, None), lambda _: None))
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait({running})
    assert running.cancelled()


class Ended:
    """A process that has ended and has left its output."""

    returncode = 0

    def __init__(self, output: bytes) -> None:
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self.stdout.feed_data(output)
        self.stdout.feed_eof()
        self.stderr.feed_eof()

    async def wait(self) -> int:
        """Return the exit code."""
        return 0

    def terminate(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing either."""


async def test_everything_else_has_its_turn_between_the_events_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_runner, "_READ_SECONDS", 0)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    seen: list[int] = []
    output = (RunEvent("runner_on_ok").to_json() + "\n").encode() * 100
    await ProcessRunner(Starter(Ended(output))).run(spec(tmp_path, None), lambda _: seen.append(turns))
    other.cancel()
    assert len(seen) == 100
    assert len(set(seen)) == 100


WORKSPACE = Workspace(Path("/w"), GVK("a", "v1", "A"), ObjectKey("n", "x"))


def test_idents_are_decimal_numbers_of_63_bits() -> None:
    idents = {new_ident() for _ in range(100)}
    assert len(idents) == 100
    assert all(0 <= int(ident) < 2**63 for ident in idents)


def test_secrets_are_not_in_the_representation_of_a_spec() -> None:
    spec = RunSpec("1", WORKSPACE, RoleContent(Path("/r/a")), secret_environment={"TOKEN": "s3cret"})
    assert "s3cret" not in repr(spec)


ELECTING = Settings(leader_elect=True, leader_election_id="lock", leader_election_namespace="operators")


def test_a_run_has_less_time_to_end_than_the_lease_has_left() -> None:
    assert grace_seconds(Settings()) == 5
    assert grace_seconds(ELECTING) == pytest.approx(1)
