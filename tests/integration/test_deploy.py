"""``make install``, ``deploy``, ``undeploy`` and ``uninstall`` on an empty cluster, with each component.

The nodes are simulated: the API server accepts everything, the pods are admitted, and the deployed container runs next
to the control plane, with the permissions of its account.
"""

import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.cli.validate import container_settings
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.binaries import find_binaries
from rolecall.workbench.project.scaffold import NewKind, create_api, init_project
from tests.integration.containers import Container
from tests.integration.operators import copy_project
from tests.support.world import TIMEOUT_SECONDS, eventually

DIGEST = "0123456789abcdef" * 4
IMAGES = (
    "registry.example/rolecall:1.2.3",
    "registry.example:5000/team/rolecall",
    f"registry.example:5000/team/rolecall:1.2.3@sha256:{DIGEST}",
)
IMAGE = IMAGES[0]
ACCOUNT = "system:serviceaccount:rolecall-system:rolecall"
TIMEOUT = f"--timeout={TIMEOUT_SECONDS:.0f}s"
CREATED = ("crd", "clusterrole", "clusterrolebinding", "namespace")
Run = Callable[..., str]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def empty() -> Iterator[ControlPlane]:
    with ControlPlane(f"deploy-{os.getpid()}") as running:
        yield running


def runner(kubeconfig: Path, directory: Path) -> Run:
    """Return a function that runs commands in a directory, with kubectl on PATH."""
    programs = find_binaries(print)["kubectl"].parent
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{programs}:{os.environ['PATH']}"}

    def run_command(*command: str) -> str:
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_command


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the deployment: ``make deploy`` writes ``.deploy``, and so do other tests at the same time."""
    directory = tmp_path_factory.mktemp("repository")
    copy_project(directory, "Makefile", "deploy")
    return directory


@pytest.fixture(scope="module")
def run(empty: ControlPlane, repository: Path) -> Run:
    """Return a way to run commands of this repository against the empty cluster."""
    return runner(empty.kubeconfig, repository)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project of ``rolecall init`` with a kind."""
    directory = tmp_path_factory.mktemp("generated") / "web"
    init_project(directory, "web", "example.com").write()
    create_api(directory, NewKind("shop", "v1", "Website", with_role=True)).write()
    return directory


def ours(run: Run) -> set[str]:
    """Return our objects in the cluster."""
    found = run("kubectl", "get", ",".join(CREATED), "-o", "name").split()
    return {name for name in found if "rolecall" in name or "customresourcedefinition" in name}


def deployment(run: Run) -> Document:
    found: Document = json.loads(run("kubectl", "get", "deployment/rolecall", "-n", "rolecall-system", "-o", "json"))
    return found


def components(project: Path) -> list[str]:
    return sorted(path.name for path in (project / "deploy/components").iterdir())


async def wait_until_permitted(run: Run, *question: str) -> None:
    """Wait until ``kubectl auth can-i`` answers yes: the API server applies new RBAC rules after a moment."""

    async def look() -> str:
        return run("sh", "-c", 'kubectl auth can-i "$@" || true', "sh", *question).strip()

    await eventually(look, "yes".__eq__, TIMEOUT_SECONDS, " ".join(question))


def built(project: Path, names: tuple[str, ...], run: Run) -> list[Document]:
    """Return the objects of the deployment with components."""
    overlay = project / ".deploy/test"
    overlay.mkdir(parents=True, exist_ok=True)
    kustomization = {"resources": ["../../deploy"], "components": [f"../../deploy/components/{name}" for name in names]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return list(yaml.safe_load_all(run("kubectl", "kustomize", str(overlay))))


@pytest.mark.parametrize("which", ["repository", "web"])
def test_any_components_combine_and_the_operator_accepts_their_flags(
    which: str, web: Path, repository: Path, empty: ControlPlane
) -> None:
    project = web if which == "web" else repository
    run = runner(empty.kubeconfig, project)
    every = components(project)
    for names in itertools.chain.from_iterable(itertools.combinations(every, size) for size in (0, 1, 2, len(every))):
        objects = built(project, names, run)
        (deployed,) = [each for each in objects if each["kind"] == "Deployment"]
        (container,) = deployed["spec"]["template"]["spec"]["containers"]
        settings = container_settings(container)
        assert settings is not None, container
        found = {
            "dashboard": bool(settings.ui_bind_address.strip("0")),
            "records": settings.record_directory is not None,
            "secure-metrics": settings.metrics_require_rbac,
            "shards": bool(settings.shards),
            "monitoring": "ServiceMonitor" in {each["kind"] for each in objects},
            "namespaced": "Namespace" not in {each["kind"] for each in objects},
        }
        assert {name for name, is_used in found.items() if is_used} == {*names} - {"podcount"}, names


def test_namespaced_operator_has_no_permissions_in_the_cluster_except_for_tokens_of_clients(
    web: Path, repository: Path, run: Run
) -> None:
    others = [name for name in components(web) if name != "namespaced"]
    objects = built(web, (*others, "namespaced"), run)
    roles = {each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"}
    bound = {each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"}
    assert roles == {"web-metrics-auth", "web-metrics-reader", "web-website-viewer", "web-website-editor"}
    assert bound == {"web-metrics-auth"}
    others = [name for name in components(repository) if name != "namespaced"]
    objects = built(repository, (*others, "namespaced"), run)
    assert {each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"} == {
        "rolecall-metrics-auth"
    }


async def test_namespaced_operator_reconciles_with_its_roles_alone(
    web: Path, empty: ControlPlane, tmp_path: Path
) -> None:
    run = runner(empty.kubeconfig, web)
    overlay = web / "deploy/shop"
    overlay.mkdir()
    kustomization = {
        "namespace": "shop",
        "resources": ["../operator"],
        "components": ["../components/namespaced", "../components/shards"],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    run("kubectl", "create", "namespace", "shop")
    run("make", "deploy", "DEPLOY=deploy/shop")
    account = "system:serviceaccount:shop:web"
    await wait_until_permitted(run, "list", "websites.shop.example.com", "--as", account, "-n", "shop")
    sample = next(yaml.safe_load_all((web / "deploy/samples" / "website.yaml").read_text().split("---\n")[-1]))
    sample["metadata"]["namespace"] = "shop"
    (tmp_path / "sample.yaml").write_text(yaml.safe_dump(sample))
    run("kubectl", "apply", "-f", str(tmp_path / "sample.yaml"))
    container = Container.deployed(empty.kubeconfig, "shop", "web")
    assert "--shards=12" in container.words
    operator = container.operator(empty, web)
    assert operator.variables()["WATCH_NAMESPACE"] == "shop"
    operator.start()
    try:
        run("kubectl", "wait", "website/website-sample", "-n", "shop", "--for=condition=Ready", TIMEOUT)
    finally:
        operator.stop()
    log = operator.log_file.read_text()
    assert "forbidden" not in log.lower(), log
    run("kubectl", "delete", "-f", str(tmp_path / "sample.yaml"))
    run("make", "undeploy", "DEPLOY=deploy/shop")
    assert run("kubectl", "get", "namespace/shop", "-o", "name").strip() == "namespace/shop"
    run("make", "uninstall")


async def test_users_with_the_role_view_or_edit_have_it_for_the_kinds(web: Path, empty: ControlPlane) -> None:
    """Kubernetes aggregates the ClusterRoles viewer and editor."""
    run = runner(empty.kubeconfig, web)
    run("make", "install")
    for name in ("view", "edit"):
        run("kubectl", "create", "rolebinding", name, f"--clusterrole={name}", f"--user={name}", "-n", "default")
    ask = ("auth", "can-i", "--list", "--no-headers", "-n", "default", "--as")

    async def verbs() -> dict[str, str]:
        lines = {user: run("kubectl", *ask, user).splitlines() for user in ("view", "edit")}
        return {user: line for user in lines for line in lines[user] if line.startswith("websites.shop.example.com")}

    found = await eventually(verbs, lambda seen: len(seen) == 2, TIMEOUT_SECONDS, "both roles have the kind")
    assert "list" in found["view"]
    assert "delete" not in found["view"]
    assert "delete" in found["edit"]
    run("make", "uninstall")


def test_one_command_fills_an_empty_cluster_and_its_pods_are_admitted(run: Run) -> None:
    applied = run("kubectl", "apply", "--server-side", "-k", "deploy/").split()
    assert "deployment.apps/rolecall" in applied
    # The namespace enforces the level "restricted"; a pod that violates it would never come.
    run("kubectl", "rollout", "status", "deployment/rolecall", "-n", "rolecall-system", "--timeout=600s")
    assert run("kubectl", "get", "pods", "-n", "rolecall-system", "-o", "name").count("pod/") == 2


@pytest.mark.parametrize("image", IMAGES)
def test_make_deploy_takes_any_image(run: Run, image: str) -> None:
    run("make", "deploy", f"IMG={image}")
    (container,) = deployment(run)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image


def test_make_deploy_without_an_image_keeps_that_of_the_kustomization(run: Run, web: Path) -> None:
    overlay = web / "deploy/pinned"
    overlay.mkdir()
    pinned = {"resources": ["../operator"], "images": [{"name": "localhost/web", "newName": "registry.example/web"}]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(pinned))
    run("make", "-C", str(web), ".deploy", "DEPLOY=deploy/pinned")
    assert "image: registry.example/web:dev" in run("kubectl", "kustomize", str(web / ".deploy"))


@pytest.mark.parametrize("image", IMAGES)
def test_make_deploy_of_a_project_takes_any_image(run: Run, web: Path, image: str) -> None:
    run("make", "-C", str(web), ".deploy", f"IMG={image}")
    assert f"image: {image}\n" in run("kubectl", "kustomize", str(web / ".deploy"))


async def test_make_deploy_takes_components(run: Run) -> None:
    run("make", "deploy", f"IMG={IMAGE}", "COMPONENTS=secure-metrics podcount shards dashboard records")
    spec = deployment(run)["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    assert {"--metrics-require-rbac", "--shards=12", "--ui-bind-address=127.0.0.1:8090", "--record-dir=/records"} <= {
        *container["args"]
    }
    assert spec["replicas"] == 3
    assert "clusterrole.rbac.authorization.k8s.io/rolecall-podcount" in ours(run)
    await wait_until_permitted(run, "list", "leases", "-n", "rolecall-system", "--as", ACCOUNT)


def test_samples_become_ready_by_the_deployed_container(run: Run, repository: Path, empty: ControlPlane) -> None:
    copy_project(repository, "watches.yaml", "roles")
    operator = Container.deployed(empty.kubeconfig, "rolecall-system", "rolecall").operator(empty, repository)
    operator.start()
    try:
        run("kubectl", "apply", "-k", "deploy/samples")
        run("kubectl", "wait", "podscalers,hikawas,foos", "--all", "-A", "--for=condition=Ready", TIMEOUT)
        run("kubectl", "delete", "-k", "deploy/samples")
    finally:
        operator.stop()


def test_undeploy_leaves_the_kinds_and_uninstall_nothing(run: Run) -> None:
    run("make", "undeploy")
    left = {name for name in ours(run) if not name.endswith(("-viewer", "-editor"))}
    assert len(left) == 5
    assert all(name.startswith("customresourcedefinition") for name in left)
    run("make", "undeploy")
    run("make", "uninstall")
    assert ours(run) == set()


def test_make_install_defines_the_kinds_and_the_permissions_of_users(run: Run) -> None:
    run("make", "install")
    assert len(ours(run)) == 5 + 10
