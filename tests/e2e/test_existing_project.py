"""A project made for the Operator SDK, on our image instead of its own: only FROM is another.

Its role talks to a pod by exec and reads its log through the operator's proxy, for which a real kubelet is needed.
"""

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
def project(cluster: Cluster, runner_image: str) -> Iterator[Cluster]:
    """Give the cluster with the project deployed."""
    build(IMAGE, PROJECT / "tests/e2e/project", runner_image)
    cluster.load(IMAGE)
    cluster.kubectl("apply", "-f", MANIFESTS)
    cluster.wait_for_rollout("controller-manager", NAMESPACE)
    yield cluster
    cluster.kubectl("delete", "-f", MANIFESTS)


def test_it_talks_to_a_pod_through_the_proxy_as_any_user(project: Cluster) -> None:
    project.apply(OBJECT)
    found = eventually(
        lambda: project.get("subresourcestest/sample", "-n", NAMESPACE),
        lambda obj: is_true(obj, "Successful"),
        120,
        "the project's role has run",
    )
    said = {key: found["status"].get(key) for key in ("execCommandStdout", "execCommandStderr", "logs")}
    assert said == {
        "execCommandStdout": "from exec",
        "execCommandStderr": "from exec again",
        "logs": "from the log",
    }


def test_packages_can_be_added_on_the_image(project: Cluster) -> None:
    pod = project.items("pods", NAMESPACE, "control-plane=controller-manager")[0]["metadata"]["name"]
    places = project.kubectl("exec", "-n", NAMESPACE, pod, "--", "sh", "-c", "which pip3 ansible-galaxy; id -u")
    assert places.split() == ["/opt/rolecall/bin/pip3", "/opt/rolecall/bin/ansible-galaxy", "1000660000"]
