"""The migration guide, from the files that the Operator SDK's scaffold writes: every command of it.

The guide only describes how to build and push images, which needs a builder and a registry; the image has other
tests.
"""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.cli.ansible_operator import parser
from rolecall.cli.parsing import join_flag_values
from rolecall.cli.run import ansible_operator_settings
from rolecall.kube.references import GVK
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.binaries import find_binaries
from tests.guides import REMOVE_OBSERVED_GENERATION, guide
from tests.integration.example_projects import MEMCACHED
from tests.integration.shell import do
from tests.kstatus.judge import Judge
from tests.outcomes import Done, check
from tests.support.world import World

GUIDE = guide("docs/guides/migrate.md")
MANAGER = "config/manager/manager.yaml"
MARK = "# +kubebuilder:scaffold:rules"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the project, under version control."""
    work = tmp_path_factory.mktemp("migration") / "memcached"
    shutil.copytree(MEMCACHED.path, work)
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=work, check=True)
    return work


@pytest.fixture(scope="module")
def all_done(work: Path) -> list[Done]:
    """Follow the guide. An editor's part is to add the rule that the guide shows."""
    (rule,) = re.findall(r"^```yaml\n(.*?)^```$", GUIDE.text, re.MULTILINE | re.DOTALL)
    role = work / "config/rbac/role.yaml"
    edited = work.parent / "role.yaml"
    edited.write_text(role.read_text().replace(MARK, rule + MARK))
    return do(GUIDE.steps, work, work.parent / "state", {"rolecall validate --strict": f"cp {edited} {role}"})


def pod_of(project: Path) -> dict[str, Any]:
    """Return the spec of the pod in the project's Deployment."""
    (deployment,) = (
        each for each in yaml.safe_load_all((project / MANAGER).read_text()) if each["kind"] == "Deployment"
    )
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def test_every_command_of_the_guide_ends_and_prints_as_the_guide_says(all_done: list[Done], work: Path) -> None:
    log = (work / "operator.log").read_text()[-4000:]
    assert all(each.is_as_shown for each in all_done), log
    check(GUIDE, all_done)


def test_guide_starts_with_values_and_samples_of_the_scaffold() -> None:
    pod = pod_of(MEMCACHED.path)
    samples = yaml.safe_load((MEMCACHED.path / "config/samples/kustomization.yaml").read_text())
    assert pod["terminationGracePeriodSeconds"] == 10
    assert pod["containers"][0]["resources"]["limits"]["cpu"] == "500m"
    assert set(samples) == {"resources"}, "without a kind, so kubectl can't apply the directory with --filename"


def test_program_accepts_the_arguments_in_the_rendered_deployment() -> None:
    kubectl = find_binaries(print)["kubectl"]
    words = [str(kubectl), "kustomize", str(MEMCACHED.path / "config/default")]
    rendered = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (deployment,) = (each for each in yaml.safe_load_all(rendered) if each["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    options = parser().parse_args(list(join_flag_values(["run", *arguments])))
    assert (options.leader_election_id, options.metrics_bind_address) == ("memcached", ":8443")
    assert options.metrics_secure
    assert options.metrics_require_rbac


def test_changed_manifests_give_runs_time_to_finish_and_several_workers(all_done: list[Done], work: Path) -> None:
    assert all_done
    pod = pod_of(work)
    assert pod["terminationGracePeriodSeconds"] > ansible_operator_settings().grace_seconds
    assert int(pod["containers"][0]["resources"]["limits"]["cpu"]) > 1


def test_the_way_back_restores_the_dockerfile(all_done: list[Done], work: Path) -> None:
    assert all_done
    assert (work / "Dockerfile").read_text() == (MEMCACHED.path / "Dockerfile").read_text()


async def test_objects_are_current_for_kstatus_after_the_command_that_removes_the_observed_generation(
    world: World, judge: Judge, control_plane: ControlPlane
) -> None:
    """The Operator SDK's program changes its conditions, and keeps the field as rolecall has written it last."""
    memcached = GVK("cache.example.com", "v1alpha1", "Memcached")
    manifest = (MEMCACHED.path / "config/samples/cache_v1alpha1_memcached.yaml").read_text()
    running = {"type": "Running", "status": "True", "reason": "Successful", "message": "Awaiting next reconciliation"}
    names = ["memcached-sample", "other"]
    for name in names:
        await world.create(manifest.replace("memcached-sample", name))
    for name in names:
        await world.patch(memcached, name, {"status": {"observedGeneration": 1, "conditions": [running]}}, "status")
        await world.patch(memcached, name, {"spec": {"size": 5}})
    assert judge.words([await world.get(memcached, name) for name in names]) == ["InProgress"] * 2
    command = REMOVE_OBSERVED_GENERATION.replace("kubectl ", f"kubectl --namespace={world.namespace} ")
    own = {
        "KUBECONFIG": str(control_plane.kubeconfig),
        "PATH": f"{control_plane.program_directory}:{os.environ['PATH']}",
    }
    words = ["bash", "-o", "pipefail", "-c", command]
    await asyncio.to_thread(subprocess.run, words, env={**os.environ, **own}, check=True)
    objects = [await world.get(memcached, name) for name in names]
    assert judge.words(objects) == ["Current"] * 2
    assert [each["status"] for each in objects] == [{"conditions": [running]}] * 2
