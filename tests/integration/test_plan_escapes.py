"""Roles that try to get around a plan, with an administrator's credentials in their hands: nothing is changed."""

import asyncio
import uuid
from collections.abc import Mapping

import pytest
import yaml

from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan.model import ObjectPlan
from tests.integration.planned import COMMON, Project, clear, plan_of, primary
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.support.things import KINDS
from tests.support.world import CONFIG_MAP, names

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

MARK = """
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "escaped-{{ me }}", namespace: "{{ ns }}"}
"""
CLIENT = '''"""Writes by a client of its own."""
import sys
from kubernetes import client, config

config.load_kube_config(config_file=sys.argv[1])
made = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="escaped-" + sys.argv[3]))
client.CoreV1Api().create_namespaced_config_map(sys.argv[2], made)
'''
MODULE = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from kubernetes import client, config

module = AnsibleModule({"kubeconfig": {}, "namespace": {}, "name": {}})
config.load_kube_config(config_file=module.params["kubeconfig"])
made = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="escaped-" + module.params["name"]))
client.CoreV1Api().create_namespaced_config_map(module.params["namespace"], made)
module.exit_json(changed=True)
"""
TRIES: Mapping[str, str] = {
    "kubeconfig": f"""
  kubernetes.core.k8s:
    kubeconfig: "{{{{ admin }}}}"
{MARK}""",
    "host": f"""
  kubernetes.core.k8s:
    host: "{{{{ host }}}}"
    api_key: stolen
    validate_certs: false
{MARK}""",
    "environment": f"""
  kubernetes.core.k8s:
{MARK}
  environment: {{K8S_AUTH_KUBECONFIG: "{{{{ admin }}}}"}}
""",
    "server": f"""
  kubernetes.core.k8s:
{MARK}
  environment: {{KUBERNETES_SERVICE_HOST: "{{{{ host | urlsplit('hostname') }}}}"}}
""",
    "uri": """
  ansible.builtin.uri:
    url: "{{ host }}/api/v1/namespaces/{{ ns }}/configmaps"
    method: POST
    validate_certs: false
    headers: {Authorization: Bearer stolen}
    body_format: json
    body: {}
""",
    "exec": """
  kubernetes.core.k8s_exec: {namespace: "{{ ns }}", pod: any, command: touch /escaped}
""",
    "command": """
  ansible.builtin.command:
    argv: ["{{ ansible_playbook_python }}", "{{ client }}", "{{ admin }}", "{{ ns }}", "{{ me }}"]
""",
    "script": """
  ansible.builtin.script:
    cmd: "{{ client }} {{ admin }} {{ ns }} {{ me }}"
    executable: "{{ ansible_playbook_python }}"
""",
    "module": """
  sneak: {kubeconfig: "{{ admin }}", namespace: "{{ ns }}", name: "{{ me }}"}
""",
    "pipe": """
  ansible.builtin.debug:
    msg: "{{ lookup('pipe', [ansible_playbook_python, client, admin, ns, me] | join(' ')) }}"
""",
}
"""Ways to write past the sandbox, by their names."""

HARMLESS = frozenset({"server"})
"""Tasks that run, because the run's own kubeconfig takes precedence: their writes go to the sandbox."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, defined: ControlPlane) -> Project:
    """Return a project whose role has all of the tries."""
    directory = tmp_path_factory.mktemp("escapes")
    host = yaml.safe_load(defined.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    given = {"admin": str(defined.kubeconfig), "host": host, "client": str(directory / "client.py")}
    given |= {"me": "{{ ansible_operator_meta.name }}", "ns": "{{ ansible_operator_meta.namespace }}"}
    shared = Shared(
        {"escaping": Role(COMMON, yaml.safe_dump({"vars": given}))},
        files={
            "client.py": CLIENT,
            "roles/escaping/library/sneak.py": MODULE,
            **{f"roles/escaping/tasks/{name}.yml": f"- name: Escape{task}" for name, task in TRIES.items()},
        },
    )
    shared.operator(directory, defined.kubeconfig)
    return Project(directory, f"escapes-{uuid.uuid4().hex[:8]}")


def planned(
    project: Project, clusters: Clusters, tries: list[str], **asked: object
) -> tuple[dict[str, ObjectPlan], set[str]]:
    """Plan tries in a new namespace; return the plans, and the ConfigMaps that there are in the cluster."""

    async def plan() -> tuple[dict[str, ObjectPlan], set[str]]:
        async with clusters.opened(project.namespace) as (world, sandbox):
            for name in tries:
                await world.create(yaml.safe_dump(primary(KINDS[0], name, case=name)))
            kept = await plan_of(project, sandbox, clusters.reader, everything=True, **asked)
            return {each.key.name: each for each in kept.plan.objects}, set(names(await world.objects(CONFIG_MAP)))

    found = asyncio.run(plan())
    asyncio.run(clear(project, clusters.operator))
    return found


def test_no_way_past_the_sandbox_changes_anything(project: Project, clusters: Clusters) -> None:
    plans, there = planned(project, clusters, list(TRIES))
    assert {name for name in there if name.startswith("escaped")} == set()
    held = {name for name, plan in plans.items() if plan.withheld or plan.stopped_at}
    assert held == set(TRIES) - HARMLESS
    for name in HARMLESS:
        assert [write.status for write in plans[name].writes] == [201]


@pytest.mark.parametrize("name", ["command", "script", "module"])
def test_the_same_ways_escape_when_commands_are_allowed(project: Project, clusters: Clusters, name: str) -> None:
    """So the test above would notice it."""
    other = Project(project.directory, f"{project.namespace}-{name}")
    _, there = planned(other, clusters, [name], runs_commands=True)
    assert f"escaped-{name}" in there
