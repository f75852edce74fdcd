"""A project of ``rolecall init`` and ``rolecall create api``, from its image to ``make uninstall``.

Nothing but its own Makefile builds and deploys it, on the runner image. The tests build on each other in this order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, Document, eventually, is_true

IMAGE = "localhost/web:e2e"
NAMESPACE = "web-system"
KINDS = {"website": "--generate-role", "policy": "--generate-playbook"}
MESSAGES = {kind: f"Hello from {kind.title()}" for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Project:
    """A project and the cluster that it is for."""

    directory: Path
    cluster: Cluster

    def make(self, target: str, *variables: str) -> None:
        """Run a target of the project's own Makefile against the cluster."""
        self.cluster.make(target, "-C", str(self.directory), *variables)

    def sample(self, kind: str, of: str) -> Document:
        """Return the sample of a kind, or its ConfigMap; empty when it is not there."""
        name = f"{kind}-sample" if of == kind else f"{kind}-sample-{kind}"
        return self.cluster.get(f"{of}/{name}", "-n", f"{kind}-sample")

    def written(self) -> dict[str, str]:
        """Return the contents of the samples' ConfigMaps, by kind."""
        return {kind: self.sample(kind, "configmap").get("data", {}).get("message") for kind in KINDS}

    def reported(self) -> dict[str, str]:
        """Return the statuses of the reconciled samples, by kind."""
        found = {kind: self.sample(kind, kind) for kind in KINDS}
        return {kind: obj["status"].get("message") for kind, obj in found.items() if is_true(obj, "Successful")}


@pytest.fixture(scope="module")
def web(cluster: Cluster, runner_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Yield a project with two kinds, deployed."""
    project = Project(tmp_path_factory.mktemp("generated") / "web", cluster)
    cluster.do("rolecall", "init", "--domain", "example.com", "web", "--directory", str(project.directory))
    for kind, content in KINDS.items():
        named = ("--group", "shop", "--version", "v1", "--kind", kind.title(), content)
        cluster.do("rolecall", "create", "api", *named, "--project", str(project.directory))
    project.make("image", f"IMG={IMAGE}", f"RUNNER={runner_image}")
    cluster.load(IMAGE)
    try:
        project.make("deploy", f"IMG={IMAGE}")
        cluster.wait_for_rollout("web", NAMESPACE)
        yield project
    finally:
        project.make("undeploy")
        project.make("uninstall")


def test_every_sample_is_reconciled(web: Project) -> None:
    web.cluster.kubectl("apply", "-k", str(web.directory / "deploy/samples"))
    eventually(web.written, lambda seen: seen == MESSAGES, 240, "each sample has its ConfigMap")
    eventually(web.reported, lambda seen: seen == MESSAGES, 120, "each sample says so in its status")


def test_deleted_dependents_are_recreated(web: Project) -> None:
    for kind in KINDS:
        web.cluster.kubectl("delete", f"configmap/{kind}-sample-{kind}", "-n", f"{kind}-sample")
    eventually(web.written, lambda seen: seen == MESSAGES, 240, "both ConfigMaps are back")


def test_the_image_has_what_a_run_by_hand_needs(web: Project) -> None:
    for kind in KINDS:
        play = ("ansible-playbook", f"playbooks/{kind}.yml", "-e", f"cr_name={kind}-sample")
        place = ("deployment/web", "-n", NAMESPACE)
        printed = web.cluster.kubectl("exec", *place, "--", *play, "-e", f"cr_namespace={kind}-sample")
        assert "TASK [Write the status" in printed
        assert "changed=0" in printed


def test_undeploy_leaves_the_kinds_and_uninstall_leaves_nothing(web: Project) -> None:
    web.cluster.kubectl("delete", "-k", str(web.directory / "deploy/samples"))
    web.make("undeploy")
    assert of_project(web) == {"websites.shop.example.com", "policies.shop.example.com"}
    web.make("uninstall")
    assert of_project(web) == set()


def of_project(web: Project) -> set[str]:
    """Return the names of everything cluster-wide that is the project's."""
    kinds = "crd,clusterrole,clusterrolebinding,namespace"
    names = {each.rpartition("/")[2] for each in web.cluster.kubectl("get", kinds, "-o", "name").split()}
    samples = {f"{kind}-sample" for kind in KINDS}
    return {name for name in names if name.startswith("web-") or name.endswith(".shop.example.com") or name in samples}
