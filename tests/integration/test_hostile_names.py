"""Objects with any name that the API server accepts are reconciled: their runs have paths and variables without it."""

import sys
from pathlib import Path

import pytest

from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.runs.workspace import workspaces_of
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import ANSIBLE_OPERATOR, EVERY_NAMESPACE, ROLECALL, Operator
from tests.support.things import write_role
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, eventually

CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")
LABEL = "rolecall.dev/test"
WATCH = """
- group: rbac.authorization.k8s.io
  version: v1
  kind: ClusterRole
  CONTENT
  manageStatus: false
  markUnsafe: true
  selector: {matchLabels: {LABEL: NAMESPACE}}
"""
PLAYBOOK = "- hosts: all\n  gather_facts: false\n  roles: [thing]\n"
# The lookup lists objects, because the client of kubernetes.core puts the name of a single one into the URL unquoted.
TASKS = """
- name: Let a shell print
  ansible.builtin.shell: test -f "$KUBECONFIG" && printf '%s' "$NAME"
  environment: {NAME: "{{ ansible_operator_meta.name }}"}
  register: shell
- name: Write a file
  ansible.builtin.copy:
    dest: "{{ inventory_dir | dirname }}/copied"
    content: "{{ ansible_operator_meta.name }}"
    mode: "600"
- name: Write from a template
  ansible.builtin.template: {src: name.j2, dest: "{{ inventory_dir | dirname }}/templated", mode: "600"}
- name: Run a job in the background
  ansible.builtin.command: {cmd: "cat {{ (inventory_dir | dirname + '/copied') | quote }}"}
  async: 60
  poll: 1
  register: job
- name: Keep what was found
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "of-{{ me.metadata.uid }}", namespace: NAMESPACE}
      data:
        shell: "{{ shell.stdout }}"
        job: "{{ job.stdout }}"
        templated: "{{ lookup('file', inventory_dir | dirname + '/templated') }}"
        read: "{{ found | map(attribute='metadata.name') | select('equalto', ansible_operator_meta.name) | first }}"
  vars:
    me: "{{ _rbac_authorization_k8s_io_clusterrole }}"
    found: "{{ query('kubernetes.core.k8s', api_version='rbac.authorization.k8s.io/v1', kind='ClusterRole',
      label_selector='LABEL=NAMESPACE') }}"
"""


NAMES = (
    *("a:b&c#d?e,f\\g;h", "a'b\"c  d", "{{ x }}", "a\nb", "$HOME `id` ~ *", "ä☃"),
    *("n" * 240, "☃" * 240, ":" * 240),
)
"""Each follows the name of the test's namespace. A run has all characters of a name in the same places."""

CASES = {
    "warm": (ROLECALL, (), "role: thing"),
    "cold": (ROLECALL, ("--warm=false",), "playbook: play.yml"),
    "ansible-operator": (
        ANSIBLE_OPERATOR,
        ("--proxy-port=0", "--health-probe-bind-address=0", "--user-metrics-port=0"),
        "role: thing",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_objects_with_any_name_are_reconciled(
    world: World, defined: ControlPlane, tmp_path: Path, case: str
) -> None:
    """Even in a project directory and with a virtual environment whose paths have spaces."""
    command, arguments, content = CASES[case]
    directory = tmp_path / "a project"
    (directory / "roles" / "thing" / "templates").mkdir(parents=True)
    (tmp_path / "a venv").symlink_to(sys.prefix)
    watch = WATCH.replace("CONTENT", content).replace("LABEL", LABEL).replace("NAMESPACE", world.namespace)
    (directory / "watches.yaml").write_text(watch)
    (directory / "play.yml").write_text(PLAYBOOK)
    write_role(directory, TASKS.replace("LABEL", LABEL).replace("NAMESPACE", world.namespace))
    (directory / "roles/thing/templates/name.j2").write_text("{{ ansible_operator_meta.name }}")
    names = [f"{world.namespace}{name}" for name in (NAMES if case == "warm" else NAMES[:7])]
    uids = {}
    for name in names:
        metadata = {"name": name, "labels": {LABEL: world.namespace}}
        obj = {"apiVersion": CLUSTER_ROLE.api_version, "kind": CLUSTER_ROLE.kind, "metadata": metadata, "rules": []}
        uids[name] = uid_of(await world.client.create(obj))
    work = tmp_path / "work"
    options = ("--zap-log-level=debug", "--metrics-bind-address=0", "--watches-file=./watches.yaml")
    records = ("--record-dir", str(directory / "records"))
    operator = Operator(
        directory,
        defined.kubeconfig,
        EVERY_NAMESPACE,
        (*arguments, *options, "--work-dir", str(work), *records),
        {"VIRTUAL_ENV": str(tmp_path / "a venv")},
        command,
    )
    operator.start()
    try:
        await wait_until_ready(operator)
        for name, uid in uids.items():
            kept = await world.wait_for(CONFIG_MAP, f"of-{uid}", bool)
            assert kept["data"] == {"shell": name, "job": name, "templated": name, "read": name}
        assert sorted(workspaces_of(work, CLUSTER_ROLE)) == sorted(ObjectKey("", name) for name in names)
        for name in names:
            await world.client.delete(CLUSTER_ROLE, ObjectKey("", name))

        async def left() -> list[ObjectKey]:
            return workspaces_of(work, CLUSTER_ROLE)

        await eventually(left, lambda keys: keys == [], TIMEOUT_SECONDS, "the workspaces go with the objects")
        assert operator.messages("Failed to write an Event") == []
    finally:
        assert operator.stop() == 0
