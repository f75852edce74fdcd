"""The guide to a first operator, done word by word: a new project, its demo, its tests, and its deployment.

The project gets a kind of each other sort. The nodes of the control plane are simulated, so the process of the deployed
container stands for its pods.
"""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rolecall.workbench.controlplane.binaries import find_binaries
from rolecall.workbench.controlplane.state import known_names
from rolecall.workbench.project.scaffold import init_project
from tests.guides import Step, guide
from tests.integration.containers import in_shell
from tests.integration.shell import clone, do
from tests.outcomes import Done, check

GUIDE = guide("docs/guides/first-operator.md")
CLUSTER = "first-operator"
OTHER_KINDS = """
rolecall create api --group shop --version v1alpha1 --kind Policy --generate-playbook
rolecall create api --group shop --version v1 --kind Cart --generate-role --generate-playbook
rolecall create api --group shop --version v1 --kind Team --namespaced=false
"""
START = f"""
rolecall cluster start --name {CLUSTER}
export KUBECONFIG=$(rolecall cluster kubeconfig --name {CLUSTER})
"""
OTHERS_ARE_READY = Step("kubectl wait policies,carts,teams --all --all-namespaces --for=condition=Ready --timeout=60s")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("first")


@pytest.fixture(scope="module")
def done(directory: Path) -> dict[str, Done]:
    before = {
        "rolecall init --domain example.com web": f"cd {directory}",
        "make demo": OTHER_KINDS,
        "make deploy IMG=registry.example/web:0.1.0": START,
        "kubectl apply -k deploy/samples": f"{in_shell(CLUSTER, 'web-system', 'web')} 2> operator.log &",
    }
    wanted = [*GUIDE.steps, OTHERS_ARE_READY]
    return {each.step.command: each for each in do(wanted, clone(directory), directory / "state", before)}


def test_every_command_of_the_guide_ends_and_prints_as_the_guide_says(done: dict[str, Done]) -> None:
    check(GUIDE, [each for each in done.values() if each.step in GUIDE.steps])


def test_objects_of_each_sort_of_kind_become_ready_by_the_deployed_container(
    done: dict[str, Done], directory: Path
) -> None:
    log = (directory / "web/operator.log").read_text()
    assert done[OTHERS_ARE_READY.command].is_as_shown, log[-3000:]
    assert "forbidden" not in log.lower()


def test_the_demo_reconciles_a_kind_of_each_sort(done: dict[str, Done]) -> None:
    printed = done["make demo"].printed
    reconciled = {line.split()[0] for line in printed if "Successful" in line and line.endswith("done")}
    assert reconciled == {"Website", "Policy", "Cart", "Team"}


def test_the_tests_of_the_project_lint_it_and_lose_the_config_maps(done: dict[str, Done]) -> None:
    printed = "\n".join(done["make test"].printed)
    assert "Profile 'production' was required, and it passed" in printed
    assert printed.count("TASK [Wait until the ConfigMap has the message again]") == 4
    assert printed.count("TASK [Wait until the ConfigMap exists again with the message]") == 4
    left_out = [line for line in printed.splitlines() if "left out" in line]
    assert [line.split(":")[:2] for line in left_out] == [["left out", " Policy"]], "its playbook calls no role itself"


def test_the_permissions_of_the_project_are_those_that_its_scenario_needs(done: dict[str, Done]) -> None:
    printed = "\n".join(done["make test"].printed)
    assert "equal: nothing is missing, and nothing is too much" in printed


def test_the_tests_of_the_project_reconcile_each_kind_without_an_operator(done: dict[str, Done]) -> None:
    passed = {line.split()[0] for line in done["make test"].printed if re.fullmatch(r"tests/\S+ \.+ \[ *\d+%\]", line)}
    kinds = {f"tests/test_{kind}.py" for kind in ("website", "policy", "cart", "team")}
    assert passed == {"tests/test_files_agree.py", "tests/test_records.py"} | kinds


def test_project_without_kinds_deploys_only_the_operator(tmp_path: Path) -> None:
    init_project(tmp_path, "web", "example.com").write()
    kubectl = find_binaries(print)["kubectl"]
    built = subprocess.run([kubectl, "kustomize", "deploy"], cwd=tmp_path, capture_output=True, text=True, check=True)
    kinds = [each["kind"] for each in yaml.safe_load_all(built.stdout)]
    assert "Deployment" in kinds
    assert "CustomResourceDefinition" not in kinds


def test_no_control_plane_is_left(done: dict[str, Done], directory: Path) -> None:
    assert done
    assert list(known_names(directory / "state")) == []
