"""The guide to OLM up to the bundle, OLM's own validators on this bundle and on that of the samples, and its operator.

What OLM creates from a bundle is created by the test.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane.binaries import find_binaries
from rolecall.workbench.project.demo_inputs import Applier
from tests.guides import PROJECT, guide
from tests.integration.containers import Container
from tests.integration.control_plane import separate_control_plane
from tests.integration.shell import do
from tests.outcomes import check
from tests.static.bundle import Bundle, read_bundle
from tests.static.bundle_rules import RULES_OF_V1
from tests.support.go_programs import built
from tests.support.world import TIMEOUT_SECONDS

GUIDE = guide("docs/guides/olm.md")
SAMPLES = PROJECT / "deploy/olm"
NAMESPACE = "web-system"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory deploy/olm of the project that the guide creates."""
    directory = tmp_path_factory.mktemp("olm")
    check(GUIDE, do(GUIDE.steps, directory, directory / "state"))
    return directory / "web/deploy/olm"


@pytest.fixture(name="validated", scope="module")
def validator() -> Callable[[Path], list[str]]:
    """Return a function that returns the errors and warnings for a bundle."""
    program = built(PROJECT / "tests/olm")

    def validated(directory: Path) -> list[str]:
        done = subprocess.run([program, directory], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return validated


def test_validators_of_olm_accept_the_bundle_of_a_new_project(
    project: Path, validated: Callable[[Path], list[str]]
) -> None:
    found = validated(project / "bundle")
    assert [line for line in found if "csv.Spec.Icon not specified" not in line] == []


def test_validators_of_olm_accept_the_bundle_of_the_samples(validated: Callable[[Path], list[str]]) -> None:
    assert validated(SAMPLES / "bundle") == []


def test_validators_of_olm_find_faults(project: Path, tmp_path: Path, validated: Callable[[Path], list[str]]) -> None:
    shutil.copytree(project / "bundle", tmp_path / "bundle")
    next((tmp_path / "bundle/manifests").glob("*.crd.yaml")).unlink()
    annotations = tmp_path / "bundle/metadata/annotations.yaml"
    annotations.write_text(annotations.read_text().replace("registry+v1", "registry+v0"))
    found = "\n".join(line for line in validated(tmp_path / "bundle") if line.startswith("error"))
    assert "websites.shop.example.com" in found
    assert "registry+v0" in found


@pytest.mark.parametrize("rule", RULES_OF_V1, ids=lambda rule: rule.__name__)
def test_bundle_of_a_new_project_follows_the_content_rules_of_olm_v1(
    rule: Callable[[Bundle], Iterator[str]], project: Path
) -> None:
    assert list(rule(read_bundle(project))) == []


def permissions(bundle: Bundle) -> Iterator[RawObject]:
    """Yield the account of the operator, and the roles that OLM creates for it."""
    strategy = bundle.csv["spec"]["install"]["spec"]
    for key, kind in (("clusterPermissions", "ClusterRole"), ("permissions", "Role")):
        for granted in strategy[key]:
            account = {"name": granted["serviceAccountName"], "namespace": NAMESPACE}
            metadata = {"name": "web"} | ({"namespace": NAMESPACE} if kind == "Role" else {})
            group = "rbac.authorization.k8s.io"
            yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
            yield {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": granted["rules"]}
            yield {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": kind, "name": "web"},
                "subjects": [{"kind": "ServiceAccount", **account}],
            }


def test_example_in_the_bundle_becomes_ready_by_its_operator(project: Path) -> None:
    bundle = read_bundle(project)
    (deployment,) = bundle.csv["spec"]["install"]["spec"]["deployments"]
    container = Container({"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": deployment["spec"]})
    (example,) = bundle.examples
    example["metadata"]["namespace"] = "default"
    with separate_control_plane("olm") as plane:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        Applier(plane.kubeconfig).apply([namespace, *bundle.crds, *permissions(bundle), example])
        operator = container.operator(plane, project.parents[1])
        operator.start()
        try:
            kubectl = [str(find_binaries(print)["kubectl"]), "--kubeconfig", str(plane.kubeconfig)]
            wait = ["wait", "websites", "--all", "--for=condition=Ready", f"--timeout={TIMEOUT_SECONDS:.0f}s"]
            done = subprocess.run([*kubectl, *wait], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{done.stderr}\n{operator.tail()}"
        finally:
            operator.stop()
