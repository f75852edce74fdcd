"""Fixtures of the integration tests: a control plane with our definitions, a namespace for each test, and operators."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier, read_manifests
from tests.integration.control_plane import control_plane
from tests.integration.example_projects import ADVANCED, MEMCACHED, PATTERNS
from tests.integration.operators import EVERY_NAMESPACE, PROJECT, Operator, copy_project
from tests.integration.proxied import run
from tests.integration.shared import Shared, Things
from tests.kstatus.judge import Judge
from tests.support.things import DEFINITIONS
from tests.support.world import FOO, HIKAWA, POD_SCALER, TIMEOUT_SECONDS, World, eventually, names

__all__ = ["control_plane", "run"]

NAMESPACE = GVK("", "v1", "Namespace")
QUIET_SECONDS = 3.0


LONGEST_FIRST = (
    "test_playbooks.py",
    "test_guides.py",
    "test_scaffold.py",
    "test_replay_edges.py",
    "test_failures.py",
    "test_replay.py",
    "test_controlplane.py",
    "test_planned_runs.py",
)
"""The slowest files. They start first, so that no process runs one of them after the others have finished."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest files first."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))


@pytest.fixture(scope="session")
def defined(control_plane: ControlPlane) -> ControlPlane:
    """Return the control plane with CRDs and RBAC applied."""
    applier = Applier(control_plane.kubeconfig)
    for part in ("deploy/crds", "deploy/rbac", "deploy/components/podcount/rbac.yaml"):
        applier.apply(read_manifests(PROJECT / part))
    applier.apply(DEFINITIONS)
    # Including those of the projects: a garbage collector takes up to half a minute to notice a new kind.
    for project in (ADVANCED, MEMCACHED):
        applier.apply(read_manifests(project.definitions))
    applier.apply(read_manifests(PATTERNS.path / "deploy/crds"))
    return control_plane


@pytest.fixture
async def world(defined: ControlPlane) -> AsyncIterator[World]:
    """Yield a namespace of the test's own; it is removed in the background afterward."""
    async with await Client.connect(str(defined.kubeconfig)) as client:
        name = f"test-{uuid.uuid4().hex[:8]}"
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield World(client, name)
        await client.delete(NAMESPACE, ObjectKey("", name))


@pytest.fixture(scope="session")
def judge() -> Judge:
    """Return kstatus, which reports whether an object is finished; the first call builds it."""
    return Judge.built()


@pytest.fixture(scope="session")
def account_kubeconfig(defined: ControlPlane) -> Path:
    """Return the kubeconfig of the operator's service account."""
    return defined.service_account_kubeconfig("rolecall-system", "rolecall")


@pytest.fixture(scope="module")
def operator(account_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Yield an operator for this repository's watches.yaml under its service account; the tests of a file share it."""
    directory = tmp_path_factory.mktemp("four")
    copy_project(directory, "watches.yaml", "roles", "ansible.cfg")
    operator = Operator(directory, account_kubeconfig, EVERY_NAMESPACE)
    operator.start()
    yield operator
    assert operator.stop() == 0


@pytest.fixture
async def running(operator: Operator, world: World) -> AsyncIterator[Operator]:
    """Yield the operator of ``operator``, ready; what the test has left for it goes with the test."""
    await wait_until_ready(operator)
    yield operator
    for gvk in (POD_SCALER, HIKAWA, FOO):
        for name in names(await world.objects(gvk)):
            await world.delete(gvk, name)


@pytest.fixture
def thing_operator(tmp_path: Path, defined: ControlPlane, world: World) -> Iterator[Operator]:
    """Yield an operator for the kind Thing, with an administrator's permissions; its project is still to be written."""
    operator = Operator(tmp_path, defined.kubeconfig, world.namespace, ("--backoff-max", "20s"))
    yield operator
    operator.stop()


@pytest.fixture(scope="module")
def shared_operator(
    request: pytest.FixtureRequest, defined: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """Yield the operator for ``SHARED`` of a file, with an administrator's permissions."""
    shared: Shared = request.module.SHARED
    operator = shared.operator(tmp_path_factory.mktemp("shared"), defined.kubeconfig)
    operator.start()
    yield operator
    assert operator.stop() == 0


@pytest.fixture
async def things(request: pytest.FixtureRequest, shared_operator: Operator, world: World) -> AsyncIterator[Things]:
    """Yield the kinds of ``SHARED`` in the test's namespace, once the operator works; its objects go with the test."""
    await wait_until_ready(shared_operator)
    shared: Shared = request.module.SHARED
    yield Things(shared, shared_operator, world)
    for gvk in map(shared.gvk, shared.roles):
        for name in names(await world.objects(gvk)):
            with contextlib.suppress(NotFoundError):
                await world.delete(gvk, name)
                await world.patch(gvk, name, {"metadata": {"finalizers": None}})


async def wait_until_ready(operator: Operator) -> None:
    """Wait until an operator's workers have started."""

    async def look() -> bool:
        return operator.is_ready()

    await eventually(look, bool, TIMEOUT_SECONDS, "the operator is ready")


async def wait_until_quiet(operator: Operator) -> None:
    """Wait until no run is going on, and none has started for some seconds."""
    before = -1
    while (runs := len(operator.messages("Reconcile started"))) != before or operator.job_processes():
        before = runs
        await asyncio.sleep(QUIET_SECONDS)
