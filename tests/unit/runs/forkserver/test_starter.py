"""With a version of ansible-core that the patches are not tested for, no server is launched, and the log says so."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rolecall.config.content import RoleContent
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runs.forkserver import starter
from rolecall.runs.forkserver.starter import ForkserverStarter
from rolecall.runs.runner import RunSpec
from rolecall.runs.workspace import Workspace


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    workspace = Workspace(tmp_path / "runner", GVK("example.com", "v1", "Foo"), ObjectKey("default", "sample"))
    return RunSpec("1", workspace, RoleContent(tmp_path / "roles/foo"))


async def test_an_unsupported_version_starts_runs_cold_and_warns_once(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(starter, "installed_version", lambda: "2.20.3")
    interpreter = tmp_path / "python"
    interpreter.write_text('#!/bin/sh\necho "$@"\n')
    interpreter.chmod(0o755)
    with capture_logs() as logs:
        async with ForkserverStarter() as forkserver:
            assert forkserver.server is None
            monkeypatch.setattr(sys, "executable", os.fspath(interpreter))
            for _ in range(2):
                process = await forkserver.start(spec)
                assert process.stdout
                assert await process.stdout.read() == b"-P -m rolecall.runs.runner_process\n"
                assert await asyncio.wait_for(process.wait(), 10) == 0
    (warning,) = logs
    assert warning["log_level"] == "warning"
    assert "not supported" in warning["event"]
    assert "ten times as long" in warning["event"]
    assert (warning["found"], warning["supported"]) == ("2.20.3", ["2.19.*", "2.21.*"])
