"""Tests start the operators that a cluster starts: the program, the flags, and the account of a manifest.

A guide can promise what its test never sees: another program has other defaults. So the container of the Deployment is
the one way to start the operator of a project, see ``tests/integration/containers.py``, and everything else that starts
an operator in its place must have the same settings, except for those listed here with a reason.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.cli.run import rolecall_program, settings_of_command
from rolecall.cli.validate import container_settings
from rolecall.runner.config.settings import Settings
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import OperatorProcess
from rolecall.workbench.project.scaffold import NewKind, create_api, init_project
from tests.guides import GUIDES
from tests.integration.containers import entry_point
from tests.integration.example_projects import ADVANCED, MEMCACHED, Project
from tests.integration.operators import ROLECALL
from tests.static.repository import ROOT, documents

INIT = ("/tini", "--")
OF_ONE_PROCESS = {
    "leader_elect": "a single process needs no Lease",
    "leader_election_id": "as above",
    "health_probe_bind_address": "no kubelet asks",
    "metrics_bind_address": "the port could be in use",
    "grace_seconds": "only the end differs",
    "record_directory": "a test reads the records",
    "work_directory": "a test reads the artifacts",
}
"""The settings of a Deployment that a process without a pod may not have."""
STARTS = re.compile(r"\b(?:rolecall|ansible-operator)['\"]?,? +['\"]?run\b")
CLASSES = ("Operator", "OperatorProcess")
PROJECT_TESTS = re.compile(r"\binit_project\(|\brolecall\W+init\b|make\W+deploy\b")
"""What a test contains that generates a project, or deploys one."""
ALLOWED = {
    ("tests/integration/test_dashboard.py", "rolecall run"): "takes the flags of the page's own command",
    ("tests/integration/test_dashboard.py", "Operator"): "the page's own command, with another port, and failures",
    ("tests/integration/test_troubleshooting_guide.py", "rolecall run"): "a project without manifests, on a laptop",
}
"""The places in tests of guides and projects that start an operator otherwise, with the reason."""


def generated_project(directory: Path) -> Path:
    """Return a new project with a kind."""
    init_project(directory, "web", "example.com").write()
    create_api(directory, NewKind("shop", "v1", "Website")).write()
    return directory


def container_of(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (deployment,) = [each for each in manifests if each and each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def deployed(project: Path) -> dict[str, Any]:
    """Return the container of a project's Deployment."""
    return container_of(list(yaml.safe_load_all((project / "deploy/operator/deployment.yaml").read_text())))


def difference(container: dict[str, Any], words: list[str]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ between a container and ``rolecall run`` with these flags."""
    mine, other = container_settings(container), settings_of_command(words, rolecall_program())
    assert mine is not None
    assert other is not None
    values = {field.name: (getattr(mine, field.name), getattr(other, field.name)) for field in fields(Settings)}
    return {name: both for name, both in values.items() if both[0] != both[1] and name not in OF_ONE_PROCESS}


def scenario_words(project: Path, path: str) -> list[str]:
    """Return the command of a molecule scenario that starts the operator, up to the redirections."""
    tasks = yaml.safe_load((project / path).read_text())
    (command,) = [each["ansible.builtin.shell"]["cmd"] for each in tasks if "ansible.builtin.shell" in each]
    words = shlex.split(re.sub(r"\{\{ (\w+) \}\}", r"\1", command).partition(">")[0])
    return words[words.index("rolecall") :]


def test_generated_deployments_and_that_of_the_samples_start_the_same_program(tmp_path: Path) -> None:
    ours, theirs = container_of(list(documents("deploy/operator/*.yaml"))), deployed(generated_project(tmp_path))
    assert tuple(ours["command"]) == tuple(theirs["command"]) == (*INIT, "rolecall", "run")
    (version,) = documents("deploy/olm/bundle/manifests/*.clusterserviceversion.yaml")
    (deployment,) = version["spec"]["install"]["spec"]["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["command"], container["args"]) == (ours["command"], ours["args"])


def test_settings_of_the_operators_of_the_tests_are_those_of_the_deployment() -> None:
    assert "run" in ROLECALL
    words = list(ROLECALL[ROLECALL.index("run") + 1 :])
    assert difference(container_of(list(documents("deploy/operator/*.yaml"))), words) == {}


def test_settings_of_the_demo_are_those_of_the_deployment(tmp_path: Path) -> None:
    """Its process, without flags of the demo's own."""
    source = ast.parse((ROOT / "src/rolecall/workbench/project/demo_inputs.py").read_text())
    lists = [ast.unparse(node) for node in ast.walk(source) if isinstance(node, ast.List)]
    (command,) = [text for text in lists if "'rolecall', 'run'" in text]
    assert OperatorProcess(tmp_path, tmp_path, tmp_path).arguments == ()
    words = re.findall(r"'(--?[\w-]+|\w+)'", command.partition("'run'")[2])
    assert difference(deployed(generated_project(tmp_path / "web")), words) == {}


@pytest.mark.parametrize("which", ["generated", "samples"])
def test_settings_of_a_molecule_scenario_are_those_of_the_deployment(which: str, tmp_path: Path) -> None:
    project = generated_project(tmp_path / "web") if which == "generated" else ROOT
    folder = "molecule/default/tasks" if which == "generated" else "molecule/shared/tasks"
    program, run, *words = scenario_words(project, f"{folder}/operator_up.yml")
    assert (program, run) == ("rolecall", "run")
    assert difference(deployed(project), words) == {}


@pytest.mark.parametrize("project", [ADVANCED, MEMCACHED], ids=lambda project: project.name)
def test_projects_of_the_operator_sdk_keep_the_entry_point_of_the_image(project: Project, tmp_path: Path) -> None:
    operator = project.operator(ControlPlane("none", state_directory=tmp_path), tmp_path, "")
    _, _, program, *arguments = entry_point()
    assert Path(operator.command[0]).name == Path(program).name == "ansible-operator"
    assert set(arguments) - set(operator.command) <= set(operator.arguments)


def project_tests() -> list[Path]:
    """Return the tests of guides, and those that generate or deploy a project."""
    guides = {ROOT / each.test for each in GUIDES}
    paths = [path for part in ("integration", "e2e", "release") for path in (ROOT / "tests" / part).glob("test_*.py")]
    return [path for path in sorted(paths) if path in guides or PROJECT_TESTS.search(path.read_text())]


def starts(path: Path) -> Iterator[tuple[str, int]]:
    """Yield what a test contains that starts an operator, and its line."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := STARTS.search(node.value)):
            if id(node) not in docstrings:
                yield found[0], node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in CLASSES:
            yield ast.unparse(node.func), node.lineno
        elif isinstance(node, ast.Name) and node.id in ("ROLECALL", "ANSIBLE_OPERATOR"):
            yield node.id, node.lineno
        elif isinstance(node, ast.Tuple | ast.List | ast.Call) and (found := STARTS.search(ast.unparse(node))):
            yield found[0], node.lineno


def test_tests_of_guides_and_projects_start_operators_only_as_their_manifests_do() -> None:
    paths = project_tests()
    assert ROOT / "tests/integration/test_deploy_guide.py" in paths
    found = [(str(path.relative_to(ROOT)), what, line) for path in paths for what, line in starts(path)]
    others = [each for each in found if each[:2] not in ALLOWED]
    assert others == [], "start the container of the Deployment: tests/integration/containers.py"
    assert {each[:2] for each in found} == set(ALLOWED), "an entry of ALLOWED without a place"


@pytest.mark.parametrize(
    "text",
    [
        'OPERATOR = "account=x\\nrolecall run --kubeconfig $account &"',
        'COMMAND = ("ansible-operator", "run")',
        'subprocess.Popen(["rolecall", "run", "--leader-elect"])',
        "operators.Operator(directory, kubeconfig)",
        "command = ROLECALL",
    ],
)
def test_other_starts_are_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "test.py").write_text(text)
    assert list(starts(tmp_path / "test.py"))
