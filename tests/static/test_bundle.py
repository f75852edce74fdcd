"""The committed OLM bundle: made from deploy/ as it is now, and within the rules of bundle validation."""

import json
import tomllib
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from rolecall.cli.parsing import watch_namespaces
from rolecall.workbench.bundle.files import bundle_files
from rolecall.workbench.bundle.service_version import TARGETS, Release
from tests.static.bundle import Bundle, kustomized, read_bundle
from tests.static.bundle_rules import RULES
from tests.static.repository import ROOT, crds, documents

FOLDER = ROOT / "deploy" / "olm"
BUNDLE = read_bundle(FOLDER)
SPEC: dict[str, Any] = BUNDLE.csv["spec"]
STRATEGY: dict[str, Any] = SPEC["install"]["spec"]


def of_kind(kind: str) -> dict[str, Any]:
    """Return the one object of a kind that the plain deployment has."""
    found = [each for directory in ("operator", "rbac") for each in documents(f"deploy/{directory}/*.yaml")]
    (one,) = [each for each in found if each["kind"] == kind]
    return one


def test_it_is_what_make_bundle_writes_from_deploy_now() -> None:
    release = Release(SPEC["version"], BUNDLE.csv["metadata"]["annotations"]["containerImage"])
    found = [path for path in FOLDER.glob("bundle/**/*") if path.is_file()] + [FOLDER / "bundle.Dockerfile"]
    committed = {str(path.relative_to(FOLDER)): path.read_text() for path in found}
    written = bundle_files(ROOT / "deploy", kustomized(ROOT / "deploy"), release)
    assert written == committed, 'run "make bundle" and commit what it writes'


def test_its_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert SPEC["version"] == project["version"], 'run "make bundle" and commit what it writes'


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_it_keeps_the_rules(rule: Callable[[Bundle], Any]) -> None:
    assert list(rule(BUNDLE)) == []


def test_its_definitions_are_those_of_deploy() -> None:
    assert {each["spec"]["names"]["kind"]: each for each in BUNDLE.crds} == crds()


def test_its_permissions_are_those_of_deploy() -> None:
    account = of_kind("ServiceAccount")["metadata"]["name"]
    cluster, namespaced = of_kind("ClusterRole")["rules"], of_kind("Role")["rules"]
    assert STRATEGY["clusterPermissions"] == [{"serviceAccountName": account, "rules": cluster}]
    assert STRATEGY["permissions"] == [{"serviceAccountName": account, "rules": namespaced}]


def test_its_deployment_is_that_of_deploy_but_for_the_image_and_the_namespaces() -> None:
    expected = deepcopy(of_kind("Deployment")["spec"])
    (container,) = expected["template"]["spec"]["containers"]
    container["image"] = BUNDLE.csv["metadata"]["annotations"]["containerImage"]
    container["env"].append({"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": TARGETS}}})
    (deployment,) = STRATEGY["deployments"]
    assert deployment["spec"] == expected
    assert deployment["name"] == of_kind("Deployment")["metadata"]["name"]


def test_its_service_is_that_of_deploy_without_a_namespace() -> None:
    expected = deepcopy(of_kind("Service"))
    del expected["metadata"]["namespace"]
    assert [each for each in BUNDLE.others if each["kind"] == "Service"] == [expected]


def test_the_namespace_that_it_suggests_is_that_of_deploy() -> None:
    template = BUNDLE.csv["metadata"]["annotations"]["operatorframework.io/suggested-namespace-template"]
    assert json.loads(template) == of_kind("Namespace")


def test_a_sample_of_deploy_is_the_example_of_its_kind() -> None:
    samples = {each["kind"]: each["spec"] for each in documents("deploy/samples/*.yaml") if each["kind"] in crds()}
    assert samples.items() <= {each["kind"]: each["spec"] for each in BUNDLE.examples}.items()


@pytest.mark.parametrize(
    ("mode", "targets", "namespaces"),
    [
        ("AllNamespaces", "", ()),
        ("SingleNamespace", "shop", ("shop",)),
        ("MultiNamespace", "shop,stock", ("shop", "stock")),
    ],
)
def test_the_program_reads_what_a_supported_mode_gives_it(mode: str, targets: str, namespaces: tuple[str, ...]) -> None:
    assert {"type": mode, "supported": True} in SPEC["installModes"]
    assert watch_namespaces({"WATCH_NAMESPACE": targets}) == namespaces
