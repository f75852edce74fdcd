"""Foo, the sample-controller: the article's own object, with its two mistakes fixed, on a real control plane."""

import pytest

from rolecall.kube.errors import InvalidError
from rolecall.kube.metadata import metadata_of, owner_references_of, uid_of
from rolecall.kube.references import RawObject
from tests.integration.operators import Operator
from tests.support.world import DEPLOYMENT, EVENT, FOO, TIMEOUT_SECONDS, World, condition, eventually, is_true

pytestmark = pytest.mark.core

FOO_MANIFEST = """
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: foos.samplecontroller.k8s.io}
spec: {deploymentName: foo-deployment, replicas: 2}
"""
NAME = "foos.samplecontroller.k8s.io"

FOREIGN = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: foo-deployment}
spec:
  replicas: 1
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec:
      containers: [{name: other, image: "other:1"}]
"""


async def wait_for_replicas(world: World, available: int) -> RawObject:
    """Wait until the Foo's status reports this number of available replicas."""

    def holds(foo: RawObject) -> bool:
        return is_true(foo, "Successful") and bool(foo["status"].get("availableReplicas") == available)

    return await world.wait_for(FOO, NAME, holds)


async def events(world: World, reason: str) -> list[RawObject]:
    """Return the Foo's events with a reason."""
    return [
        event
        for event in await world.objects(EVENT)
        if event.get("reason") == reason and event["involvedObject"]["name"] == NAME
    ]


async def test_makes_its_deployment_and_keeps_it(world: World, running: Operator) -> None:
    """Labels, owner, and image match the article. Drift is repaired, a change is applied, the status is accurate."""
    (foo,) = await world.create(FOO_MANIFEST)
    deployment = await world.wait_for(DEPLOYMENT, "foo-deployment", bool)
    assert metadata_of(deployment)["labels"] == {"app": "nginx", "controller": NAME}
    assert [(owner.uid, owner.controller) for owner in owner_references_of(deployment)] == [(uid_of(foo), True)]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:latest"
    await wait_for_replicas(world, 2)
    (event, *_) = await eventually(lambda: events(world, "Synced"), bool, TIMEOUT_SECONDS, "the event Synced")
    assert (event["type"], event["message"]) == ("Normal", "Foo synced successfully")

    await world.patch(DEPLOYMENT, "foo-deployment", {"spec": {"replicas": 5}})

    def is_repaired(obj: RawObject) -> bool:
        return bool(obj["spec"]["replicas"] == 2 and metadata_of(obj)["generation"] >= 3)

    await world.wait_for(DEPLOYMENT, "foo-deployment", is_repaired)

    await world.patch(FOO, NAME, {"spec": {"replicas": 3}})
    await world.wait_for(DEPLOYMENT, "foo-deployment", lambda obj: obj["spec"]["replicas"] == 3)
    await wait_for_replicas(world, 3)
    assert running.messages("Task failed", namespace=world.namespace) == []


async def test_respects_a_foreign_deployment_and_recovers_when_it_goes(world: World, running: Operator) -> None:
    """A Deployment of another owner is reported and not changed; after its deletion, the Foo continues immediately."""
    await world.create(FOREIGN)
    foreign = await world.wait_for(DEPLOYMENT, "foo-deployment", lambda obj: obj.get("status"))
    await world.create(FOO_MANIFEST)
    message = 'Resource "foo-deployment" already exists and is not managed by Foo'

    def has_failed(foo: RawObject) -> bool:
        return is_true(foo, "Failure") and message in condition(foo, "Failure")["message"]

    await world.wait_for(FOO, NAME, has_failed)
    (event, *_) = await eventually(
        lambda: events(world, "ErrResourceExists"), bool, TIMEOUT_SECONDS, "the Warning event"
    )
    assert (event["type"], event["message"]) == ("Warning", message)
    assert running.runs("Foo", NAME, namespace=world.namespace) >= 1

    async def runs() -> int:
        return running.runs("Foo", NAME, namespace=world.namespace)

    await eventually(runs, lambda count: count >= 5, TIMEOUT_SECONDS, "several retries with back-off")
    untouched = await world.get(DEPLOYMENT, "foo-deployment")
    assert untouched["spec"] == foreign["spec"]
    assert owner_references_of(untouched) == ()
    await world.delete(DEPLOYMENT, "foo-deployment")

    def is_ours(obj: RawObject) -> bool:
        return bool(owner_references_of(obj))

    async def causes() -> list[str]:
        lines = running.messages("Reconcile started", kind="Foo", namespace=world.namespace)
        return [cause for line in lines for cause in line["causes"]]

    def is_woken_by_its_end(found: list[str]) -> bool:
        return any("foo-deployment" in cause and "deleted" in cause for cause in found)

    await world.wait_for(DEPLOYMENT, "foo-deployment", is_ours)
    await eventually(causes, is_woken_by_its_end, TIMEOUT_SECONDS, "the end of the Deployment wakes the Foo")
    foo = await wait_for_replicas(world, 2)
    assert condition(foo, "Failure")["status"] == "False"


async def test_refuses_an_empty_name(world: World) -> None:
    """The schema names the field, so no run is spent on it."""
    with pytest.raises(InvalidError, match=r"spec\.deploymentName"):
        await world.create(FOO_MANIFEST.replace("foo-deployment", '""'))
