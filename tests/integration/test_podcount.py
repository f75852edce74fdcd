"""PodCount: the label ``pod-count`` is correct, and its write starts no run."""

import pytest

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from tests.integration.operators import Operator
from tests.support.world import POD, REPLICA_SET, TIMEOUT_SECONDS, World, eventually, names

pytestmark = pytest.mark.core

NAME = "example-replicaset"
MANIFEST = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: example-replicaset}
spec:
  replicas: 2
  selector: {matchLabels: {app: counted}}
  template:
    metadata: {labels: {app: counted}}
    spec:
      containers: [{name: nginx, image: "nginx:latest"}]
"""


async def wait_for_count(world: World, count: int) -> None:
    """Wait until the label says this number."""

    def holds(obj: RawObject) -> bool:
        return (metadata_of(obj).get("labels") or {}).get("pod-count") == str(count)

    await world.wait_for(REPLICA_SET, NAME, holds)


async def settled(operator: Operator, world: World) -> int:
    """Wait until no reconcile starts any longer, and return the number of reconciles."""
    seen: list[int] = []

    async def look() -> list[int]:
        started = operator.runs("ReplicaSet", NAME, namespace=world.namespace)
        finished = len(operator.messages("Reconcile succeeded", kind="ReplicaSet", namespace=world.namespace))
        seen.append(started if finished == started else -1)
        return seen

    def is_quiet(counts: list[int]) -> bool:
        return len(counts) > 50 and counts[-1] > 0 and len(set(counts[-50:])) == 1

    return (await eventually(look, is_quiet, TIMEOUT_SECONDS, "five quiet seconds"))[-1]


async def test_counts_the_pods_of_every_replica_set(world: World, running: Operator) -> None:
    """After creation, scaling up and down, and the deletion of a pod, the label has the number of pods."""
    await world.create(MANIFEST)
    await wait_for_count(world, 2)
    await world.patch(REPLICA_SET, NAME, {"spec": {"replicas": 4}})
    await wait_for_count(world, 4)
    await world.patch(REPLICA_SET, NAME, {"spec": {"replicas": 1}})
    await wait_for_count(world, 1)
    await world.patch(REPLICA_SET, NAME, {"spec": {"replicas": 0}})
    await wait_for_count(world, 0)
    assert running.messages("Task failed", namespace=world.namespace) == []


async def test_its_own_label_starts_no_run(world: World, running: Operator) -> None:
    """The write of the label is followed by nothing; a pod that goes is followed by a run."""
    await world.create(MANIFEST)
    await wait_for_count(world, 2)
    before = await settled(running, world)
    told = [
        text for line in running.messages("Reconcile started", namespace=world.namespace) for text in line["causes"]
    ]
    assert not [text for text in told if text.startswith("ReplicaSet") and ": " in text]
    victim = names(await world.pods(app="counted"))[0]
    await world.delete(POD, victim)
    await eventually(
        lambda: world.pods(app="counted"), lambda pods: victim not in names(pods), TIMEOUT_SECONDS, "it is gone"
    )

    async def runs() -> int:
        return running.runs("ReplicaSet", NAME, namespace=world.namespace)

    await eventually(runs, lambda count: count > before, TIMEOUT_SECONDS, "a run follows")
    await wait_for_count(world, 2)
