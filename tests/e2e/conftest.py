"""Fixtures of the end-to-end tests: the cluster of the environment, the images, and the output of a failed test."""

import os
from collections.abc import Generator, Iterator

import pytest

from tests.e2e.cluster import NAMESPACE, Cluster
from tests.e2e.environment import environment_of
from tests.e2e.images import DROP_IN, OPERATOR, RUNNER, build_bare_base, build_changed, load_nginx
from tests.e2e.reader import Reader
from tests.guides import guide

SHOWN = (
    ("get", "pods,podscalers,hikawas,foos", "-A", "-o", "wide"),
    ("get", "events", "-A", "--sort-by=.metadata.creationTimestamp"),
    ("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=rolecall", "--tail=60", "--prefix"),
)


def pytest_sessionstart() -> None:
    """Exit if the environment doesn't name a cluster."""
    try:
        environment_of(os.environ)
    except ValueError as error:
        pytest.exit(str(error), returncode=2)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, "pytest.CallInfo[None]"]:
    """Show the cluster next to a test that failed."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        cluster = Cluster(environment_of(os.environ))
        for arguments in SHOWN:
            done = cluster.run(*cluster.kubectl_words, *arguments)
            report.sections.append((f"kubectl {' '.join(arguments)}", done.stdout + done.stderr))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Yield the cluster that the environment names, where nginx:latest can run."""
    cluster = Cluster(environment_of(os.environ))
    load_nginx(cluster)
    yield cluster
    cluster.kubectl("delete", "-f", "tests/e2e/nginx/policy.yaml")


@pytest.fixture(scope="session")
def image_page(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Return the reader of the page about the image."""
    return Reader(guide("docs/guides/image.md"), cluster, tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def operator_image(cluster: Cluster, image_page: Reader) -> str:
    """Return the operator's image, which is in the cluster."""
    image_page.do(f"make image IMG={OPERATOR}")
    cluster.load(OPERATOR)
    return OPERATOR


@pytest.fixture(scope="session")
def runner_image(operator_image: str, image_page: Reader) -> str:
    """Return the base image for other operators; as on the page, it is built after the operator's."""
    assert operator_image
    image_page.do(f"make image IMG={RUNNER} TARGET=runner")
    return RUNNER


@pytest.fixture(scope="session")
def drop_in_image(runner_image: str, image_page: Reader) -> str:
    """Return the image in which projects for the Operator SDK's image run, on a base without apt and dpkg."""
    assert runner_image
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("BASE", build_bare_base())
        image_page.do(f"make image IMG={DROP_IN} TARGET=drop-in")
    return DROP_IN


@pytest.fixture(scope="session")
def changed_image(cluster: Cluster, operator_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the operator's image with a changed role, which is in the cluster."""
    assert operator_image
    return build_changed(cluster, tmp_path_factory.mktemp("changed"))
