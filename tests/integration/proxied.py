"""A run on a real API server with its environment and kubeconfig, and what the proxy has reported about it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import ProxyCredentials
from rolecall.workbench.controlplane import ControlPlane
from tests.support.proxied_run import ReportedRun
from tests.support.world import TIMEOUT_SECONDS, World

CONFIG_MAP = GVK("", "v1", "ConfigMap")


@dataclass
class Run:
    """A run of a ConfigMap named primary."""

    world: World
    proxy: Proxy
    itself: ReportedRun
    credentials: ProxyCredentials
    home: Path
    programs: Path

    async def kubectl(self, *arguments: str, text: str = "") -> tuple[int, str]:
        """Run kubectl in the test's namespace as a play would; return the exit code and output."""
        return await self.command(*self.kubectl_command(*arguments), text=text)

    @asynccontextmanager
    async def process(self, *command: str, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a command with the run's environment; kill it at the end."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig")}
        environment["K8S_AUTH_KUBECONFIG"] = environment["KUBECONFIG"]
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment | self.credentials.environment({}) | variables,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def command(self, *command: str, text: str = "", **variables: str) -> tuple[int, str]:
        """Run a command with the run's environment; return the exit code and output."""
        async with self.process(*command, **variables) as process:
            output, _ = await asyncio.wait_for(process.communicate(text.encode()), TIMEOUT_SECONDS)
            return process.returncode or 0, output.decode()

    def kubectl_command(self, *arguments: str) -> tuple[str, ...]:
        """Return the command line of kubectl in the test's namespace."""
        return str(self.programs / "kubectl"), "--namespace", self.world.namespace, *arguments

    async def metadata(self, name: str) -> dict[str, Any]:
        """Return the metadata of a ConfigMap in the cluster."""
        found = await self.world.client.get(CONFIG_MAP, ObjectKey(self.world.namespace, name))
        metadata: dict[str, Any] = found["metadata"]
        return metadata

    async def owners(self, name: str) -> list[str]:
        """Return the uids of a ConfigMap's owners."""
        return [reference["uid"] for reference in (await self.metadata(name)).get("ownerReferences", [])]

    def noted(self) -> list[str]:
        """Return the versions that were recorded as the run's own writes."""
        return [obj["metadata"]["resourceVersion"] for obj in self.itself.written]


def config_map(world: World, name: str, value: str = "1", **metadata: object) -> RawObject:
    """Return a ConfigMap for the test's namespace."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": world.namespace, **metadata},
        "data": {"a": value},
    }


@pytest.fixture
async def run(world: World, defined: ControlPlane, tmp_path: Path) -> AsyncIterator[Run]:
    """Yield a registered run with its kubeconfig written."""
    primary = await world.client.create(config_map(world, "primary"))
    owner = Owner(CONFIG_MAP, ObjectKey(world.namespace, "primary"), primary["metadata"]["uid"], namespaced=True)
    itself = ReportedRun("7", owner)
    async with Proxy(world.client) as proxy:
        credentials = proxy.register(itself)
        (tmp_path / "kubeconfig").write_text(credentials.kubeconfig())
        yield Run(world, proxy, itself, credentials, tmp_path, defined.program_directory)
