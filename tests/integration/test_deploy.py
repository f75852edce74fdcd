"""``make install``, ``deploy``, ``undeploy`` and ``uninstall`` on an empty cluster.

The nodes are simulated: what is shown is that the API server takes everything, that the pods are admitted, and what is
left in the end.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.binaries import find_binaries
from tests.integration.operators import PROJECT

IMAGE = "registry.example/rolecall:1.2.3"
ACCOUNT = "system:serviceaccount:rolecall-system:rolecall"
CREATED = ("crd", "clusterrole", "clusterrolebinding", "namespace")
Run = Callable[..., str]


@pytest.fixture(scope="module")
def empty() -> Iterator[ControlPlane]:
    with ControlPlane(f"deploy-{os.getpid()}") as running:
        yield running


@pytest.fixture(scope="module")
def run(empty: ControlPlane) -> Run:
    """Return a way to run commands of this repository against the empty cluster."""
    programs = find_binaries(print)["kubectl"].parent
    environment = {**os.environ, "KUBECONFIG": str(empty.kubeconfig), "PATH": f"{programs}:{os.environ['PATH']}"}

    def run_command(*command: str) -> str:
        done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_command


def ours(run: Run) -> set[str]:
    """Return our objects in the cluster."""
    found = run("kubectl", "get", ",".join(CREATED), "-o", "name").split()
    return {name for name in found if "rolecall" in name or "customresourcedefinition" in name}


def deployment(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run("kubectl", "get", "deployment/rolecall", "-n", "rolecall-system", "-o", "json")
    )
    return found


def test_one_command_fills_an_empty_cluster_and_its_pods_are_admitted(run: Run) -> None:
    applied = run("kubectl", "apply", "-k", "deploy/").split()
    assert "deployment.apps/rolecall" in applied
    # The namespace enforces the level "restricted"; a pod that violates it would never come.
    run("kubectl", "rollout", "status", "deployment/rolecall", "-n", "rolecall-system", "--timeout=600s")
    assert run("kubectl", "get", "pods", "-n", "rolecall-system", "-o", "name").count("pod/") == 2


def test_make_deploy_takes_any_image_and_any_variant(run: Run) -> None:
    run("make", "deploy", f"IMG={IMAGE}", "DEPLOY=deploy/secure-metrics")
    (container,) = deployment(run)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    assert "--metrics-require-rbac" in container["args"]
    run("make", "deploy", f"IMG={IMAGE}", "DEPLOY=deploy/podcount")
    assert "clusterrole.rbac.authorization.k8s.io/rolecall-podcount" in ours(run)
    run("make", "deploy", f"IMG={IMAGE}", "DEPLOY=deploy/shards")
    spec = deployment(run)["spec"]
    assert spec["replicas"] == 3
    assert "--shards=12" in spec["template"]["spec"]["containers"][0]["args"]
    run("make", "deploy", f"IMG={IMAGE}", "DEPLOY=deploy/dashboard")
    assert "--ui-bind-address=127.0.0.1:8090" in deployment(run)["spec"]["template"]["spec"]["containers"][0]["args"]
    run("make", "deploy", f"IMG={IMAGE}", "DEPLOY=deploy/shards")
    may = run("kubectl", "auth", "can-i", "list", "leases", "-n", "rolecall-system", "--as", ACCOUNT)
    assert may.strip() == "yes"


def test_samples_are_accepted(run: Run) -> None:
    run("kubectl", "apply", "-k", "deploy/samples")
    run("kubectl", "delete", "-k", "deploy/samples", "--wait=false")


def test_undeploy_leaves_the_kinds_and_uninstall_nothing(run: Run) -> None:
    run("make", "undeploy")
    left = ours(run)
    assert len(left) == 5
    assert all(name.startswith("customresourcedefinition") for name in left)
    run("make", "undeploy")
    run("make", "uninstall")
    assert ours(run) == set()


def test_make_install_defines_the_kinds(run: Run) -> None:
    run("make", "install")
    assert len(ours(run)) == 5
