"""The scene of a campaign: control plane, kinds, account, project, disk, up to three operators, and their objects."""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier, read_manifests
from tests.chaos.heartbeats import HEARTBEAT, PASSING, Ledger
from tests.chaos.process_table import MARK
from tests.chaos.replica import ACCOUNT, Replica, kept_running
from tests.chaos.requests import until
from tests.chaos.small_disk import SmallDisk, small_disk
from tests.chaos.workload import Workload
from tests.integration.definitions import definition
from tests.integration.operators import PROJECT, Operator, copy_project
from tests.support.world import World, names

_VICTIM_SECONDS, _LOOK_SECONDS, _TOUCH_SECONDS = 20.0, 0.01, 2.0
LEASE_NAME, LEASE_SECONDS, DEADLINE_SECONDS = "lock", 6, 3
SHARDS = 6
"""Of three replicas, which share the work; two replicas elect a leader."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a fault may affect."""

    directory: Path
    mark: str
    plane: ControlPlane
    workload: Workload
    replicas: list[Replica]
    disk: SmallDisk

    @property
    def replica(self) -> Replica:
        """The operator of a scene that has one."""
        return self.replicas[0]

    async def victim(self, name: str) -> psutil.Process:
        """Wait for a process of the operator with this role and return it. Raises TimeoutError."""
        found: list[psutil.Process] = []

        async def look() -> bool:
            found[:] = await asyncio.to_thread(self.replica.processes, name)
            return bool(found)

        async with self.busy():
            await until(look, _VICTIM_SECONDS, f"a process {name}", _LOOK_SECONDS)
        return found[0]

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Change objects every two seconds, so that there is always work."""
        touching = asyncio.create_task(self._keep_touching())
        try:
            yield
        finally:
            touching.cancel()
            await asyncio.gather(touching, return_exceptions=True)

    async def _keep_touching(self) -> None:
        while True:
            await asyncio.sleep(_TOUCH_SECONDS)
            await self.workload.touch()


_OWN_PROJECT = Path(__file__).parent / "project"
_NAMESPACE = GVK("", "v1", "Namespace")
_PAIR = 2
_FLAGS = ("--backoff-max", "5s", "--ansible-log-events", "nothing")


def define(plane: ControlPlane) -> None:
    """Install the kinds and an account with all permissions. Blocks."""
    account: RawObject = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": "default"},
    }
    binding: RawObject = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    }
    applier = Applier(plane.kubeconfig)
    applier.apply(read_manifests(PROJECT / "deploy" / "crds"))
    applier.apply([definition(HEARTBEAT), definition(PASSING), account, binding])


@asynccontextmanager
async def set_up_scene(plane: ControlPlane, directory: Path, replicas: int) -> AsyncIterator[Scene]:
    """Yield a scene in a new directory and a new namespace, with this many replicas of the operator."""
    mark = secrets.token_hex(8)
    ledger = Ledger(directory / "ledger")
    _write_project(directory, ledger)
    async with AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(directory / "disk"))
        client = await stack.enter_async_context(await Client.connect(str(plane.kubeconfig)))
        world = World(client, f"chaos-{mark}")
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}})
        stack.push_async_callback(_remove, world)
        found = Scene(directory, mark, plane, Workload(world, ledger), [], disk)
        for number in range(replicas):
            operator = _operator(found, directory / f"replica-{number}", _election(world.namespace, replicas))
            found.replicas.append(await stack.enter_async_context(kept_running(operator, plane)))
        yield found


async def _remove(world: World) -> None:
    """Remove the namespace and its objects; the operator no longer runs finalizers."""
    await world.client.delete(_NAMESPACE, ObjectKey("", world.namespace))
    for name in names(await world.objects(HEARTBEAT)):
        with suppress(NotFoundError):
            await world.patch(HEARTBEAT, name, {"metadata": {"finalizers": None}})


def _write_project(directory: Path, ledger: Ledger) -> None:
    ledger.directory.mkdir(parents=True)
    project = directory / "project"
    shutil.copytree(_OWN_PROJECT, project)
    copy_project(project, "roles", "ansible.cfg")


def _operator(scene: Scene, own: Path, election: tuple[str, ...]) -> Operator:
    work, temporary = (scene.disk.directory / own.name / name for name in ("work", "tmp"))
    own.mkdir()
    temporary.mkdir(parents=True)
    environment = {
        MARK: scene.mark,
        "CHAOS_LEDGER": str(scene.workload.ledger.directory),
        "TMPDIR": str(temporary),
        "ANSIBLE_CONFIG": str(scene.directory / "project" / "ansible.cfg"),
    }
    watches = scene.directory / "project" / "watches.yaml"
    roles = scene.directory / "project" / "roles"
    namespace = scene.workload.world.namespace
    files = ("--watches-file", str(watches), "--ansible-roles-path", str(roles), "--work-dir", str(work))
    return Operator(own, own / "kubeconfig", namespace, (*_FLAGS, *files, *election), environment)


def _election(namespace: str, replicas: int) -> tuple[str, ...]:
    """Return the flags with which two replicas elect a leader, and three share the work."""
    if replicas == 1:
        return ()
    lock = ("--leader-elect", "--leader-election-id", LEASE_NAME, "--leader-election-namespace", namespace)
    times = (
        "--leader-elect-lease-duration",
        f"{LEASE_SECONDS}s",
        "--leader-elect-renew-deadline",
        f"{DEADLINE_SECONDS}s",
    )
    return (*lock, *times, *(("--shards", str(SHARDS)) if replicas > _PAIR else ()))
