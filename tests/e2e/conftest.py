"""What the end-to-end tests share: the cluster of the environment, the images, and what to show when a test fails."""

import os
from collections.abc import Generator, Iterator

import pytest

from tests.e2e.cluster import NAMESPACE, Cluster
from tests.e2e.environment import environment_of
from tests.e2e.images import build_changed, build_operator, load_nginx

SHOWN = (
    ("get", "pods,podscalers,hikawas,foos", "-A", "-o", "wide"),
    ("get", "events", "-A", "--sort-by=.metadata.creationTimestamp"),
    ("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=rolecall", "--tail=60", "--prefix"),
)


def pytest_sessionstart() -> None:
    """End at once where no cluster is named."""
    try:
        environment_of(os.environ)
    except ValueError as error:
        pytest.exit(str(error), returncode=2)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, "pytest.CallInfo[None]"]:
    """Show the cluster beside a test that failed."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        cluster = Cluster(environment_of(os.environ))
        for arguments in SHOWN:
            done = cluster.run(*cluster.kubectl_words, *arguments)
            report.sections.append((f"kubectl {' '.join(arguments)}", done.stdout + done.stderr))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Give the cluster that the environment names, where nginx:latest can run."""
    cluster = Cluster(environment_of(os.environ))
    load_nginx(cluster)
    yield cluster
    cluster.kubectl("delete", "-f", "tests/e2e/nginx/policy.yaml")


@pytest.fixture(scope="session")
def operator_image(cluster: Cluster) -> str:
    """Give the operator's image, which is in the cluster."""
    return build_operator(cluster)


@pytest.fixture(scope="session")
def changed_image(cluster: Cluster, operator_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the operator's image with a changed role, which is in the cluster."""
    assert operator_image
    return build_changed(cluster, tmp_path_factory.mktemp("changed"))
