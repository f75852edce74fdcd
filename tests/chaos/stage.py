"""Sets the scene: kinds, account, project, disk, and one operator or several replicas; takes everything down again."""

import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier, read_manifests
from tests.chaos.heartbeats import HEARTBEAT, PASSING
from tests.chaos.ledger import Ledger
from tests.chaos.process_table import MARK
from tests.chaos.replica import ACCOUNT, kept_running
from tests.chaos.scene import DEADLINE_SECONDS, LEASE_NAME, LEASE_SECONDS, SHARDS, Scene
from tests.chaos.small_disk import small_disk
from tests.chaos.workload import Workload
from tests.integration.definitions import definition
from tests.integration.operators import PROJECT, Operator
from tests.integration.world import World, names

_OWN_PROJECT = Path(__file__).parent / "project"
_NAMESPACE = GVK("", "v1", "Namespace")
_PAIR = 2
_FLAGS = ("--backoff-max", "5s", "--ansible-log-events", "nothing")


def define(plane: ControlPlane) -> None:
    """Install the kinds and an account with all rights. Blocks."""
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
async def scene(plane: ControlPlane, folder: Path, replicas: int) -> AsyncIterator[Scene]:
    """Yield a scene in a new folder and a new namespace, with so many replicas of the operator."""
    mark = secrets.token_hex(8)
    ledger = Ledger(folder / "ledger")
    _write_project(folder, ledger)
    async with AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk"))
        client = await stack.enter_async_context(await Client.connect(str(plane.kubeconfig)))
        world = World(client, f"chaos-{mark}")
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}})
        stack.push_async_callback(_remove, world)
        found = Scene(folder, mark, plane, Workload(world, ledger), [], disk)
        for number in range(replicas):
            operator = _operator(found, folder / f"replica-{number}", _election(world.namespace, replicas))
            found.replicas.append(await stack.enter_async_context(kept_running(operator, plane)))
        yield found


async def _remove(world: World) -> None:
    """Remove the namespace with everything in it; the operator that would say farewell has stopped."""
    await world.client.delete(_NAMESPACE, ObjectKey("", world.namespace))
    for name in names(await world.objects(HEARTBEAT)):
        with suppress(NotFoundError):
            await world.patch(HEARTBEAT, name, {"metadata": {"finalizers": None}})


def _write_project(folder: Path, ledger: Ledger) -> None:
    ledger.folder.mkdir(parents=True)
    project = folder / "project"
    shutil.copytree(_OWN_PROJECT, project)
    shutil.copytree(PROJECT / "roles", project / "roles", dirs_exist_ok=True)
    shutil.copy(PROJECT / "ansible.cfg", project)


def _operator(scene: Scene, own: Path, election: tuple[str, ...]) -> Operator:
    work, temporary = (scene.disk.folder / own.name / name for name in ("work", "tmp"))
    own.mkdir()
    temporary.mkdir(parents=True)
    environment = {
        MARK: scene.mark,
        "CHAOS_LEDGER": str(scene.workload.ledger.folder),
        "TMPDIR": str(temporary),
        "ANSIBLE_CONFIG": str(scene.folder / "project" / "ansible.cfg"),
    }
    watches = scene.folder / "project" / "watches.yaml"
    roles = scene.folder / "project" / "roles"
    namespace = scene.workload.world.namespace
    files = ("--watches-file", str(watches), "--ansible-roles-path", str(roles), "--work-dir", str(work))
    return Operator(own, own / "kubeconfig", namespace, (*_FLAGS, *files, *election), environment)


def _election(namespace: str, replicas: int) -> tuple[str, ...]:
    """Return what makes two replicas elect a leader, and three share the work."""
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
