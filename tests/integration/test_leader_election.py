"""Two operators and one Lease: when one freezes or loses the Lease, its runs end before the other takes over.

The simulation stops and kills leaders.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.election.elector import LEASE, Election, Elector
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.runner.serving.servers import serving
from rolecall.system.clock import LoopClock
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.control_plane import separate_control_plane
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, write_project, write_role
from tests.support.world import TIMEOUT_SECONDS, World, eventually

pytestmark = pytest.mark.alone
LEASE_SECONDS, DEADLINE_SECONDS, RETRY_SECONDS = 30.0, 10.0, 2.0
"""So long that a leader on a busy machine isn't too slow to renew its Lease."""

DO_NOTHING = "- ansible.builtin.debug:\n"
BEAT = """
- name: Beat and do not end when asked to
  ansible.builtin.shell: |
    trap '' TERM
    while :; do date +%s.%N > {{ beats }}.new; mv {{ beats }}.new {{ beats }}; sleep 0.05; done
"""


def electing(directory: Path, kubeconfig: Path, namespace: str) -> Operator:
    """Return an operator for the kind Thing that takes part in the election of its namespace."""
    flags = ("--leader-elect", "--leader-election-id", "lock", "--leader-election-namespace", namespace)
    lease = ("--leader-elect-lease-duration", f"{LEASE_SECONDS:g}s")
    deadline = ("--leader-elect-renew-deadline", f"{DEADLINE_SECONDS:g}s")
    probes = ("--health-probe-bind-address", "127.0.0.1:0")
    return Operator(directory, kubeconfig, namespace, (*flags, *lease, *deadline, *probes))


@pytest.fixture
def pair(defined: ControlPlane, world: World, tmp_path: Path) -> Iterator[tuple[Operator, Operator]]:
    """Yield two replicas with their own directories that aren't started yet."""
    replicas = []
    for name in ("first", "second"):
        directory = tmp_path / name
        directory.mkdir()
        write_project(directory, DO_NOTHING)
        replicas.append(electing(directory, defined.kubeconfig, world.namespace))
    yield replicas[0], replicas[1]
    for replica in replicas:
        replica.stop()


def spec_of(lease: RawObject) -> dict[str, Any]:
    """Return the spec of a Lease, empty if it has none."""
    found: dict[str, Any] = lease.get("spec") or {}
    return found


def seconds_of(time: str) -> float:
    """Return a time of a Lease in seconds since the epoch."""
    return datetime.fromisoformat(time).timestamp()


async def wait_until_leading(operator: Operator, world: World, within: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Wait until an operator holds the Lease and its workers have started; return the spec of the Lease."""

    async def look() -> tuple[str, str, bool]:
        waiting = operator.messages("Waiting to become the leader")
        holder = spec_of(await world.find(LEASE, "lock") or {}).get("holderIdentity", "")
        return (waiting[-1]["identity"] if waiting else "none"), holder, operator.is_ready()

    await eventually(look, lambda seen: seen[0] == seen[1] and seen[2], within, "it leads")
    return spec_of(await world.get(LEASE, "lock"))


async def wait_until_following(operator: Operator) -> None:
    """Wait until an operator waits for the Lease and has synced."""

    async def look() -> bool:
        return bool(operator.messages("Waiting to become the leader"))

    await eventually(look, bool, TIMEOUT_SECONDS, "it takes part")


async def test_stopped_leader_process_is_killed_with_its_runs_before_another_takes_over(
    pair: tuple[Operator, Operator], world: World, tmp_path: Path
) -> None:
    """Only a separate process can kill a stopped operator while its runs continue."""
    first, second = pair
    beats = tmp_path / "beats"
    write_role(first.directory, BEAT.replace("{{ beats }}", str(beats)))
    first.start()
    await wait_until_leading(first, world)
    second.start()
    await world.create(MANIFEST)
    await wait_until_following(second)

    async def has_begun() -> bool:
        return beats.exists()

    await eventually(has_begun, bool, TIMEOUT_SECONDS, "the run goes on")
    with suspended(first.main_process()):
        taken = await wait_until_leading(second, world)
        assert first.job_processes() == []
        assert float(beats.read_text()) < seconds_of(taken["acquireTime"])
        assert await asyncio.to_thread(first.wait) == 1


@contextlib.contextmanager
def suspended(*processes: psutil.Process) -> Iterator[None]:
    """Stop processes as SIGSTOP does; let those that still exist continue at the end."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Yield a separate control plane, because the test stops a part of it."""
    with separate_control_plane("election") as running:
        yield running


async def test_runs_end_before_a_lease_that_cannot_be_renewed_expires(plane: ControlPlane, tmp_path: Path) -> None:
    """Even a module that ignores SIGTERM does nothing when another replica may start."""
    beats = tmp_path / "beats"
    write_project(tmp_path, BEAT.replace("{{ beats }}", str(beats)))
    operator = electing(tmp_path, plane.kubeconfig, "default")
    operator.start()
    try:
        async with await Client.connect(str(plane.kubeconfig)) as client:
            world = World(client, "default")
            await wait_until_leading(operator, world)
            await world.create(MANIFEST)

            async def has_begun() -> bool:
                return beats.exists()

            await eventually(has_begun, bool, TIMEOUT_SECONDS, "the run goes on")
            await asyncio.to_thread(plane.stop_component, "kube-apiserver")
            with pytest.raises(KubeError):
                await world.get(LEASE, "lock")
            assert await asyncio.to_thread(operator.wait) == 1
            assert operator.job_processes() == []
            last_beat = float(beats.read_text())
            await asyncio.to_thread(plane.start_component, "kube-apiserver")
            renewed = seconds_of(spec_of(await world.get(LEASE, "lock"))["renewTime"])
            assert DEADLINE_SECONDS - RETRY_SECONDS < last_beat - renewed < LEASE_SECONDS
            assert f"could not be renewed for {DEADLINE_SECONDS:g} s" in operator.tail()
    finally:
        operator.stop()


class SlowMetrics(OperatorMetrics):
    """Metrics whose text is ready when ``may_end`` is set."""

    def __init__(self) -> None:
        super().__init__("test")
        self.may_end = threading.Event()

    def render(self) -> bytes:
        """Render."""
        self.may_end.wait()
        return super().render()


async def test_lease_is_renewed_while_clients_wait_for_metrics(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any number of clients of large metrics take no thread that a renewal needs."""
    metrics = SlowMetrics()
    renewals: list[float] = []
    election = Election(ObjectKey(world.namespace, "lock"), "me", LEASE_SECONDS, DEADLINE_SECONDS, RETRY_SECONDS)
    settings = Settings(metrics_bind_address="127.0.0.1:0")
    client = world.client
    async with serving(settings, client, metrics, []), aiohttp.ClientSession() as session:
        port = _port_of(capsys.readouterr().out)
        readers = [asyncio.create_task(_read(session, port)) for _ in range(60)]
        elector = asyncio.create_task(Elector(client, election, LoopClock(), metrics, renewals.append).run())

        async def look() -> int:
            assert not elector.done(), elector.exception()
            assert not any(reader.done() for reader in readers)
            return len(renewals)

        try:
            await eventually(look, lambda count: count >= 4, TIMEOUT_SECONDS, "it was renewed again and again")
        finally:
            metrics.may_end.set()
            elector.cancel()
        assert set(await asyncio.gather(*readers)) == {200}


def _port_of(log: str) -> int:
    return int(log.partition("Serving metrics")[2].partition("port=")[2].split()[0])


async def _read(session: aiohttp.ClientSession, port: int) -> int:
    async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
        return response.status
