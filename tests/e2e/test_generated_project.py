"""A project of ``rolecall init`` and ``rolecall create api``, from its image to ``make uninstall``.

Nothing but its own Makefile builds and deploys it, on the runner image. Its kind Website has a finalizer, so the order
of the removal matters. The tests build on each other in this order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Cluster, Document, eventually, is_true
from tests.e2e.reader import Reader
from tests.guides import RECORDS_IN_A_CLUSTER, guide

IMAGE = "localhost/web:e2e"
UPGRADED = "localhost/web:e2e-upgraded"
NAMESPACE = "web-system"
KINDS = {"website": "--generate-role", "policy": "--generate-playbook"}
RBAC = "deploy/rbac"
FINALIZER = "  finalizer: {name: web.example.com/cleanup, role: cleanup}\n"
CLEANUP = """
- name: Leave a trace of the cleanup
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: cleaned, namespace: default}
"""
REFUSAL = """
- name: Refuse a message
  ansible.builtin.assert: {that: message != "refused"}
"""
FOOTER = '        footer: "{{ footer }}"\n'
OPTION = "      footer: {type: str, default: none, description: The text below the message.}\n"
MESSAGES = {kind: f"Hello from {kind.title()}" for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Project:
    """A project and the cluster that it is for."""

    directory: Path
    cluster: Cluster

    def make(self, target: str, *variables: str) -> None:
        """Run a target of the project's own Makefile against the cluster."""
        self.cluster.make(target, "-C", str(self.directory), *variables)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a part of a file, which must occur once."""
        file = self.directory / path
        text = file.read_text()
        assert text.count(old) == 1, text
        file.write_text(text.replace(old, new))

    def build(self, image: str, runner: str) -> None:
        """Build an image, and load it into the cluster."""
        self.make("image", f"IMG={image}", f"RUNNER={runner}")
        self.cluster.load(image)

    def set_spec(self, **fields: str) -> None:
        """Change the spec of the Website."""
        patch = ("-p", yaml.safe_dump({"spec": fields}))
        self.cluster.kubectl("patch", "website/website-sample", "-n", "website-sample", "--type=merge", *patch)

    def data(self) -> Document:
        """Return the data of the Website's ConfigMap."""
        found: Document = self.sample("website", "configmap").get("data", {})
        return found

    def sample(self, kind: str, of: str) -> Document:
        """Return the sample of a kind, or its ConfigMap; empty when it is not there."""
        name = f"{kind}-sample" if of == kind else f"{kind}-sample-{kind}"
        return self.cluster.get(f"{of}/{name}", "-n", f"{kind}-sample")

    def written(self) -> dict[str, str]:
        """Return the contents of the samples' ConfigMaps, by kind."""
        return {kind: self.sample(kind, "configmap").get("data", {}).get("message") for kind in KINDS}

    def reported(self) -> dict[str, str]:
        """Return the statuses of the samples that are ready, by kind."""
        found = {kind: self.sample(kind, kind) for kind in KINDS}
        return {kind: obj["status"].get("message") for kind, obj in found.items() if is_true(obj, "Ready")}


@pytest.fixture(scope="module")
def web(cluster: Cluster, runner_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Yield a project with two kinds, deployed."""
    project = Project(tmp_path_factory.mktemp("generated") / "web", cluster)
    cluster.do("rolecall", "init", "--domain", "example.com", "web", "--directory", str(project.directory))
    for kind, content in KINDS.items():
        named = ("--group", "shop", "--version", "v1", "--kind", kind.title(), content)
        cluster.do("rolecall", "create", "api", *named, "--project", str(project.directory))
    project.edit("watches.yaml", "  role: website\n", f"  role: website\n{FINALIZER}")
    project.edit(
        f"{RBAC}/website.yaml", "resources: [websites]\n    verbs: [", "resources: [websites]\n    verbs: [update, "
    )
    for role, tasks in (("cleanup", CLEANUP), ("website", REFUSAL)):
        file = project.directory / f"roles/{role}/tasks/main.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        rest = file.read_text().removeprefix("---\n") if file.exists() else ""
        file.write_text(f"---{tasks}{rest}")
    project.build(IMAGE, runner_image)
    try:
        project.make("deploy", f"IMG={IMAGE}", "COMPONENTS=records")
        cluster.wait_for_rollout("web", NAMESPACE)
        yield project
    finally:
        project.make("undeploy")
        project.make("uninstall")


def test_every_sample_is_reconciled(web: Project) -> None:
    web.cluster.kubectl("apply", "-k", str(web.directory / "deploy/samples"))
    eventually(web.written, lambda seen: seen == MESSAGES, 240, "each sample has its ConfigMap")
    eventually(web.reported, lambda seen: seen == MESSAGES, 480, "each sample says so in its status")


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


def test_record_of_a_failure_is_read_in_the_pod(web: Project, tmp_path: Path) -> None:
    web.set_spec(message="refused")
    website = "website/website-sample", "-n", "website-sample"
    web.cluster.kubectl("wait", *website, "--for=condition=Failure", "--timeout=480s")
    page = Reader(guide("docs/guides/replay.md"), web.cluster, tmp_path)
    _, *commands = RECORDS_IN_A_CLUSTER
    # The record is written after the status.
    eventually(lambda: page.do_together(commands[:2]), lambda seen: "failed" in seen, 240, "the failure is recorded")
    listed = page.do_together(commands)
    assert "Website" in listed
    assert "failed" in listed
    shown = web.cluster.do("rolecall", "record", "show", str(tmp_path / "failure.jsonl"))
    assert "Refuse a message" in shown
    web.set_spec(message=MESSAGES["website"])
    web.cluster.kubectl("wait", *website, "--for=condition=Ready", "--timeout=480s")


def test_upgrade_applies_the_new_field_of_the_kind_before_the_role_that_uses_it(
    web: Project, runner_image: str
) -> None:
    web.edit(
        "roles/website/tasks/main.yml",
        '        message: "{{ message }}"\n',
        f'        message: "{{{{ message }}}}"\n{FOOTER}',
    )
    specs = web.directory / "roles/website/meta/argument_specs.yml"
    specs.write_text(specs.read_text() + OPTION)
    web.make("crds")
    web.build(UPGRADED, runner_image)
    web.make("deploy", f"IMG={UPGRADED}", "COMPONENTS=records")
    web.cluster.wait_for_rollout("web", NAMESPACE)
    eventually(web.data, lambda seen: seen.get("footer") == "none", 240, "the new role has run for the existing object")
    web.set_spec(footer="by us")
    eventually(web.data, lambda seen: seen.get("footer") == "by us", 480, "the new field has an effect")


def test_rollback_reconciles_existing_objects_and_keeps_the_new_field(web: Project) -> None:
    web.make("deploy", f"IMG={IMAGE}", "COMPONENTS=records")
    web.cluster.wait_for_rollout("web", NAMESPACE)
    web.set_spec(message="rolled back")
    eventually(web.data, lambda seen: seen.get("message") == "rolled back", 240, "the old role works")
    assert web.sample("website", "website")["spec"]["footer"] == "by us"


def test_removal_of_objects_before_the_operator_leaves_nothing(web: Project) -> None:
    web.cluster.kubectl("delete", "-k", str(web.directory / "deploy/samples"), "--timeout=240s")
    assert web.cluster.get("configmap/cleaned", "-n", "default"), "the finalizer's role has run"
    web.cluster.kubectl("delete", "configmap/cleaned", "-n", "default")
    web.make("undeploy", "COMPONENTS=records")
    users = {f"web-{kind}-{role}" for kind in KINDS for role in ("viewer", "editor")}
    assert of_project(web) == {"websites.shop.example.com", "policies.shop.example.com"} | users
    web.make("uninstall")
    assert of_project(web) == set()


def of_project(web: Project) -> set[str]:
    """Return the names of everything cluster-wide that is the project's."""
    kinds = "crd,clusterrole,clusterrolebinding,namespace"
    names = {each.rpartition("/")[2] for each in web.cluster.kubectl("get", kinds, "-o", "name").split()}
    samples = {f"{kind}-sample" for kind in KINDS}
    return {name for name in names if name.startswith("web-") or name.endswith(".shop.example.com") or name in samples}
