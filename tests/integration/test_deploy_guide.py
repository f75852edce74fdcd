"""The guide to deployments, done with a project of ``rolecall init``.

The nodes of the control plane are simulated, so the process of the deployed container, with the permissions of its
account, stands for the pods. tests/e2e/test_generated_project.py runs them.
"""

from pathlib import Path

import pytest
import yaml

from tests.guides import FILE, Step, guide
from tests.integration.containers import in_shell
from tests.integration.shell import do
from tests.outcomes import Done, check

GUIDE = guide("docs/guides/deploy.md")
CLUSTER = "deploy-guide"
FILES = dict(FILE.findall(GUIDE.text))
PROJECT = f"""
rolecall init --domain example.com web
cd web
rolecall create api --group shop --version v1 --kind Website --generate-role
rolecall cluster start --name {CLUSTER}
export KUBECONFIG=$(rolecall cluster kubeconfig --name {CLUSTER})
"""
OPERATOR = f"{in_shell(CLUSTER, 'web-system', 'web')} 2> operator.log &"


def written(name: str) -> str:
    """Return the commands that write a file that the guide shows."""
    return f"mkdir -p $(dirname {name}); cat > {name} <<'END'\n{FILES[name]}END"


def kustomization(name: str) -> str:
    """Return the commands that write a kustomization that the guide shows."""
    return written(f"deploy/{name}/kustomization.yaml")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deploy")


@pytest.fixture(scope="module")
def all_done(directory: Path) -> list[Done]:
    start = Step("true")
    before = {
        start.command: PROJECT,
        "kubectl apply -k deploy/samples": OPERATOR,
        "make deploy DEPLOY=deploy/production": kustomization("production"),
        "kubectl create namespace shop": kustomization("shop"),
        "make crds": written("roles/website/meta/argument_specs.yml"),
        "make undeploy": "kubectl get websites -A -o name > left; kill %1; wait %1",
        "make uninstall": "kubectl get crd -o name > kinds",
    }
    return do([start, *GUIDE.steps], directory, directory / "state", before)[1:]


def test_commands_of_the_guide_print_the_shown_output(all_done: list[Done], directory: Path) -> None:
    assert all(each.is_as_shown for each in all_done), (directory / "web/operator.log").read_text()[-3000:]
    check(GUIDE, all_done)


def test_upgrade_adds_the_new_option_to_the_definition(all_done: list[Done], directory: Path) -> None:
    assert all_done
    definition = yaml.safe_load((directory / "web/deploy/crds" / "websites.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    assert set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]) == {"message", "footer"}


def test_removal_in_the_order_of_the_guide_leaves_no_object_and_keeps_the_kinds_until_the_end(
    all_done: list[Done], directory: Path
) -> None:
    assert all_done
    assert (directory / "web/left").read_text() == ""
    assert (
        "customresourcedefinition.apiextensions.k8s.io/websites.shop.example.com"
        in (directory / "web/kinds").read_text()
    )
