"""PodScaler with the article's own objects, on a real control plane with real Ansible."""

import pytest

from rolecall.kube.errors import ApiError, InvalidError
from rolecall.kube.metadata import metadata_of, owner_references_of, uid_of
from rolecall.kube.references import RawObject
from tests.integration.operators import Operator
from tests.support.world import (
    DEPLOYMENT,
    POD,
    POD_SCALER,
    TIMEOUT_SECONDS,
    World,
    always,
    eventually,
    is_true,
    names,
)

pytestmark = pytest.mark.core

"""Timeout for a few runs on a busy machine. Tests of a duration have their own limit."""

POD_SCALER_MANIFEST = """
apiVersion: scaling.example.com/v1
kind: PodScaler
metadata: {name: example-podscaler}
spec:
  count: 4
  selector: {app: nginx}
"""


def deployment(replicas: int) -> str:
    """Return the article's Deployment."""
    return f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: nginx, labels: {{app: nginx}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: nginx}}}}
  template:
    metadata: {{labels: {{app: nginx}}}}
    spec:
      containers: [{{name: nginx, image: "nginx:latest"}}]
"""


def scaled(pods: list[RawObject]) -> list[str]:
    """Return the names of the pods that a PodScaler made."""
    return [name for name in names(pods) if name.startswith("scaled-pod-")]


async def wait_for_pods(world: World, total: int, made: int, within: float = TIMEOUT_SECONDS) -> list[RawObject]:
    """Wait for a number of pods, so many of them made by the PodScaler."""

    def holds(pods: list[RawObject]) -> bool:
        return len(pods) == total and len(scaled(pods)) == made

    return await eventually(lambda: world.pods(app="nginx"), holds, within, f"{total} pods, {made} of them scaled")


async def wait_for_status(world: World, **fields: object) -> RawObject:
    """Wait until the PodScaler succeeded and its status has these fields."""

    def holds(obj: RawObject) -> bool:
        return is_true(obj, "Successful") and fields.items() <= obj["status"].items()

    return await world.wait_for(POD_SCALER, "example-podscaler", holds)


async def test_keeps_the_number_of_pods_through_the_article(world: World, running: Operator) -> None:
    """One Deployment pod makes three; without the Deployment four; one deleted by hand is replaced by the trigger."""
    await world.create(deployment(1))
    await eventually(
        lambda: world.pods(app="nginx"), lambda pods: len(pods) == 1, TIMEOUT_SECONDS, "the Deployment's pod"
    )
    (scaler,) = await world.create(POD_SCALER_MANIFEST)
    pods = await wait_for_pods(world, total=4, made=3)
    made = [pod for pod in pods if names([pod])[0].startswith("scaled-pod-")]
    assert all(metadata_of(pod)["labels"] == {"app": "nginx"} for pod in made)
    assert all(pod["spec"]["containers"][0]["image"] == "nginx:latest" for pod in made)
    owners = [owner for pod in made for owner in owner_references_of(pod)]
    assert [(owner.uid, owner.controller) for owner in owners] == [(uid_of(scaler), True)] * 3
    await wait_for_status(world, pods=4, ready=4, surplus=0, selector="app=nginx")

    await world.delete(DEPLOYMENT, "nginx")
    pods = await wait_for_pods(world, total=4, made=4)

    victim = scaled(pods)[0]
    await world.delete(POD, victim)

    def is_replaced(pods: list[RawObject]) -> bool:
        return len(pods) == 4 and victim not in names(pods)

    await eventually(lambda: world.pods(app="nginx"), is_replaced, TIMEOUT_SECONDS, "the deleted pod is replaced")

    async def causes() -> str:
        return str([line["causes"] for line in running.messages("Reconcile started", namespace=world.namespace)])

    # A run that another cause had started may have replaced it.
    deletion = f"Pod {world.namespace}/{victim}"
    await eventually(causes, lambda told: deletion in told, TIMEOUT_SECONDS, "its deletion starts a run")


async def test_gives_way_to_a_deployment_and_does_not_fight_with_it(world: World, running: Operator) -> None:
    """A Deployment of three next to four scaled pods ends at four, its own pods untouched, and then nothing moves."""
    await world.create(POD_SCALER_MANIFEST)
    await wait_for_pods(world, total=4, made=4)
    await world.create(deployment(3))
    seen: set[str] = set()

    async def look() -> list[RawObject]:
        pods = await world.pods(app="nginx")
        seen.update(name for name in names(pods) if not name.startswith("scaled-pod-"))
        return pods

    def is_settled(pods: list[RawObject]) -> bool:
        return len(pods) == 4 and len(scaled(pods)) == 1 and len(seen) == 3

    settled = names(await eventually(look, is_settled, TIMEOUT_SECONDS, "four pods, three of them the Deployment's"))
    await always(look, lambda pods: names(pods) == settled, 30, "no more pods are created or deleted")
    assert len(seen) == 3, "a pod of the Deployment was replaced, so one had been deleted"
    assert running.messages("Task failed", namespace=world.namespace) == []


async def test_leaves_pods_alone_that_a_controller_would_bring_back(world: World, running: Operator) -> None:
    """Six pods of a Deployment against a count of four: all stay, none is added, and the status says two too many."""
    await world.create(deployment(6))
    before = await wait_for_pods(world, total=6, made=0)
    await world.create(POD_SCALER_MANIFEST)
    await wait_for_status(world, pods=6, surplus=2)
    assert names(await world.pods(app="nginx")) == names(before)
    assert running.messages("Task failed", namespace=world.namespace) == []


@pytest.mark.usefixtures("running")
async def test_follows_the_scale_subresource(world: World) -> None:
    """`kubectl scale --replicas=2` sets the count."""
    await world.create(POD_SCALER_MANIFEST)
    await wait_for_pods(world, total=4, made=4)
    await world.patch(POD_SCALER, "example-podscaler", {"spec": {"replicas": 2}}, subresource="scale")
    await wait_for_pods(world, total=2, made=2)
    assert (await world.get(POD_SCALER, "example-podscaler"))["spec"]["count"] == 2


@pytest.mark.usefixtures("running")
async def test_keeps_the_spelling_of_label_keys(world: World) -> None:
    """Keys of a selector are data: no snake case, slashes and dots stay."""
    await world.create("""
apiVersion: scaling.example.com/v1
kind: PodScaler
metadata: {name: example-podscaler}
spec:
  count: 1
  selector: {tierName: Web, app.kubernetes.io/name: x}
""")
    await wait_for_status(world, pods=1)
    (pod,) = await world.pods()
    assert metadata_of(pod)["labels"] == {"tierName": "Web", "app.kubernetes.io/name": "x"}


async def test_never_evaluates_an_expression_in_a_selector(world: World) -> None:
    """An expression is no label value, so the API server rejects it before a role could see it."""
    manifest = POD_SCALER_MANIFEST.replace("{app: nginx}", "{app: \"{{ lookup('pipe', 'id') }}\"}")
    with pytest.raises(InvalidError, match="selector"):
        await world.create(manifest)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("count: 4", "count: -1", "spec.count"),
        ("count: 4", "count: four", "spec.count"),
        ("selector: {app: nginx}", "selector: {}", "spec.selector"),
        ("selector: {app: nginx}", "selector: {'a b': nginx}", "spec.selector"),
    ],
)
async def test_api_server_rejects_invalid_specs(world: World, old: str, new: str, field: str) -> None:
    """A wrong spec never reaches the operator, and the message names the field."""
    with pytest.raises(ApiError, match=field.replace(".", r"\.")):
        await world.create(POD_SCALER_MANIFEST.replace(old, new))


async def test_api_server_rejects_change_of_selector(world: World) -> None:
    """The pods with the previous labels would remain."""
    await world.create(POD_SCALER_MANIFEST)
    with pytest.raises(InvalidError, match=r"spec\.selector.*can't be changed"):
        await world.patch(POD_SCALER, "example-podscaler", {"spec": {"selector": {"app": "web"}}})
    await world.patch(POD_SCALER, "example-podscaler", {"spec": {"count": 2}})


async def test_two_with_the_same_selector_do_not_fight(world: World, running: Operator) -> None:
    """The second one's count is met by the first one's pods, which it never deletes."""
    await world.create(POD_SCALER_MANIFEST)
    before = await wait_for_pods(world, total=4, made=4)
    await world.create(POD_SCALER_MANIFEST.replace("example-podscaler", "second").replace("count: 4", "count: 2"))
    second = await world.wait_for(POD_SCALER, "second", lambda obj: is_true(obj, "Successful"))
    assert second["status"]["surplus"] == 2

    async def look() -> list[str]:
        return names(await world.pods(app="nginx"))

    await always(look, lambda found: found == names(before), 20, "neither makes or deletes pods")
    assert running.messages("Task failed", namespace=world.namespace) == []


@pytest.mark.usefixtures("running")
async def test_sees_only_the_pods_of_its_own_namespace(world: World) -> None:
    """Pods with the same labels elsewhere belong to others."""
    elsewhere = World(world.client, f"{world.namespace}-b")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere.namespace}}
    await world.client.create(namespace)
    await elsewhere.create(deployment(2))
    await eventually(
        lambda: elsewhere.pods(app="nginx"), lambda pods: len(pods) == 2, TIMEOUT_SECONDS, "pods elsewhere"
    )
    await world.create(POD_SCALER_MANIFEST)
    await wait_for_pods(world, total=4, made=4)
    assert len(await elsewhere.pods(app="nginx")) == 2
