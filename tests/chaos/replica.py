"""An operator, restarted whenever it exits, as by a Deployment."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from rolecall.workbench.controlplane import ControlPlane
from tests.chaos import process_table
from tests.chaos.relay import Relay
from tests.integration.operators import Operator

ACCOUNT = "chaos"
_LOOK_SECONDS = 0.1


@dataclass(slots=True)
class Replica:
    """One operator behind its own relay; ``ended`` collects exit codes of unexpected exits."""

    operator: Operator
    relay: Relay
    may_end: bool = False
    """Whether the current fault may end the operator."""
    ended: list[int] = field(default_factory=list)
    _started_at: int = 0
    _is_stopping: bool = False

    @property
    def pid(self) -> int:
        """The started process."""
        assert self.operator.process is not None
        return self.operator.process.pid

    @property
    def itself(self) -> psutil.Process:
        """The operator itself, which may be a child of its guard. Raises psutil.NoSuchProcess."""
        return process_table.operator_of(self.pid)

    def kill(self) -> None:
        """Kill the operator itself, which starts again; it may be starting already."""
        self.may_end = True
        with suppress(psutil.NoSuchProcess):
            self.itself.kill()

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the processes with this role, ``operator`` or one of its descendants, oldest first. Blocks."""
        if name != "operator":
            return process_table.below(self.pid, name)
        with suppress(psutil.NoSuchProcess):
            return [self.itself]
        return []

    def start(self) -> None:
        """Start the operator."""
        log = self.operator.log_file
        self._started_at = log.stat().st_size if log.exists() else 0
        self.operator.start()

    def messages(self, message: str) -> list[dict[str, Any]]:
        """Return the log lines with this message since the last start."""
        with self.operator.log_file.open("rb") as log:
            log.seek(self._started_at)
            lines = [line for line in log if message.encode() in line and line.endswith(b"}\n")]
        return [entry for entry in map(json.loads, lines) if entry.get("msg") == message]

    async def keep_running(self) -> None:
        """Restart the operator whenever it exits, until canceled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            assert self.operator.process is not None
            code = self.operator.process.poll()
            if code is None or self._is_stopping:
                continue
            if not self.may_end:
                self.ended.append(code)
            self.start()

    async def stop(self) -> int:
        """Stop the operator permanently, with SIGKILL after a timeout, and return its exit code."""
        self._is_stopping = True
        try:
            return await asyncio.to_thread(self.operator.stop)
        except subprocess.TimeoutExpired:
            await asyncio.to_thread(self.operator.kill)
            return -signal.SIGKILL


@asynccontextmanager
async def kept_running(operator: Operator, plane: ControlPlane) -> AsyncIterator[Replica]:
    """Start an operator behind a relay and yield it; keep it running, and stop it at the end."""
    account = await asyncio.to_thread(plane.service_account_kubeconfig, "default", ACCOUNT)
    relay = Relay.to(account)
    await relay.start(operator.kubeconfig)
    replica = Replica(operator, relay)
    replica.start()
    keeping = asyncio.create_task(replica.keep_running())
    try:
        yield replica
    finally:
        keeping.cancel()
        await replica.stop()
        await relay.close()
