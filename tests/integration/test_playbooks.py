"""The playbooks: one object reconciled once, from a laptop, with no operator anywhere."""

import asyncio
import itertools
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from rolecall.kube.metadata import metadata_of
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.operators import PROJECT
from tests.integration.songs import manifest, song, words
from tests.integration.test_foo import FOO_MANIFEST, FOREIGN
from tests.integration.test_podcount import MANIFEST as REPLICA_SET_MANIFEST
from tests.integration.test_podscaler import POD_SCALER_MANIFEST
from tests.support.world import (
    DEPLOYMENT,
    FOO,
    HIKAWA,
    POD_SCALER,
    REPLICA_SET,
    TIMEOUT_SECONDS,
    ZUNDOKO,
    World,
    eventually,
)

SEED = "encore"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of ansible-playbook: its exit code and its output."""

    code: int
    text: str

    @property
    def changed(self) -> int:
        """The number of changed tasks, according to the recap."""
        found = re.search(r"changed=(\d+)", self.text)
        assert found is not None, self.text
        return int(found[1])


@dataclass(frozen=True, slots=True)
class Laptop:
    """A machine on which a user runs ansible-playbook in the root of the repository."""

    kubeconfig: Path
    namespace: str

    async def play(self, playbook: str, *arguments: str) -> Outcome:
        """Run a playbook of the repository with these arguments to its end."""
        process = await asyncio.create_subprocess_exec(
            "ansible-playbook",
            f"playbooks/{playbook}.yml",
            *arguments,
            cwd=PROJECT,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "KUBECONFIG": str(self.kubeconfig),
                "ANSIBLE_NOCOLOR": "1",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return Outcome(process.returncode, output.decode())

    async def reconcile(self, playbook: str, name: str, *arguments: str) -> Outcome:
        """Run a playbook for an object of the namespace."""
        return await self.play(playbook, "-e", f"cr_name={name}", "-e", f"cr_namespace={self.namespace}", *arguments)


@pytest.fixture
def laptop(world: World, account_kubeconfig: Path) -> Laptop:
    return Laptop(account_kubeconfig, world.namespace)


async def test_a_podscaler_gets_its_pods_and_its_status_once(world: World, laptop: Laptop) -> None:
    await world.create(POD_SCALER_MANIFEST)
    checked = await laptop.reconcile("podscaler", "example-podscaler", "--check")
    assert (checked.code, await world.pods(app="nginx")) == (0, []), checked.text
    first = await laptop.reconcile("podscaler", "example-podscaler")
    assert first.code == 0, first.text
    assert len(await world.pods(app="nginx")) == 4
    scaler = await world.get(POD_SCALER, "example-podscaler")
    assert (scaler["status"]["pods"], scaler["status"]["selector"]) == (4, "app=nginx")
    assert scaler["status"]["observedGeneration"] == metadata_of(scaler)["generation"]
    assert "The operator would run again in 15s." in first.text

    async def ready() -> int:
        pods = await world.pods(app="nginx")
        return sum(each["type"] == "Ready" for pod in pods for each in pod["status"].get("conditions", []))

    await eventually(ready, lambda count: count == 4, TIMEOUT_SECONDS, "four ready pods")
    await laptop.reconcile("podscaler", "example-podscaler")
    assert (await laptop.reconcile("podscaler", "example-podscaler")).changed == 0


async def test_a_hikawa_takes_one_step_at_a_time(world: World, laptop: Laptop) -> None:
    await world.create(manifest("h", SEED, intervalMillis=0))
    for said in (0, 1, 2):
        outcome = await laptop.reconcile("hikawa", "h")
        assert outcome.code == 0, outcome.text
        assert list((await words(world, "h")).values()) == song(SEED)[:said]
        assert "The operator would run again at 20" in outcome.text
    hikawa = await world.get(HIKAWA, "h")
    assert (hikawa["spec"]["numZundokos"], hikawa["status"]["numZundokosSaid"]) == (3, 2)
    await laptop.reconcile("hikawa", "h", "--check")
    assert len(await world.objects(ZUNDOKO)) == 2


async def test_a_foo_gets_its_deployment(world: World, laptop: Laptop) -> None:
    await world.create(FOO_MANIFEST)
    outcome = await laptop.reconcile("foo", "foos.samplecontroller.k8s.io")
    assert outcome.code == 0, outcome.text
    deployment = await world.wait_for(DEPLOYMENT, "foo-deployment", lambda obj: obj.get("status"))
    assert deployment["spec"]["replicas"] == 2
    await world.wait_for(DEPLOYMENT, "foo-deployment", lambda obj: obj["status"].get("availableReplicas") == 2)
    await laptop.reconcile("foo", "foos.samplecontroller.k8s.io")
    assert (await world.get(FOO, "foos.samplecontroller.k8s.io"))["status"]["availableReplicas"] == 2
    assert (await laptop.reconcile("foo", "foos.samplecontroller.k8s.io")).changed == 0


async def test_foreign_deployment_is_rejected(world: World, laptop: Laptop) -> None:
    await world.create(FOREIGN)
    await world.create(FOO_MANIFEST)
    outcome = await laptop.reconcile("foo", "foos.samplecontroller.k8s.io")
    assert outcome.code != 0
    assert 'Resource "foo-deployment" already exists and is not managed by Foo' in outcome.text
    assert "ownerReferences" not in metadata_of(await world.get(DEPLOYMENT, "foo-deployment"))


async def test_a_replicaset_gets_its_label_once(world: World, laptop: Laptop) -> None:
    await world.create(REPLICA_SET_MANIFEST)
    await eventually(lambda: world.pods(app="counted"), lambda pods: len(pods) == 2, TIMEOUT_SECONDS, "two pods")
    await laptop.reconcile("replicaset", "example-replicaset")
    replica_set = await world.get(REPLICA_SET, "example-replicaset")
    assert metadata_of(replica_set)["labels"]["pod-count"] == "2"
    assert (await laptop.reconcile("replicaset", "example-replicaset")).changed == 0


async def test_invalid_name_is_one_clear_error(laptop: Laptop) -> None:
    outcome = await laptop.reconcile("podscaler", "nobody")
    assert outcome.code != 0
    assert outcome.text.count("fatal:") == 1
    assert f'PodScaler "nobody" not found in namespace "{laptop.namespace}".' in outcome.text


async def test_missing_name_is_an_error(laptop: Laptop) -> None:
    outcome = await laptop.play("foo")
    assert outcome.code != 0
    assert "Name the Foo: -e cr_name=NAME -e cr_namespace=NAMESPACE" in outcome.text


def write_installation(directory: Path) -> str:
    """Write a playbook that applies the samples in ``deploy/samples``; return its name as ``Laptop.play`` takes it."""
    tasks = PROJECT / "molecule/shared/tasks/install.yml"
    install = {"ansible.builtin.include_tasks": str(tasks), "vars": {"install_directory": "deploy/samples"}}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [install]}
    (directory / "install.yml").write_text(yaml.safe_dump([play]))
    return os.path.relpath(directory / "install", PROJECT / "playbooks")


async def test_samples_are_unchanged_while_an_operator_writes_their_status(
    world: World, defined: ControlPlane, tmp_path: Path
) -> None:
    """The module compares the object before its patch with the one after it, and a scenario must be idempotent."""
    samples = tmp_path / "deploy/samples"
    samples.mkdir(parents=True)
    (samples / "kustomization.yaml").write_text("resources: [foo.yaml]\n")
    foo = yaml.safe_load(FOO_MANIFEST)
    name = foo["metadata"]["name"]
    foo["metadata"]["namespace"] = world.namespace
    (samples / "foo.yaml").write_text(yaml.safe_dump(foo))
    laptop = Laptop(defined.kubeconfig, world.namespace)

    arguments = "-e", f"project={tmp_path}", "-e", f"ansible_python_interpreter={sys.executable}"
    apply = partial(laptop.play, write_installation(tmp_path), *arguments)

    async def write_status(first: int) -> None:
        for replicas in itertools.count(first):
            await world.patch(FOO, name, {"status": {"availableReplicas": replicas}}, "status")

    assert (await apply()).changed == 1
    writers = [asyncio.create_task(write_status(first)) for first in (0, 10**6, 2 * 10**6)]
    repeated = await apply()
    foo["spec"]["replicas"] = 3
    (samples / "foo.yaml").write_text(yaml.safe_dump(foo))
    edited = await apply()
    for writer in writers:
        writer.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    assert (repeated.changed, edited.changed) == (0, 1)
