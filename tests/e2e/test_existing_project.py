"""A project made for the Operator SDK, on our image drop-in instead of its own: only FROM differs.

Its role talks to a pod by exec and reads its log through the operator's proxy, for which a real kubelet is needed. The
image has a base without apt, dpkg and python3, so these tests also show what the Dockerfile asks of a base.
"""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import PROJECT, Cluster, eventually, is_true
from tests.e2e.images import build

IMAGE = "localhost/existing-project:e2e"
NAMESPACE = "existing-project"
MANIFESTS = "tests/e2e/project/deploy.yaml"
OBJECT = """
apiVersion: test.example.com/v1alpha1
kind: SubresourcesTest
metadata: {name: sample, namespace: existing-project}
spec: {execMessage: from exec, logMessage: from the log}
"""


@pytest.fixture(scope="module")
def project(cluster: Cluster, drop_in_image: str) -> Iterator[Cluster]:
    """Yield the cluster with the project deployed."""
    build(IMAGE, PROJECT / "tests/e2e/project", drop_in_image)
    cluster.load(IMAGE)
    cluster.kubectl("apply", "-f", MANIFESTS)
    cluster.wait_for_rollout("controller-manager", NAMESPACE)
    yield cluster
    cluster.kubectl("delete", "-f", MANIFESTS)


def test_run_reaches_a_pod_through_the_proxy_as_any_user(project: Cluster) -> None:
    project.apply(OBJECT)
    found = eventually(
        lambda: project.get("subresourcestest/sample", "-n", NAMESPACE),
        lambda obj: is_true(obj, "Successful"),
        480,
        "the project's role has run",
    )
    said = {key: found["status"].get(key) for key in ("execCommandStdout", "execCommandStderr", "logs")}
    assert said == {
        "execCommandStdout": "from exec",
        "execCommandStderr": "from exec again",
        "logs": "from the log",
    }


def in_pod(project: Cluster, *command: str) -> str:
    pod = project.items("pods", NAMESPACE, "control-plane=controller-manager")[0]["metadata"]["name"]
    return project.kubectl("exec", "-n", NAMESPACE, pod, "--", *command)


def test_packages_can_be_added_on_the_image(project: Cluster) -> None:
    places = in_pod(project, "sh", "-c", "command -v pip3; command -v ansible-galaxy; id -u")
    assert places.split() == ["/opt/rolecall/bin/pip3", "/opt/rolecall/bin/ansible-galaxy", "1000660000"]


@pytest.mark.parametrize("interpreter", ["/usr/bin/python3", "/usr/local/bin/python3", "python3"])
def test_the_python_that_a_role_calls_has_the_packages(project: Cluster, interpreter: str) -> None:
    modules = "ansible_runner, cryptography, kubernetes, requests, ansible_collections.kubernetes.core"
    script = f"import {modules}; from importlib.metadata import version; print(version('ansible-core'))"
    assert in_pod(project, interpreter, "-c", script).startswith("2.18.")


def test_bash_finds_our_python_on_a_base_that_activates_its_own(project: Cluster) -> None:
    assert in_pod(project, "bash", "-c", "command -v python3").strip() == "/opt/rolecall/bin/python3"


def test_the_first_process_of_the_container_reaps_orphans(project: Cluster) -> None:
    orphan = in_pod(project, "sh", "-c", "sleep 1 >/dev/null & echo $!").strip()
    look = ("sh", "-c", f"cat /proc/{orphan}/stat 2>/dev/null || echo gone")
    eventually(lambda: in_pod(project, *look), lambda seen: seen.strip() == "gone", 480, "the orphan was reaped")
    assert in_pod(project, "cat", "/proc/1/comm").strip() == "rolecall-init"


def test_the_image_has_licenses_and_a_bill_of_materials(project: Cluster) -> None:
    assert in_pod(project, "ls", "/licenses").split() == ["dependencies", "rolecall"]
    materials = json.loads(in_pod(project, "cat", "/opt/rolecall/rolecall.cdx.json"))
    versions = {each["name"]: each["version"] for each in materials["components"]}
    assert versions["ansible-core"].startswith("2.18.")


def test_image_has_no_workbench(project: Cluster) -> None:
    script = "from importlib.util import find_spec; print(bool(find_spec('rolecall.{}')))"
    assert in_pod(project, "python3", "-c", script.format("runner")).strip() == "True"
    assert in_pod(project, "python3", "-c", script.format("workbench")).strip() == "False"
