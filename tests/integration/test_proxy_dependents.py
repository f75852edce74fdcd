"""Dependents of an operator's runs: which are watched, and what their changes start, in and beyond the namespace."""

import copy
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from rolecall.kube.errors import KubeError, NotFoundError
from rolecall.kube.metadata import owner_references_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.integration.shared import Role, Shared, Things
from tests.support.things import DEFINITION, write_project
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, always, eventually

NAMESPACE = GVK("", "v1", "Namespace")
CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")
DEFINITIONS = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
QUIET_SECONDS = 3.0

BEYOND = """
- name: Make what lies elsewhere
  kubernetes.core.k8s:
    definition: "{{ item }}"
  loop:
    - apiVersion: v1
      kind: ConfigMap
      metadata: {name: far, namespace: "{{ elsewhere }}"}
      data: {wanted: "yes"}
    - apiVersion: rbac.authorization.k8s.io/v1
      kind: ClusterRole
      metadata: {name: "{{ elsewhere }}", labels: {wanted: "yes"}}
      rules: []
"""


@pytest.fixture
async def elsewhere(world: World) -> AsyncIterator[World]:
    """Yield another namespace."""
    name = f"{world.namespace}-2"
    await world.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield World(world.client, name)
    await world.client.delete(NAMESPACE, ObjectKey("", name))
    with suppress(NotFoundError):
        await world.client.delete(CLUSTER_ROLE, ObjectKey("", name))


SHARED = Shared(
    {
        "blind": Role(BEYOND, 'blacklist: [{group: "", version: v1, kind: ConfigMap}]'),
    }
)


async def test_dependents_that_nobody_wants_to_watch_start_nothing(elsewhere: World, things: Things) -> None:
    """The blacklist keeps the ConfigMaps out, and without the key cluster-scoped dependents."""
    thing = things["blind"]
    await thing.create({"elsewhere": elsewhere.namespace})
    await thing.succeeds()
    await elsewhere.delete(CONFIG_MAP, "far")
    await elsewhere.client.delete(CLUSTER_ROLE, cluster_key(elsewhere))

    async def runs() -> int:
        return thing.runs()

    await always(runs, lambda count: count == 1, QUIET_SECONDS, "a dependent that is not watched started a run")
    assert len(things.operator.messages("Not watching a kind of dependents")) == 2


def cluster_key(elsewhere: World) -> ObjectKey:
    return ObjectKey("", elsewhere.namespace)


async def made(world: World, obj: RawObject) -> bool:
    """Make an object as soon as its kind is served."""
    try:
        await world.client.create(obj)
    except KubeError:
        return False
    return True


LOCAL = """
- name: Make what lies in some namespace
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: local, namespace: "{{ _test_rolecall_dev_town_spec.namespace }}"}
      data: {wanted: "yes"}
"""


async def test_a_cluster_scoped_kind_that_is_installed_later_is_woken_by_its_dependents(
    world: World, thing_operator: Operator
) -> None:
    directory = thing_operator.directory
    write_project(directory, LOCAL)
    entries = (directory / "watches.yaml").read_text().replace("kind: Thing", "kind: Town")
    (directory / "watches.yaml").write_text(entries)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    definition = copy.deepcopy(DEFINITION)
    definition["metadata"]["name"] = "towns.test.rolecall.dev"
    names = {"kind": "Town", "plural": "towns", "singular": "town"}
    definition["spec"] |= {"names": names, "scope": "Cluster"}
    await world.client.create(definition)
    try:
        town: RawObject = {"apiVersion": "test.rolecall.dev/v1", "kind": "Town", "metadata": {"name": "x"}}
        town["spec"] = {"namespace": world.namespace}
        await eventually(lambda: made(world, town), bool, TIMEOUT_SECONDS, "the kind is installed")
        local = await world.wait_for(CONFIG_MAP, "local", bool)
        assert [(owner.kind, owner.name) for owner in owner_references_of(local)] == [("Town", "x")]
        await world.delete(CONFIG_MAP, "local")
        await world.wait_for(CONFIG_MAP, "local", bool)
    finally:
        await world.client.delete(DEFINITIONS, ObjectKey("", "towns.test.rolecall.dev"))
