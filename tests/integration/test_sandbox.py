"""A sandbox has the objects of the source as they are there, and its controllers don't change them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rolecall.kube.client import Client
from rolecall.kube.metadata import is_being_deleted, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.request_info import parse
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan.sandbox import Sandbox
from rolecall.workbench.plan.sandbox_import import Importer
from rolecall.workbench.plan.sandbox_sources import LiveSource, SourceError
from rolecall.workbench.plan.sandbox_store import DEFINITION_KIND, StoredObject
from tests.integration.sandboxes import DEPLOYMENT_OF_TWO, reader_kubeconfig, sandbox, sandbox_plane
from tests.support.things import THING
from tests.support.world import CONFIG_MAP, DEPLOYMENT, POD, REPLICA_SET, World, names

__all__ = ["reader_kubeconfig", "sandbox", "sandbox_plane"]

ROUNDS, IMPORTED = 8, 99
ANOTHER = DEPLOYMENT_OF_TWO.replace("web", "other").replace("replicas: 2", "replicas: 1")


def unversioned(obj: RawObject) -> RawObject:
    """Return an object without its resource version, which belongs to its store."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}


async def is_available(world: World, name: str) -> None:
    await world.wait_for(DEPLOYMENT, name, lambda obj: (obj.get("status") or {}).get("availableReplicas"))


async def ask(importer: Importer, method: str, target: str, name: str = "") -> None:
    """Import the objects of a request."""
    await importer.before(parse(method, target), target.partition("?")[2], name)


@pytest.fixture
async def importer(sandbox: Sandbox, reader_kubeconfig: Path) -> AsyncIterator[Importer]:
    async with await Client.connect(str(reader_kubeconfig)) as client:
        yield sandbox.importer(LiveSource(client))


async def test_imported_object_keeps_uid_status_and_managed_fields(
    importer: Importer, sandbox: Sandbox, world: World
) -> None:
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: one, labels: {a: b}}, data: {c: d}}")
    await ask(importer, "GET", f"/api/v1/namespaces/{world.namespace}/configmaps/one")

    assert unversioned(await sandbox.client.get(CONFIG_MAP, world.key("one"))) == unversioned(
        await world.get(CONFIG_MAP, "one")
    )


async def test_deployment_comes_with_its_pods_and_keeps_them(
    importer: Importer, sandbox: Sandbox, world: World
) -> None:
    await world.create(DEPLOYMENT_OF_TWO)
    await is_available(world, "web")
    await ask(importer, "GET", f"/apis/apps/v1/namespaces/{world.namespace}/deployments/web")
    there = World(sandbox.client, world.namespace)
    before = {uid_of(pod) for pod in await world.pods(app="web")}

    await sandbox.controllers.need()
    await there.create(ANOTHER)
    await is_available(there, "other")  # by now every controller has looked at everything

    assert {uid_of(pod) for pod in await there.pods(app="web")} == before
    assert names(await there.objects(REPLICA_SET))[1:] == names(await world.objects(REPLICA_SET))


async def test_imported_deployment_is_scaled_in_the_sandbox(importer: Importer, sandbox: Sandbox, world: World) -> None:
    await world.create(DEPLOYMENT_OF_TWO)
    await is_available(world, "web")
    there = World(sandbox.client, world.namespace)
    target = f"/apis/apps/v1/namespaces/{world.namespace}/deployments/web"
    await ask(importer, "PATCH", target)
    before = set(names(await world.pods(app="web")))
    await there.patch(DEPLOYMENT, "web", {"spec": {"replicas": 3}})

    def is_scaled(obj: RawObject) -> bool:
        return bool(obj["status"].get("availableReplicas") == 3)

    await there.wait_for(DEPLOYMENT, "web", is_scaled)
    assert before < set(names(await there.pods(app="web")))
    assert len(await world.pods(app="web")) == 2


async def test_workload_imported_while_controllers_run_keeps_its_pods(
    importer: Importer, sandbox: Sandbox, world: World
) -> None:
    await sandbox.controllers.need()
    await world.create(DEPLOYMENT_OF_TWO)
    await is_available(world, "web")
    await ask(importer, "GET", f"/api/v1/namespaces/{world.namespace}/pods?labelSelector=app%3Dweb")
    there = World(sandbox.client, world.namespace)
    await there.create(ANOTHER)
    await is_available(there, "other")

    assert {uid_of(pod) for pod in await there.pods(app="web")} == {uid_of(pod) for pod in await world.pods(app="web")}


async def test_object_deleted_in_the_sandbox_is_not_imported_again(
    importer: Importer, sandbox: Sandbox, world: World
) -> None:
    for name in ("one", "two"):
        await world.create(f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{a: b}}}}}}")
    target = f"/api/v1/namespaces/{world.namespace}/configmaps"
    await ask(importer, "DELETE", f"{target}/one")
    await sandbox.client.delete(CONFIG_MAP, world.key("one"))
    await ask(importer, "GET", f"{target}?labelSelector=a%3Db")

    there = World(sandbox.client, world.namespace)
    assert names([each for each in await there.objects(CONFIG_MAP) if "labels" in each["metadata"]]) == ["two"]


async def test_custom_object_comes_with_definition_and_owner(
    importer: Importer, sandbox: Sandbox, world: World
) -> None:
    [owner] = await world.create("{apiVersion: test.rolecall.dev/v1, kind: Thing, metadata: {name: one}}")
    reference = {"apiVersion": THING.api_version, "kind": "Thing", "name": "one", "uid": uid_of(owner)}
    await world.client.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "owned", "namespace": world.namespace, "ownerReferences": [reference]},
        }
    )
    await ask(importer, "GET", f"/api/v1/namespaces/{world.namespace}/configmaps/owned")

    assert uid_of(await sandbox.client.get(THING, world.key("one"))) == uid_of(owner)


async def test_object_with_finalizer_is_being_deleted_in_the_sandbox(
    importer: Importer, sandbox: Sandbox, world: World
) -> None:
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: one, finalizers: [example.com/f]}}")
    await world.delete(CONFIG_MAP, "one")
    await ask(importer, "GET", f"/api/v1/namespaces/{world.namespace}/configmaps/one")

    assert is_being_deleted(await sandbox.client.get(CONFIG_MAP, world.key("one")))
    await world.patch(CONFIG_MAP, "one", {"metadata": {"finalizers": None}})


async def test_kind_of_the_source_is_served_before_its_objects(importer: Importer, sandbox: Sandbox) -> None:
    await importer.install(THING.group)

    assert (await sandbox.client.resource(THING)).plural == "things"


async def test_list_after_an_import_is_complete(importer: Importer, sandbox: Sandbox) -> None:
    """The API server answers it from a cache, which follows etcd revision by revision."""
    await importer.install(THING.group)
    resource = await sandbox.client.resource(THING)
    for _ in range(ROUNDS):
        objects = [{"metadata": {"name": f"thing-{each}", "namespace": "default"}} for each in range(IMPORTED)]
        await sandbox.store.put(StoredObject(resource, obj, is_custom=True) for obj in objects)
        assert len([each async for page, _ in sandbox.client.list_pages(THING, "default") for each in page]) == IMPORTED
        await sandbox.forget()


async def test_forbidden_kind_is_reported(sandbox: Sandbox, world: World, powerless_kubeconfig: Path) -> None:
    async with await Client.connect(str(powerless_kubeconfig)) as client:
        importer = sandbox.importer(LiveSource(client))
        with pytest.raises(SourceError, match=r"configmaps .*one cannot be read: .*needs permission to read it"):
            await ask(importer, "GET", f"/api/v1/namespaces/{world.namespace}/configmaps/one")


@pytest.fixture
async def powerless_kubeconfig(world: World, defined: ControlPlane) -> Path:
    await world.create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: nobody}}")
    return await asyncio.to_thread(defined.service_account_kubeconfig, world.namespace, "nobody")


async def test_sandbox_is_empty_after_forget(importer: Importer, sandbox: Sandbox, world: World) -> None:
    await world.create(DEPLOYMENT_OF_TWO)
    await is_available(world, "web")
    await ask(importer, "GET", f"/apis/apps/v1/namespaces/{world.namespace}/deployments/web")
    await sandbox.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made"}})
    await sandbox.forget()

    for gvk in (DEPLOYMENT, REPLICA_SET, POD):
        assert [each async for page, _ in sandbox.client.list_pages(gvk) for each in page] == []
    namespaces = [each async for page, _ in sandbox.client.list_pages(GVK("", "v1", "Namespace")) for each in page]
    assert not {"made", world.namespace} & set(names(namespaces))
    assert ObjectKey("", "default") in {ObjectKey.of_object(each) for each in namespaces}


async def test_forget_removes_created_definitions_and_keeps_imported_ones(importer: Importer, sandbox: Sandbox) -> None:
    """Creating a definition takes longer than a replay, but a replay must not find one that another has created."""
    await importer.install(THING.group)
    definition = await sandbox.client.get(DEFINITION_KIND, ObjectKey("", f"things.{THING.group}"))
    spec = {**definition["spec"], "group": "made.example.com"}
    made = {**definition, "metadata": {"name": "things.made.example.com"}, "spec": spec}
    await sandbox.client.create(made)
    await sandbox.forget()

    found = await defined_in(sandbox)
    assert f"things.{THING.group}" in found
    assert "things.made.example.com" not in found


async def test_list_of_definitions_has_every_group_of_the_source(importer: Importer, sandbox: Sandbox) -> None:
    await ask(importer, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")

    assert {f"things.{THING.group}", "foos.samplecontroller.k8s.io"} <= set(await defined_in(sandbox))


async def defined_in(sandbox: Sandbox) -> list[str]:
    return names([each async for page, _ in sandbox.client.list_pages(DEFINITION_KIND) for each in page])


UNUSUAL_KEYS = """
apiVersion: v1
kind: Service
metadata: {name: one}
spec: {selector: {app: none}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: separate}
subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]
---
apiVersion: v1
kind: ReplicationController
metadata: {name: one}
spec:
  replicas: 0
  selector: {app: none}
  template: {metadata: {labels: {app: none}}, spec: {containers: [{name: a, image: a}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: one}
spec: {defaultBackend: {service: {name: one, port: {number: 80}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: one}
data: {password: aHVudGVyMg==}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: one}
spec: {minAvailable: 1, selector: {matchLabels: {app: none}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: one}
spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}
"""


async def test_kinds_with_unusual_etcd_keys_are_imported(importer: Importer, sandbox: Sandbox, world: World) -> None:
    for made in await world.create(UNUSUAL_KEYS):
        gvk, key = GVK.of_object(made), ObjectKey.of_object(made)
        await importer.import_object(gvk, key)
        assert uid_of(await sandbox.client.get(gvk, key)) == uid_of(made), gvk


async def test_cluster_scoped_object_is_imported(importer: Importer, sandbox: Sandbox, world: World) -> None:
    namespace = GVK("", "v1", "Namespace")
    await importer.import_object(namespace, ObjectKey("", world.namespace))

    there = await sandbox.client.get(namespace, ObjectKey("", world.namespace))
    assert uid_of(there) == uid_of(await world.client.get(namespace, ObjectKey("", world.namespace)))
