"""A demo that is stopped from outside stops its processes: ``timeout``, a CI job, and a closed terminal stop it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rolecall.workbench.controlplane.state import known_names
from tests.integration.operators import copy_project
from tests.support.world import TIMEOUT_SECONDS, eventually

PARTS = ("watches.yaml", "roles", "playbooks", "deploy", "demo.yaml", "requirements.yml")


def started_demo(directory: Path, printed: Path, state: Path) -> subprocess.Popen[bytes]:
    """Start the demo of a project, with its output in a file."""
    environment = {**os.environ, "ROLECALL_STATE_DIR": str(state)}
    command = (sys.executable, "-m", "rolecall", "demo", "--name", "told-to-end")
    with printed.open("wb") as output:
        return subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=output)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_terminated_demo_leaves_no_processes_or_files(number: signal.Signals, tmp_path: Path) -> None:
    copy_project(tmp_path, *PARTS)
    printed, state = tmp_path / "printed", tmp_path / "state"
    demo = started_demo(tmp_path, printed, state)

    async def operator() -> re.Match[str] | None:
        return re.search(r"Started the operator .*\(process (\d+)\)", await asyncio.to_thread(printed.read_text))

    found = await eventually(operator, bool, TIMEOUT_SECONDS, "the demo has started its operator")
    assert found is not None
    started = psutil.Process(int(found[1]))
    assert started.is_running()
    demo.send_signal(number)
    assert await asyncio.to_thread(demo.wait, TIMEOUT_SECONDS) == 130
    assert not started.is_running()
    assert list(known_names(state)) == []
    assert "rolecall demo: interrupted" in await asyncio.to_thread(printed.read_text)
