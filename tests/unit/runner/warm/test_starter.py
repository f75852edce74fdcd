"""Runs start cold without a fork server. No server of these tests has imported Ansible."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.process import RunSpec
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm import client, starter
from rolecall.runner.warm.client import ForkServer
from rolecall.runner.warm.starter import ForkserverStarter


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    workspace = Workspace(tmp_path / "runner", GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample"))
    return RunSpec("1", workspace, RoleContent(tmp_path / "roles/foo"))


@pytest.fixture
def interpreter(tmp_path: Path) -> str:
    """Give an interpreter that only prints its arguments."""
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\necho "$@"\n')
    path.chmod(0o755)
    return os.fspath(path)


async def assert_starts_cold(forkserver: ForkserverStarter, spec: RunSpec) -> None:
    """Check that a run is started in a new interpreter."""
    process = await asyncio.wait_for(forkserver.start(spec), 20)
    assert process.stdout
    assert await process.stdout.read() == b"-P -m rolecall.runner.runs.runner_process\n"
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_runs_start_cold_if_server_cannot_be_launched(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    async def launch(_contents: Sequence[Path], _growth_limit_bytes: int) -> ForkServer:
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
    async with ForkserverStarter() as forkserver:
        others = asyncio.create_task(forkserver.start(spec))
        starting = asyncio.create_task(forkserver.start(spec))
        await asyncio.sleep(0)
        starting.cancel()
        async with asyncio.timeout(10):  # the server has twice that time to get ready
            await asyncio.wait({starting})
        assert starting.cancelled()
        assert not others.done()
        others.cancel()
        await asyncio.wait({others})


@pytest.mark.usefixtures("silent_server")
async def test_server_that_does_not_get_ready_is_killed_and_counted(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    monkeypatch.setattr(starter, "_READY_LIMIT_SECONDS", 0.05)
    replaced: list[str] = []
    async with ForkserverStarter(on_replaced=replaced.append) as forkserver:
        server = forkserver.server
        assert server
        monkeypatch.setattr(sys, "executable", interpreter)
        await assert_starts_cold(forkserver, spec)
        assert await asyncio.wait_for(server.process.wait(), 20) < 0
    assert replaced == ["start_timeout"]
