"""Runs start cold without a fork server. No server of these tests has imported Ansible."""

import asyncio
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.process import RunSpec
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm import client, starter
from rolecall.runner.warm.ansible_patches.patches import PatchStatus
from rolecall.runner.warm.client import ForkServer
from rolecall.runner.warm.starter import ForkserverStarter, StartLimits

FORK = PatchStatus("fork", "in use")
QUICK = StartLimits(poll_seconds=0.05)
SHORT = replace(QUICK, without_progress_seconds=0.5, stalled_seconds=0.5, slow_seconds=0.5)
"""Limits below the time that a slow server needs."""


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    workspace = Workspace(tmp_path / "runner", GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample"))
    return RunSpec("1", workspace, RoleContent(tmp_path / "roles/foo"))


@pytest.fixture
def interpreter(tmp_path: Path) -> str:
    """Return an interpreter that only prints its arguments."""
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\necho "$@"\n')
    path.chmod(0o755)
    return os.fspath(path)


async def assert_starts_cold(forkserver: ForkserverStarter, spec: RunSpec) -> None:
    """Check that a run is started in a new interpreter."""
    process = await asyncio.wait_for(forkserver.start(spec), 20)
    assert process.stdout
    assert await process.stdout.read() == b"-P -m rolecall.runner.runs.runner_process\n"
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_runs_start_cold_if_server_cannot_be_launched(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    async def launch(_contents: Sequence[Path], _hash_seed: int) -> ForkServer:
        raise BlockingIOError("no process left")

    monkeypatch.setattr(ForkServer, "launch", launch)
    with capture_logs() as logs:
        async with ForkserverStarter() as forkserver:
            monkeypatch.setattr(sys, "executable", interpreter)
            await assert_starts_cold(forkserver, spec)
    assert [(line["log_level"], line["error"]) for line in logs] == [("warning", "BlockingIOError('no process left')")]


@pytest.fixture
def silent_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every server one that never gets ready, and ignores SIGTERM."""
    (tmp_path / "silent_server.py").write_text(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(300)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path))
    monkeypatch.setattr(client, "SERVER_MODULE", "silent_server")


@pytest.mark.usefixtures("silent_server")
async def test_start_can_be_cancelled_during_preparation_without_others(spec: RunSpec) -> None:
    limits = replace(QUICK, without_progress_seconds=600)
    async with ForkserverStarter(limits=limits) as forkserver:
        others = asyncio.create_task(forkserver.start(spec))
        starting = asyncio.create_task(forkserver.start(spec))
        await asyncio.sleep(0)
        starting.cancel()
        async with asyncio.timeout(60):  # the server has ten times as long to get ready
            await asyncio.wait({starting})
        assert starting.cancelled()
        assert not others.done()
        others.cancel()
        await asyncio.wait({others})


@pytest.mark.usefixtures("silent_server")
async def test_run_starts_cold_and_server_continues_if_it_makes_no_progress(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    replaced: list[str] = []
    limits = replace(QUICK, without_progress_seconds=0.05)
    with capture_logs() as logs:
        async with ForkserverStarter(on_replaced=replaced.append, limits=limits) as forkserver:
            server = forkserver.server
            monkeypatch.setattr(sys, "executable", interpreter)
            await assert_starts_cold(forkserver, spec)
            await assert_starts_cold(forkserver, spec)
            assert forkserver.server is server
            assert server
            assert server.is_alive
    assert replaced == []
    assert [line["runs"] for line in logs] == ["start cold until it is ready"]


@pytest.mark.usefixtures("silent_server")
async def test_server_that_makes_no_progress_is_replaced_and_counted(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    replaced: list[str] = []
    limits = replace(QUICK, stalled_seconds=0.05)
    async with ForkserverStarter(on_replaced=replaced.append, limits=limits) as forkserver:
        server = forkserver.server
        assert server
        monkeypatch.setattr(sys, "executable", interpreter)
        await assert_starts_cold(forkserver, spec)
        assert await asyncio.wait_for(server.process.wait(), 20) < 0
    assert replaced == ["start_timeout"]


@pytest.fixture
def slow_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every server one that uses two seconds of CPU time, then is ready and rejects the first request."""
    (tmp_path / "slow_server.py").write_text(
        "import json, socket, sys, time\n"
        "control = socket.socket(fileno=int(sys.argv[1]))\n"
        "while time.process_time() < 2: pass\n"
        f"control.send(json.dumps({{'ready': [{list(astuple(FORK))}]}}).encode())\n"
        "request, *_ = socket.recv_fds(control, 4096, 5)\n"
        "control.send(json.dumps({'failed': json.loads(request)['start'], 'reason': 'rejected'}).encode())\n"
        "time.sleep(300)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path))
    monkeypatch.setattr(client, "SERVER_MODULE", "slow_server")


@pytest.mark.usefixtures("slow_server")
async def test_server_that_makes_progress_is_awaited_beyond_every_limit(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = itertools.count(1.0, 0.001)  # a busy machine may give a real server no CPU for longer than the limits
    monkeypatch.setattr(ForkServer, "cpu_seconds", property(lambda _: next(used)))
    replaced: list[str] = []
    with capture_logs() as logs:
        async with ForkserverStarter(on_replaced=replaced.append, limits=SHORT) as forkserver:
            with pytest.raises(OSError, match="rejected"):
                await asyncio.wait_for(forkserver.start(spec), 60)
    assert replaced == []
    slow, ready = logs
    assert slow["runs"] == "wait for it"
    assert slow["short"].startswith("CPU: ")
    assert ready["event"] == "The fork server is ready"
    assert ready["cpu_seconds"] > 0


@pytest.mark.usefixtures("slow_server")
async def test_run_does_not_wait_for_server_that_needs_too_much_cpu_time(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    replaced: list[str] = []
    limits = replace(QUICK, without_progress_seconds=600, stalled_seconds=600, cpu_seconds=0.1)
    async with ForkserverStarter(on_replaced=replaced.append, limits=limits) as forkserver:
        server = forkserver.server
        monkeypatch.setattr(sys, "executable", interpreter)
        await assert_starts_cold(forkserver, spec)
        assert forkserver.server is server
        assert server
        await asyncio.wait_for(asyncio.shield(server.ready), 60)
    assert replaced == []


async def test_server_that_exits_again_and_again_is_started_ever_more_rarely(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    async def launch(_contents: Sequence[Path], _hash_seed: int) -> ForkServer:
        raise BlockingIOError("no process left")

    now = 0.0
    monkeypatch.setattr(ForkServer, "launch", launch)
    monkeypatch.setattr(starter, "time", SimpleNamespace(monotonic=lambda: now))
    with capture_logs() as logs:
        async with ForkserverStarter() as forkserver:
            monkeypatch.setattr(sys, "executable", interpreter)
            for hour in range(1, 9):
                now = hour * 3600.0
                await assert_starts_cold(forkserver, spec)
    pauses = [line["next_attempt_seconds"] for line in logs]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 10 * pauses[0]
