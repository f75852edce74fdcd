"""Tools that wait for an object: kstatus evaluates each of its versions, and kubectl and Helm wait for it.

Each version counts, because a watch records them from the creation on.
"""

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.reconcile.status import Status, without_ready_conditions
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.binaries import find_binaries
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import EVERY_NAMESPACE, Operator, copy_project
from tests.integration.songs import manifest, seeds, song
from tests.integration.test_foo import FOO_MANIFEST, FOREIGN
from tests.integration.test_foo import NAME as FOO_NAME
from tests.kstatus.judge import Judge
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import (
    DEPLOYMENT,
    FOO,
    HIKAWA,
    KIYOSHI,
    POD,
    POD_SCALER,
    REPLICA_SET,
    TIMEOUT_SECONDS,
    World,
    condition,
    eventually,
    is_true,
    names,
)

THREE = {"Ready", "Reconciling", "Stalled"}

POD_SCALER_MANIFEST = """
apiVersion: scaling.example.com/v1
kind: PodScaler
metadata: {name: scaler}
spec: {count: 2, selector: {tier: web}}
"""

WEB = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: nginx, image: "nginx:latest"}]
"""


# The four operators.


@pytest.fixture(scope="module")
def operator(account_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Yield an operator for this repository's watches.yaml, for which failures of a Foo are final soon."""
    directory = tmp_path_factory.mktemp("four")
    copy_project(directory, "watches.yaml", "roles", "ansible.cfg")
    watches = directory / "watches.yaml"
    watches.write_text(watches.read_text().replace("  role: foo\n", "  role: foo\n  stalledAfter: 2s\n"))
    operator = Operator(directory, account_kubeconfig, EVERY_NAMESPACE)
    operator.start()
    yield operator
    assert operator.stop() == 0


@asynccontextmanager
async def recording(world: World, gvk: GVK) -> AsyncIterator[list[RawObject]]:
    """Watch a kind in the meantime; yield the list of versions that fills."""
    seen: list[RawObject] = []
    started = [version async for _, version in world.client.list_pages(gvk, world.namespace)]

    async def listen() -> None:
        async for kind, obj in world.client.watch(gvk, world.namespace, started[-1], 600):
            if kind in ("ADDED", "MODIFIED"):
                seen.append(obj)

    task = asyncio.create_task(listen())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def seen_until(seen: list[RawObject], holds: Callable[[RawObject], object], what: str) -> None:
    """Wait until the watch has shown a version for which something holds."""

    async def look() -> RawObject:
        return seen[-1] if seen else {}

    await eventually(look, lambda obj: obj and holds(obj), TIMEOUT_SECONDS, what)


async def wait_with_kubectl(world: World, defined: ControlPlane, what: str, condition_type: str = "Ready") -> None:
    """Run ``kubectl wait``, which fails when the condition does not come."""
    process = await asyncio.create_subprocess_exec(
        str(find_binaries(print)["kubectl"]),
        *("--kubeconfig", str(defined.kubeconfig), "--namespace", world.namespace),
        *("wait", what, f"--for=condition={condition_type}", "--timeout=600s"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def story(judge: Judge, seen: list[RawObject]) -> list[str]:
    """Return kstatus' results for the versions, without repetitions."""
    return [word for word, _ in itertools.groupby(judge.words(seen))]


def assert_written_with_the_others(seen: list[RawObject]) -> None:
    """Assert that no version differs from the one before only in the three conditions."""
    rests = [(obj.get("spec"), metadata_of(obj).get("annotations"), _rest(obj)) for obj in seen]
    same = [number for number, (before, after) in enumerate(itertools.pairwise(rests)) if before == after]
    assert same == [], [seen[number + 1].get("status") for number in same]


def _rest(obj: RawObject) -> Status:
    return without_ready_conditions(obj.get("status") or {})


async def test_a_podscaler_is_current_only_once_its_pods_are_there(
    world: World, running: Operator, defined: ControlPlane, judge: Judge
) -> None:
    """The command returns only when the number is right, after the creation and after an edit."""
    assert running.is_ready()
    async with recording(world, POD_SCALER) as seen:
        await world.create(POD_SCALER_MANIFEST)
        await wait_with_kubectl(world, defined, "podscaler/scaler")
        assert len([pod for pod in await world.pods(tier="web") if is_true(pod, "Ready")]) == 2
        await world.patch(POD_SCALER, "scaler", {"spec": {"count": 4}})
        await wait_with_kubectl(world, defined, "podscaler/scaler")
        assert len([pod for pod in await world.pods(tier="web") if is_true(pod, "Ready")]) == 4
        await seen_until(seen, lambda obj: obj["status"].get("ready") == 4, "all pods are ready")
    assert story(judge, seen) == ["InProgress", "Current", "InProgress", "Current"]
    assert_written_with_the_others(seen)


async def test_hikawa_is_current_only_after_kiyoshi(
    world: World, running: Operator, defined: ControlPlane, judge: Judge
) -> None:
    """Each word is a success that is followed by another run; only the last one is the end."""
    assert running.is_ready()
    seed = next(seeds(6))
    async with recording(world, HIKAWA) as seen:
        await world.create(manifest("singer", seed, intervalMillis=100))
        await wait_with_kubectl(world, defined, "hikawa/singer")
        assert names(await world.objects(KIYOSHI)) == ["singer-kiyoshi"]
        await seen_until(seen, lambda obj: is_true(obj, "Ready"), "the end of the song")
    assert story(judge, seen) == ["InProgress", "Current"]
    first = next(obj for obj, word in zip(seen, judge.words(seen), strict=True) if word == "Current")
    assert (first["status"]["kiyoshied"], first["status"]["numZundokosSaid"]) == (True, len(song(seed)))
    assert_written_with_the_others(seen)


async def test_a_foo_that_cannot_have_its_deployment_has_failed_until_it_can(
    world: World, running: Operator, defined: ControlPlane, judge: Judge
) -> None:
    """The failure shows once a retry has not helped; without the foreign Deployment the Foo is finished."""
    assert running.is_ready()
    await world.create(FOREIGN)
    async with recording(world, FOO) as seen:
        await world.create(FOO_MANIFEST)
        await wait_with_kubectl(world, defined, f"foo.samplecontroller.k8s.io/{FOO_NAME}", "Stalled")
        stalled = await world.get(FOO, FOO_NAME)
        assert "is not managed by Foo" in condition(stalled, "Stalled")["message"]
        await world.delete(DEPLOYMENT, "foo-deployment")
        await wait_with_kubectl(world, defined, f"foo.samplecontroller.k8s.io/{FOO_NAME}")
        assert (await world.get(DEPLOYMENT, "foo-deployment"))["spec"]["replicas"] == 2
        await world.patch(FOO, FOO_NAME, {"spec": {"replicas": 3}})
        await wait_with_kubectl(world, defined, f"foo.samplecontroller.k8s.io/{FOO_NAME}")
        assert (await world.get(DEPLOYMENT, "foo-deployment"))["status"]["availableReplicas"] == 3
        await seen_until(seen, lambda obj: is_true(obj, "Ready"), "the success after the edit")
    assert story(judge, seen) == ["InProgress", "Failed", "InProgress", "Current", "InProgress", "Current"]
    assert_written_with_the_others(seen)


@pytest.mark.parametrize(
    "case", [(POD_SCALER, POD_SCALER_MANIFEST, {"tier": "web"}), (FOO, FOO_MANIFEST, {"controller": FOO_NAME})]
)
async def test_object_is_ready_when_its_pods_are_and_not_before(
    world: World,
    running: Operator,
    defined: ControlPlane,
    judge: Judge,
    case: tuple[GVK, str, dict[str, str]],
) -> None:
    """The pods fit on no node, so they become ready when the test reports it instead of a kubelet."""
    gvk, text, labels = case
    assert running.is_ready()
    await world.create(NO_ROOM)
    async with recording(world, gvk) as seen:
        (name,) = names(await world.create(text))
        waiting = asyncio.create_task(wait_with_kubectl(world, defined, f"{gvk.kind}.{gvk.group}/{name}".lower()))
        first, second = await eventually(
            lambda: world.pods(**labels), lambda pods: len(pods) == 2, TIMEOUT_SECONDS, "two pods"
        )
        await report_pod(world, first, is_ready=True)
        # Successful is false during a further run.
        half = await world.wait_for(gvk, name, lambda obj: ready_pods(obj) == 1 and is_true(obj, "Successful"))
        assert ready_conditions(half) == UNREADY
        assert not waiting.done()
        await report_pod(world, second, is_ready=True)
        await waiting
        await report_pod(world, second, is_ready=False)
        await world.wait_for(gvk, name, lambda obj: ready_pods(obj) == 1)
        await seen_until(seen, lambda obj: ready_conditions(obj) == UNREADY, "the pod is not ready any more")
    assert story(judge, seen) == ["InProgress", "Current", "InProgress"]
    assert {ready_pods(obj) for obj in seen if is_true(obj, "Ready")} == {2}
    assert_written_with_the_others(seen)


NO_ROOM = """
apiVersion: v1
kind: LimitRange
metadata: {name: no-room}
spec: {limits: [{type: Container, default: {cpu: 10k}, defaultRequest: {cpu: 10k}}]}
"""
UNREADY = {"Ready": "False", "Reconciling": "True", "Stalled": "False", "reasons": ["NotReadyYet"]}


def ready_pods(obj: RawObject) -> int | None:
    """Return how many pods are ready by the status of a PodScaler or a Foo."""
    status = obj.get("status") or {}
    return status.get("ready", status.get("availableReplicas"))


def ready_conditions(obj: RawObject) -> dict[str, object]:
    """Return the status of each of the three conditions, and their reasons."""
    found = [condition(obj, kind) for kind in ("Ready", "Reconciling", "Stalled")]
    reasons = sorted({each.get("reason", "") for each in found})
    return {**{each.get("type", ""): each.get("status") for each in found}, "reasons": reasons}


async def report_pod(world: World, pod: RawObject, *, is_ready: bool) -> None:
    """Report whether a pod is ready, as a kubelet does."""
    conditions = [{"type": "Ready", "status": str(is_ready), "lastTransitionTime": "2026-01-01T12:00:00Z"}]
    await world.patch(POD, names([pod])[0], {"status": {"phase": "Running", "conditions": conditions}}, "status")


@pytest.mark.parametrize("drift", [{"metadata": {"labels": {"app": "other"}}}, {"spec": {"replicas": 5}}])
async def test_foo_is_ready_again_after_the_repair_of_its_deployment(
    world: World, running: Operator, drift: dict[str, object]
) -> None:
    """Only the Deployment's controller follows the repair."""
    assert running.is_ready()
    await world.create(FOO_MANIFEST)
    await world.wait_for(FOO, FOO_NAME, lambda obj: is_true(obj, "Ready"))

    async def finished() -> int:
        return len(running.messages("Reconcile succeeded", kind="Foo", namespace=world.namespace))

    before = await finished()
    await world.patch(DEPLOYMENT, "foo-deployment", drift)
    await world.wait_for(
        DEPLOYMENT,
        "foo-deployment",
        lambda obj: (metadata_of(obj)["labels"]["app"], obj["spec"]["replicas"]) == ("nginx", 2),
    )
    await eventually(finished, lambda count: count > before, TIMEOUT_SECONDS, "the end of the run that repaired it")
    await world.wait_for(FOO, FOO_NAME, lambda obj: is_true(obj, "Ready"))


async def test_a_replica_set_keeps_the_status_of_its_controller(world: World, running: Operator, judge: Judge) -> None:
    """Its status is not the operator's: kstatus goes by the replicas, and sees no failure."""
    assert running.is_ready()
    async with recording(world, REPLICA_SET) as seen:
        await world.create(WEB)
        await world.wait_for(
            REPLICA_SET,
            "web",
            lambda obj: (
                (metadata_of(obj).get("labels") or {}).get("pod-count") == "2" and obj["status"]["replicas"] == 2
            ),
        )
        await seen_until(seen, lambda obj: judge.words([obj]) == ["Current"], "the replicas are available")
    assert story(judge, seen) == ["InProgress", "Current"]
    assert all(condition(obj, kind) == {} for obj in seen for kind in THREE)


REPORTS_TEXTS = """
- name: Boom
  ansible.builtin.fail: {msg: no more coffee}
  when: size == 13
- name: Report
  ansible.builtin.set_stats:
    data:
      is_ready: "{{ size > 2 }}"
      reason: "{{ 'Enough' if size > 2 else 'TooSmall' }}"
      message: "{{ size }} of 3"
    aggregate: false
"""
READY_TEXTS = "ready: {value: $.stats.is_ready, reason: $.stats.reason, message: $.stats.message}"


async def test_ready_has_the_reported_reason_and_message_across_restarts_and_failures(
    world: World, thing_operator: Operator, defined: ControlPlane, judge: Judge
) -> None:
    operator = thing_operator
    write_project(operator.directory, REPORTS_TEXTS, READY_TEXTS)

    async def reaches(reason: str, message: str) -> RawObject:
        return await world.wait_for(
            THING,
            "one",
            lambda obj: (
                (ready := condition(obj, "Ready")).get("reason") == reason
                and message in ready["message"]
                and condition(obj, "Reconciling")["reason"] in ("NotReadyYet", "RunSucceeded", "RunFailed")
                and ready["observedGeneration"] == metadata_of(obj)["generation"]
            ),
        )

    async with recording(world, THING) as seen:
        await world.create(MANIFEST)
        operator.start()
        assert condition(await reaches("TooSmall", "1 of 3"), "Reconciling")["message"] == "1 of 3"
        assert operator.stop() == 0
        operator.log_file.unlink()
        operator.start()
        await wait_until_ready(operator)
        await world.patch(THING, "one", {"spec": {"size": 3}})
        await wait_with_kubectl(world, defined, "things.test.rolecall.dev/one")
        assert is_true(await reaches("Enough", "3 of 3"), "Ready")
        await world.patch(THING, "one", {"spec": {"size": 13}})
        await reaches("RunFailed", "no more coffee")
        await world.patch(THING, "one", {"spec": {"size": 2}})
        await reaches("TooSmall", "2 of 3")
        await seen_until(seen, lambda obj: condition(obj, "Ready").get("message") == "2 of 3", "the last run")
    # The definition has no default status, so the object counts as finished until the first run.
    assert story(judge, seen) == ["Current", "InProgress", "Current", "InProgress"]


# Helm, which waits by kstatus.


@pytest.fixture
def helm() -> str:
    """Return the program; it is no part of this project, and kstatus alone is asked above."""
    found = shutil.which("helm")
    if found is None:
        pytest.skip("helm is not on PATH: what it waits for is not tried here")
    return found


async def test_helm_waits_until_the_object_is_finished(
    world: World, running: Operator, defined: ControlPlane, tmp_path: Path, helm: str
) -> None:
    """``helm install --wait`` returns when the pods are there, and not before."""
    assert running.is_ready()
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "chart", "version": "0.1.0"}))
    (tmp_path / "templates/scaler.yaml").write_text(POD_SCALER_MANIFEST)
    process = await asyncio.create_subprocess_exec(
        *(helm, "install", "release", str(tmp_path), "--wait", "--timeout", "60s"),
        *("--kubeconfig", str(defined.kubeconfig), "--namespace", world.namespace),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert len(await world.pods(tier="web")) == 2
    assert is_true(await world.get(POD_SCALER, "scaler"), "Ready")
