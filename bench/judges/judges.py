"""The judges: which cases a checkout gives, what they need, and where their outcomes are.

Each judge works on copies, because targets write next to their files and expect to be inside their collection.
"""

import difflib
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import kubernetes
import yaml
from bench.field_projects import copied, manager
from bench.judges import kubectl_commands
from bench.judges.runs import PROGRAMS, SDK_NAMESPACE, Case, Setting
from bench.judges.verdicts import DIRECT, DocumentedDifference, Outcome, State

Read = Callable[[Case], Mapping[str, Outcome]]
_SUPPORT: Final = (
    "helm",
    "install_helm",
    "kubeconfig",
    "push_to_helm_registry",
    "remove_namespace",
    "setup_helm_registry",
    "setup_kubeconfig",
    "setup_namespace",
)
"""Roles that other targets include; they have no playbook of their own."""
_STATES: Final = {"failure": State.FAILED, "error": State.FAILED, "skipped": State.SKIPPED}
"""The state of a test by the elements that JUnit's format has in it."""
_RESULTS: Final = "judge_results"
"""The variable with the file for results of a playbook that runs several cases."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The cases of a column, what they share, and the project whose operator they expect, if they do.

    `variables` and `arguments` are those of the operator only.
    """

    cases: list[Case]
    setting: Setting
    project: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()


Prepare = Callable[[Path, Path, str, Sequence[Path]], Prepared]
"""Called with the checkout, an empty directory, the column, and directories with programs."""


class CheckoutError(Exception):
    """A checkout is missing, or isn't one of the expected project."""


@dataclass(frozen=True, slots=True)
class Judge:
    """One judge: its checkout below the directory of checkouts, and how its cases are made and read.

    `prepare` copies what a column needs of the checkout into an empty directory. The playbook of a judge with `read`
    runs a whole suite, whose outcomes this returns; it must not fail itself.
    """

    name: str
    directory: str
    proof: str
    prepare: Prepare
    read: Read | None = None
    differences: Mapping[str, DocumentedDifference] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    def checkout(self, directory: Path) -> Path:
        """Return the path of the checkout. Raises CheckoutError."""
        path = directory / self.directory
        if not (path / self.proof).exists():
            missing = "no such directory" if not path.is_dir() else f"it has no {self.proof}"
            raise CheckoutError(f"{path} isn't a checkout for {self.name}: {missing}")
        return path


def _write_playbook(path: Path, tasks: Iterable[Mapping[str, Any]], **keys: object) -> Path:
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, **keys, "tasks": list(tasks)}
    path.write_text(yaml.safe_dump([play], sort_keys=False))
    return path


def _collection(checkout: Path, stage: Path, name: str) -> Path:
    """Copy a collection's checkout to where Ansible finds it, and return the copy."""
    target = stage / "ansible_collections" / name.replace(".", "/")
    return copied(checkout, target)


def _kubernetes_core(checkout: Path, stage: Path, _column: str, programs: Sequence[Path]) -> Prepared:
    """Return the integration targets, each with its own playbook."""
    targets = _collection(checkout, stage, "kubernetes.core") / "tests/integration/targets"
    cases = []
    for target in sorted(targets.iterdir()):
        found = [target / name for name in ("playbook.yaml", "playbooks/play.yaml", "play.yaml")]
        playbook = next((each for each in found if each.exists()), None)
        if playbook:
            cases.append(_target(target, playbook))
        elif target.name not in _SUPPORT:
            raise CheckoutError(f"{checkout}: the target {target.name} has no playbook that this command knows")
    cases += _parts_of_helm(targets / "helm", stage)
    environment = {"ANSIBLE_COLLECTIONS_PATH": str(stage), "ANSIBLE_ROLES_PATH": str(targets)}
    return Prepared(cases, Setting(stage, environment, programs))


def _target(target: Path, playbook: Path) -> Case:
    """Return the case of a target; an inventory, which runs can't have, names versions of helm."""
    inventory = target / "inventory.ini"
    if not inventory.exists():
        return Case(target.name, playbook)
    host = next(line for line in inventory.read_text().splitlines() if line and line[0] not in "[#")
    variables = {} if " " in host else {"helm_version": host}
    return Case(target.name, playbook, variables, inventory)


def _parts_of_helm(role: Path, stage: Path) -> list[Case]:
    """Return the task files of the role helm, which as a whole needs charts from the internet."""
    cases = []
    for path in sorted((role / "tasks").glob("test_*.yml")):
        include = {"name": "helm", "tasks_from": path.stem}
        playbook = _write_playbook(stage / f"helm-{path.stem}.yml", [{"include_role": include}], gather_facts=True)
        variables = {"helm_binary": "helm", "helm_version": "v4.3.1"}
        cases.append(Case(f"helm, {path.stem}", playbook, variables))
    return cases


def _util(*, original: bool) -> Prepare:
    def prepare(checkout: Path, stage: Path, column: str, programs: Sequence[Path]) -> Prepared:
        """Return the task files of the molecule scenario, each as a playbook with the head of converge.yml."""
        scenario = _collection(checkout, stage, "operator_sdk.util") / "molecule/default"
        cases = []
        for path in sorted((scenario / "tasks").glob("*.yml")):
            namespace = f"judge-{path.stem.replace('_', '-')}"
            tasks: list[dict[str, Any]] = [
                {"k8s": {"src": str(scenario / "files/crd.yaml"), "wait": True}},
                {"k8s": {"kind": "Namespace", "name": namespace}},
                {"import_tasks": str(path), "vars": {"namespace": namespace}},
            ]
            collections = ["kubernetes.core", "operator_sdk.util"]
            playbook = _write_playbook(stage / f"{path.stem}.yml", tasks, collections=collections)
            cases.append(Case(path.stem, playbook))
        environment = {"ANSIBLE_ALLOW_BROKEN_CONDITIONALS": "true"}  # the tests are older than ansible-core 2.19
        if original or column == DIRECT:
            environment["ANSIBLE_COLLECTIONS_PATH"] = str(stage)
        return Prepared(cases, Setting(stage, environment, programs))

    return prepare


def _sdk(name: str) -> Prepare:
    def prepare(checkout: Path, stage: Path, column: str, programs: Sequence[Path]) -> Prepared:
        """Return the task files that the project's scenario "default" includes in its verify.yml."""
        project = _project(checkout / "testdata" / name, stage)
        variables = {
            "namespace": SDK_NAMESPACE,
            "config_dir": str(project / "config"),
            "samples_dir": str(project / "config/samples"),
            "molecule_yml": {"scenario": {"name": "default"}},
        }
        cases = []
        for path in sorted((project / "molecule/default/tasks").glob("*_test.yml")):
            tasks = [{"include_tasks": str(path)}]
            playbook = _write_playbook(stage / path.name, tasks, collections=["kubernetes.core"])
            cases.append(Case(path.stem.removesuffix("_test"), playbook, variables))
        environment = {"ANSIBLE_ROLES_PATH": str(project / "roles"), "ANSIBLE_COLLECTIONS_PATH": str(stage)}
        util = checkout.parent / "operator-sdk-ansible-util"
        if column == DIRECT and util.is_dir():  # for the peer, which has no collections of its own
            _collection(util, stage, "operator_sdk.util")
            installed = Path(kubernetes.__file__).parents[1] / "ansible_collections/kubernetes"
            (stage / "ansible_collections/kubernetes").symlink_to(installed)
        variables_of_manager, arguments = manager(project, {})
        own = {key: value for key, value in variables_of_manager.items() if key != "WATCH_NAMESPACE"}
        if (project / "ansible.cfg").exists():  # the Dockerfile of "advanced" copies it to /etc/ansible
            own["ANSIBLE_CONFIG"] = str(project / "ansible.cfg")
        return Prepared(cases, Setting(stage, environment, programs), project, own, arguments)

    return prepare


def _project(source: Path, stage: Path) -> Path:
    """Copy a project of the Operator SDK as its Dockerfile does, with the copy as its home directory."""
    project = copied(source, stage / source.name)
    (stage / "tmp").mkdir()  # a role keeps there that it has run, and each image has its own
    for path in (
        each
        for each in project.rglob("*")
        if each.is_file()
        and not each.is_symlink()
        and (each.suffix in (".cfg", ".yaml", ".yml") or each.name == "hosts")
    ):
        text = path.read_text().replace("/tmp/", f"{stage}/tmp/")  # noqa: S108 -- replaced, not used
        text = text.replace("/opt/ansible", str(project))
        path.write_text(text.replace("/usr/local/bin/python3", sys.executable))
    if (project / "fixture_collection").is_dir():  # further steps of the Dockerfile of "advanced"
        _collection(project / "fixture_collection", stage, "operator_sdk.test_fixtures")
        (project / "pwd.yml").write_text("abc123\n")
        command = [str(PROGRAMS / "ansible-vault"), "encrypt_string", f"--vault-password-file={project / 'pwd.yml'}"]
        with (project / "vars.yml").open("wb") as variables:
            subprocess.run([*command, "thisisatest", "--name", "the_secret"], stdout=variables, check=True)
    return project


def _suite(command: Sequence[str], chdir: Path, environment: Mapping[str, str], playbook: Path) -> Path:
    """Write a playbook that runs a suite of tests, whose results, not its exit code, count."""
    tasks = [
        {
            "name": "Run the suite",
            "ansible.builtin.command": {"argv": list(command), "chdir": str(chdir)},
            "environment": dict(environment),
            "register": "suite",
            "failed_when": "suite.rc not in [0, 1]",
        }
    ]
    return _write_playbook(playbook, tasks)


def _python(checkout: Path, stage: Path, _column: str, programs: Sequence[Path]) -> Prepared:
    """Return the tests that need a cluster, with the installed client, which is that of the runs."""
    package = stage / "kubernetes"
    package.mkdir()
    for path in Path(kubernetes.__file__).parent.iterdir():
        if path.name == "dynamic":
            shutil.copytree(path, package / path.name)
        else:
            (package / path.name).symlink_to(path)
    shutil.copytree(checkout / "kubernetes/e2e_test", package / "e2e_test")
    for path in (checkout / "kubernetes/base/dynamic").glob("test_*.py"):
        shutil.copy(path, package / "dynamic")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout=120", "-q"]
    command += ["--continue-on-collection-errors", f"--junitxml={{{{ {_RESULTS} }}}}"]
    command += ["kubernetes/dynamic", "kubernetes/e2e_test"]
    playbook = _suite(command, stage, {"PYTHONPATH": str(stage)}, stage / "suite.yml")
    return Prepared([Case("tests", playbook, {_RESULTS: str(stage / _RESULTS)})], Setting(stage, {}, programs))


def _read_junit(case: Case) -> Mapping[str, Outcome]:
    """Return the outcome of each test."""
    found = {}
    for test in ET.parse(case.variables[_RESULTS]).iter("testcase"):  # noqa: S314 -- pytest wrote it a moment ago
        other = next((each for each in test if each.tag in _STATES), None)
        state = State.PASSED if other is None else _STATES[other.tag]
        message = "" if other is None else other.get("message", "")
        name = f"{test.get('classname', '').removeprefix('kubernetes.')}.{test.get('name')}"
        found[name] = Outcome(state, float(test.get("time", 0)), message=message)
    return found


def _kubectl(_checkout: Path, stage: Path, _column: str, programs: Sequence[Path]) -> Prepared:
    """Return a suite of kubectl commands; it needs no checkout."""
    command = [sys.executable, kubectl_commands.__file__, f"{{{{ {_RESULTS} }}}}"]
    playbook = _suite(command, stage, {}, stage / "suite.yml")
    return Prepared([Case("commands", playbook, {_RESULTS: str(stage / _RESULTS)})], Setting(stage, {}, programs))


def _read_commands(case: Case) -> Mapping[str, Outcome]:
    """Return the outcome of each command: it passes if exit code and output equal those of the direct column."""
    path = Path(case.variables[_RESULTS])
    expected = json.loads((path.parents[1] / DIRECT / path.name).read_text())
    found = {}
    for command, (code, output) in json.loads(path.read_text()).items():
        lines = [f"exit code {code}", *output.splitlines()]
        direct_code, direct_output = expected.get(command, (None, ""))
        before = [f"exit code {direct_code}", *direct_output.splitlines()]
        changes = [line for line in difflib.ndiff(before, lines) if line[0] in "-+"]
        found[command] = Outcome(State.FAILED if changes else State.PASSED, message=" ".join(changes))
    return found


JUDGES: Final = (
    Judge(
        "kubernetes.core",
        "kubernetes.core",
        "tests/integration/targets",
        _kubernetes_core,
        differences={
            "k8s_apply": DocumentedDifference(
                "assert that operation failed with conflicts",
                "the first manager of an applied object keeps managing the owner reference that the proxy has added",
            ),
            "k8s_full": DocumentedDifference(
                "assert that validate_certs caused a failure (and therefore was correctly translated to verify_ssl)",
                "the proxy of a run serves HTTP on loopback, so it has no certificate that an authority could reject",
            ),
            "k8s_user_impersonation": DocumentedDifference(
                "Create Pod using user_01 credentials",
                "the proxy of a run accepts no credentials other than those of the run",
            ),
        },
    ),
    Judge("operator_sdk.util", "operator-sdk-ansible-util", "molecule/default/tasks", _util(original=True)),
    Judge(
        "operator_sdk.util by rolecall.util",
        "operator-sdk-ansible-util",
        "molecule/default/tasks",
        _util(original=False),
    ),
    *(
        Judge(
            f"Operator SDK: {name}",
            "ansible-operator-plugins",
            f"testdata/{name}-molecule-operator/molecule/default",
            _sdk(f"{name}-molecule-operator"),
        )
        for name in ("memcached", "advanced")
    ),
    Judge(
        "Python client",
        "python",
        "kubernetes/e2e_test",
        _python,
        _read_junit,
        differences={
            "dynamic.test_client.TestDynamicClient.test_node_apis_partial_object_metadata": DocumentedDifference(
                "", "for an HTTP proxy, urllib3 moves Accept before the other spelling of this header"
            )
        },
    ),
    Judge("kubectl", "", "", _kubectl, _read_commands, arguments=("--inject-owner-ref=false",)),
)
