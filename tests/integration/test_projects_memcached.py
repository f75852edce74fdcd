"""A project of the Operator SDK's usual shape, unchanged, run by the program under the Go runner's name."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from rolecall.kube.client import Client
from rolecall.kube.metadata import has_finalizer, metadata_of, uid_of
from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.conftest import wait_until_quiet, wait_until_ready
from tests.integration.example_projects import MEMCACHED as PROJECT
from tests.integration.metrics import read
from tests.integration.operators import Operator
from tests.support.world import CONFIG_MAP, DEPLOYMENT, TIMEOUT_SECONDS, World, eventually, is_true

MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")
FOO = GVK("cache.example.com", "v1alpha1", "Foo")
MEMFIN = GVK("cache.example.com", "v1alpha1", "Memfin")
SERVICE = GVK("", "v1", "Service")
SECRET = GVK("", "v1", "Secret")
CREATED = (
    'resource_created_at_seconds{group="cache.example.com",kind="Memcached",name="memcached-sample",'
    'namespace="memcached-one",version="v1alpha1"}'
)
ONE, OTHER, FOREIGN = "memcached-one", "memcached-other", "memcached-foreign"


@pytest.fixture(scope="module")
def memcached(defined: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Yield the project's operator, which serves two of the three namespaces."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (ONE, OTHER, FOREIGN)
    ]
    Applier(defined.kubeconfig).apply(namespaces)
    operator = PROJECT.operator(defined, tmp_path_factory.mktemp("memcached"), f"{ONE}, {OTHER}")
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture
async def client(memcached: Operator, defined: ControlPlane) -> AsyncIterator[Client]:
    """Yield an administrator's client, once the operator works."""
    await wait_until_ready(memcached)
    async with await Client.connect(str(defined.kubeconfig)) as client:
        yield client


@pytest.fixture
def one(client: Client) -> World:
    return World(client, ONE)


@pytest.fixture
def other(client: Client) -> World:
    return World(client, OTHER)


async def test_a_role_makes_what_the_object_asks_for_and_keeps_it_so(one: World, memcached: Operator) -> None:
    await one.create(PROJECT.sample("cache_v1alpha1_memcached"))
    primary = await one.wait_for(MEMCACHED, "memcached-sample", has_succeeded)
    assert (primary["status"]["test"], primary["status"]["allowed"]) == ("hello world", True)

    deployment = await one.wait_for(DEPLOYMENT, "memcached-sample-memcached", is_available)
    service = await one.get(SERVICE, "memcached-sample")
    for dependent in (deployment, service):
        assert metadata_of(dependent)["labels"] == {"app": "memcached"}
        assert [owner["uid"] for owner in metadata_of(dependent)["ownerReferences"]] == [uid_of(primary)]

    await one.patch(DEPLOYMENT, "memcached-sample-memcached", {"spec": {"replicas": 2}})
    await one.wait_for(DEPLOYMENT, "memcached-sample-memcached", lambda obj: obj["spec"]["replicas"] == 1)

    await one.patch(MEMCACHED, "memcached-sample", {"spec": {"size": 2}})
    await one.wait_for(DEPLOYMENT, "memcached-sample-memcached", lambda obj: obj["spec"]["replicas"] == 2)
    primary = await one.wait_for(MEMCACHED, "memcached-sample", has_seen_its_generation)
    assert primary["status"]["test"] == "hello world"

    async with aiohttp.ClientSession() as session:
        metrics = await read(session, memcached)
    assert metrics["memcached_runs"] >= 1
    assert CREATED in metrics

    await wait_until_quiet(memcached)  # a run that its object's deletion overtakes would fail, and rightly so
    await one.delete(MEMCACHED, "memcached-sample")
    await one.wait_until_gone(DEPLOYMENT, "memcached-sample-memcached", TIMEOUT_SECONDS)
    log = memcached.log_file.read_text()
    assert memcached.messages("Ansible-runner exited successfully")
    assert "Gathering Facts" not in log
    assert "failed=1" not in log


async def test_every_namespace_of_the_list_is_served_and_no_other(other: World) -> None:
    foreign = World(other.client, FOREIGN)
    await foreign.create(PROJECT.sample("cache_v1alpha1_foo"))
    await other.create(PROJECT.sample("cache_v1alpha1_foo"))
    await other.wait_for(FOO, "foo-sample", has_succeeded)
    assert "status" not in await foreign.get(FOO, "foo-sample")


async def test_a_playbook_gets_the_spec_converted_and_as_it_is(one: World) -> None:
    await one.create(PROJECT.sample("cache_v1alpha1_foo"))
    await one.wait_for(FOO, "foo-sample", has_succeeded)
    kept = await one.get(CONFIG_MAP, "foo-sample")
    assert kept["data"] == {"converted": "kept", "raw": "kept", "generation": "1"}


async def test_a_kind_of_the_blacklist_wakes_nobody(other: World, memcached: Operator) -> None:
    await other.create(PROJECT.sample("cache_v1alpha1_memcached"))
    await other.wait_for(MEMCACHED, "memcached-sample", has_succeeded)
    await other.delete(CONFIG_MAP, "test-blacklist-watches")
    await other.delete(SERVICE, "memcached-sample")
    await other.wait_for(SERVICE, "memcached-sample", bool)
    await other.wait_for(CONFIG_MAP, "test-blacklist-watches", bool)

    async def look() -> list[str]:
        started = memcached.messages("Reconcile started", kind="Memcached", namespace=OTHER)
        return [cause for line in started for cause in line["causes"]]

    # A run that the Deployment's status has started may recreate both before that of the Service starts.
    causes = await eventually(
        look, lambda found: any("Service" in each for each in found), TIMEOUT_SECONDS, "a Service is a cause"
    )
    assert not any("ConfigMap" in cause for cause in causes), causes


async def test_the_role_of_the_finalizer_runs_before_the_object_goes(one: World) -> None:
    await one.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: deleteme}}")
    await one.create(PROJECT.sample("cache_v1alpha1_memfin"))
    memfin = await one.wait_for(MEMFIN, "memfin-sample", has_succeeded)
    assert has_finalizer(memfin, "cache.example.com/finalizer")
    await one.delete(MEMFIN, "memfin-sample")
    await one.wait_until_gone(MEMFIN, "memfin-sample", TIMEOUT_SECONDS)
    assert await one.find(CONFIG_MAP, "deleteme") is None


async def test_a_built_in_kind_without_spec_and_status_is_reconciled(one: World) -> None:
    await one.create("{apiVersion: v1, kind: Secret, metadata: {name: test-secret}, stringData: {word: quiet}}")
    await one.wait_for(SERVICE, "test-service", bool)
    assert "status" not in await one.get(SECRET, "test-secret")


def is_available(deployment: RawObject) -> bool:
    return bool(deployment.get("status", {}).get("availableReplicas") == 1)


def has_succeeded(obj: RawObject) -> bool:
    return is_true(obj, "Successful")


def has_seen_its_generation(obj: RawObject) -> bool:
    return has_succeeded(obj) and obj["status"].get("observedGeneration") == metadata_of(obj)["generation"]
