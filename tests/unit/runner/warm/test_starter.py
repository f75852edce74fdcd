"""Servers that end without runs, in virtual time. A test decides when a server is ready, and when its runs end."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.process import RunSpec
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm import starter
from rolecall.runner.warm.ansible_patches.patches import PatchStatus
from rolecall.runner.warm.client import ForkServer, ServerGoneError
from rolecall.runner.warm.starter import ForkserverStarter
from tests.support.virtual_time import in_virtual_time

IDLE, READY, FORK = 600.0, 2.0, 0.125
"""The seconds without a run, until a server is ready, and until it has forked. Sums of them are exact."""


class Server(ForkServer):
    """A server without processes. As of a real one, its run only counts after the request, and may find it stopped."""

    def __init__(self, ready_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.process: Any = SimpleNamespace(pid=1)
        self.is_unresponsive = False
        self.idle = asyncio.Event()
        self.idle.set()
        self.ready = loop.create_future()
        self.launched_at = time.monotonic()
        self.stopped_at: float | None = None
        self.has_exited = False
        self.runs: list[Any] = []
        loop.call_later(ready_seconds, self._set_ready)

    def _set_ready(self) -> None:
        self.ready.set_result([PatchStatus("fork", "in use")])

    @property
    def is_alive(self) -> bool:
        """Whether it was neither stopped nor killed."""
        return self.stopped_at is None and not self.has_exited

    @property
    def cpu_seconds(self) -> float:
        """No CPU time."""
        return 0.0

    @property
    def stalled_seconds(self) -> float:
        """It makes progress."""
        return 0.0

    async def start(self, *_: Any, **__: Any) -> Any:
        """Start a run. Raises ServerGoneError."""
        if not self.is_alive:
            raise ServerGoneError
        await asyncio.sleep(FORK / 2)
        assert self.is_alive, "the server has ended during the start of a run"
        run = SimpleNamespace(server=self, ended=asyncio.get_running_loop().create_future())
        self.runs.append(run)
        self.idle.clear()
        await asyncio.sleep(FORK / 2)
        return run

    def end(self, run: Any) -> None:
        """End a run."""
        assert self.is_alive, "the server has ended before its run"
        self.runs.remove(run)
        run.ended.set_result(0)
        if not self.runs:
            self.idle.set()

    async def stop(self) -> None:
        """Record when it was stopped."""
        self.stopped_at = asyncio.get_running_loop().time()


class Rig:
    """A starter, the servers that it has launched, and what it has reported."""

    def __init__(self, spec: RunSpec, idle_seconds: float) -> None:
        self.spec = spec
        self.replaced: list[str] = []
        self.starter = ForkserverStarter(on_replaced=self.replaced.append, idle_seconds=idle_seconds)
        self.servers: list[Server] = []
        self.ready_seconds = READY

    async def launch(self, _contents: Iterable[Path], _hash_seed: int) -> Server:
        """Launch a server; this takes no time, but other tasks run in the meantime."""
        await asyncio.sleep(0)
        self.servers.append(Server(self.ready_seconds))
        return self.servers[-1]

    async def start(self) -> Any:
        """Start a run."""
        return await self.starter.start(self.spec)

    async def run(self, seconds: float) -> Server:
        """Start a run that takes so long; return its server."""
        run = await self.start()
        await asyncio.sleep(seconds)
        server: Server = run.server
        server.end(run)
        return server


def now() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    workspace = Workspace(tmp_path / "runner", GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample"))
    return RunSpec("1", workspace, RoleContent(tmp_path / "roles/foo"))


@asynccontextmanager
async def rig_of(spec: RunSpec, idle_seconds: float = IDLE, ready_seconds: float = READY) -> AsyncIterator[Rig]:
    """Yield a rig whose first server has been launched."""
    rig = Rig(spec, idle_seconds)
    rig.ready_seconds = ready_seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServer, "launch", rig.launch)
        patch.setattr(starter, "run_in_thread", AsyncMock())  # a cancelled run has no processes
        async with rig.starter:
            yield rig


@in_virtual_time
async def test_server_ends_after_the_time_without_a_run(spec: RunSpec) -> None:
    async with rig_of(spec) as rig:
        (server,) = rig.servers
        with capture_logs() as logs:
            await asyncio.sleep(READY + 2 * IDLE)
    assert server.stopped_at == READY + IDLE
    assert [(each["log_level"], each["event"]) for each in logs] == [
        ("info", "The fork server is ready"),
        ("info", "Ending the fork server"),
    ]
    assert logs[1]["reason"] == "no run for 10m; the next run starts another one"
    assert rig.replaced == []
    assert (len(rig.servers), rig.starter.server, rig.starter.has_ended_idle) == (1, None, True)


@in_virtual_time
async def test_server_does_not_end_by_default(spec: RunSpec) -> None:
    async with rig_of(spec, idle_seconds=ForkserverStarter().idle_seconds) as rig:
        server = await rig.run(1)
        await asyncio.sleep(100 * IDLE)
        assert server.stopped_at is None
        assert await rig.run(1) is server


@in_virtual_time
async def test_time_counts_from_the_end_of_the_last_run(spec: RunSpec) -> None:
    async with rig_of(spec) as rig:
        await asyncio.gather(rig.run(5), rig.run(10 * IDLE), rig.run(3 * IDLE))
        ended = now()
        assert ended > 10 * IDLE
        await asyncio.sleep(2 * IDLE)
        (server,) = rig.servers
        assert server.stopped_at == ended + IDLE


@in_virtual_time
async def test_runs_in_time_keep_the_server(spec: RunSpec) -> None:
    async with rig_of(spec) as rig:
        for _ in range(5):
            await rig.run(1)
            await asyncio.sleep(IDLE - FORK)
        assert len(rig.servers) == 1
        assert rig.servers[0].stopped_at is None


@in_virtual_time
async def test_next_run_is_forked_from_another_server_each_time(spec: RunSpec) -> None:
    async with rig_of(spec) as rig:
        for number in range(1, 5):
            started = now()
            server = await rig.run(IDLE)
            assert server is rig.servers[-1]
            assert (len(rig.servers), rig.starter.has_ended_idle) == (number, False)
            assert now() - started == READY + FORK + IDLE
            await asyncio.sleep(2 * IDLE)
            assert server.stopped_at
            assert rig.starter.has_ended_idle
    assert rig.replaced == []


@in_virtual_time
async def test_starting_server_does_not_end(spec: RunSpec) -> None:
    async with rig_of(spec, ready_seconds=5 * IDLE) as rig:
        waiting = asyncio.create_task(rig.run(1))
        await asyncio.sleep(4 * IDLE)
        waiting.cancel()  # now no run waits for it
        await asyncio.sleep(IDLE + 1)
        assert rig.servers[0].ready.done()
        await asyncio.sleep(2 * IDLE)
        assert [each.stopped_at for each in rig.servers] == [6 * IDLE]


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("early", [-FORK, 0, FORK / 4, FORK / 2, FORK, 2 * FORK])
def test_run_that_starts_when_the_server_would_end_is_forked(spec: RunSpec, early: float, runs: int) -> None:
    @in_virtual_time
    async def test() -> None:
        async with rig_of(spec) as rig:
            await asyncio.sleep(READY + IDLE - early)
            used = await asyncio.gather(*(rig.run(2 * IDLE) for _ in range(runs)))
            assert set(used) == {rig.servers[-1]}
            assert len(rig.servers) == (1 if early > 0 else 2)

    test()


@in_virtual_time
async def test_run_is_forked_if_that_takes_longer_than_the_time_without_a_run(spec: RunSpec) -> None:
    async with rig_of(spec, idle_seconds=FORK / 8) as rig:
        for _ in range(3):
            assert set(await asyncio.gather(rig.run(FORK / 16), rig.run(FORK), rig.run(1))) == {rig.servers[-1]}
            await asyncio.sleep(1)
        assert len(rig.servers) == 3


@pytest.mark.parametrize("steps", range(12))
def test_run_that_starts_while_the_server_ends_is_forked(spec: RunSpec, steps: int) -> None:
    """Both happen at the same virtual time, in different orders of their steps."""

    @in_virtual_time
    async def test() -> None:
        async with rig_of(spec) as rig:

            async def run_later() -> Server:
                for _ in range(steps):
                    await asyncio.sleep(0)
                return await rig.run(2 * IDLE)

            running = asyncio.Future[asyncio.Task[Server]]()
            asyncio.get_running_loop().call_at(
                READY + IDLE, lambda: running.set_result(asyncio.create_task(run_later()))
            )
            server = await (await running)
            assert server is rig.servers[-1]
            assert server.stopped_at is None
            assert [each.stopped_at for each in rig.servers[:-1]] in ([], [READY + IDLE])

    test()


@in_virtual_time
async def test_exited_server_does_not_end_because_of_its_time_without_a_run(spec: RunSpec) -> None:
    async with rig_of(spec) as rig:
        server = await rig.run(1)
        await asyncio.sleep(1)
        server.has_exited = True
        with capture_logs() as logs:
            await asyncio.sleep(2 * IDLE)
        assert (logs, rig.starter.has_ended_idle) == ([], False)
        assert await rig.run(1) is rig.servers[1]
    assert rig.replaced == ["exited"]


@in_virtual_time
async def test_renewed_server_ends_after_its_own_time(spec: RunSpec) -> None:
    async with rig_of(spec) as rig:
        await asyncio.sleep(READY + IDLE / 2)
        rig.ready_seconds = IDLE
        assert await rig.starter.renew(2)
        renewed = now()
        await asyncio.sleep(IDLE - 1)  # longer than the time of the first one
        assert not rig.starter.has_ended_idle
        await asyncio.sleep(3 * IDLE)
        assert [each.stopped_at for each in rig.servers] == [renewed, renewed + 2 * IDLE]
        assert not await rig.starter.renew(3)
        assert await rig.run(1) is rig.servers[2]


@in_virtual_time
async def test_server_of_a_cancelled_start_ends(spec: RunSpec) -> None:
    async with rig_of(spec) as rig:
        starting = asyncio.create_task(rig.start())
        await asyncio.sleep(READY + FORK / 4)
        starting.cancel()
        await asyncio.wait({starting})
        cancelled = now()
        await asyncio.sleep(2 * IDLE)
        assert [each.stopped_at for each in rig.servers] == [cancelled + IDLE]


@in_virtual_time
async def test_leaving_stops_the_server_once(spec: RunSpec) -> None:
    async with rig_of(spec) as rig:
        await rig.run(1)
    left = now()
    await asyncio.sleep(2 * IDLE)
    assert [each.stopped_at for each in rig.servers] == [left]
    assert not rig.starter.has_ended_idle
