"""Constructs of existing operators' roles that depend on the runner's environment or on the release of ansible-core.

Each role is what a project written for the Go runner has, in the smallest form, run under that runner's name.
ansible-core 2.19 and newer reject some constructs that 2.18 accepts, and no setting changes that: there, the documented
failure is the expected result (docs/guides/migrate.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from rolecall.kube.references import GVK
from tests import CORE
from tests.integration.operators import ANSIBLE_OPERATOR
from tests.integration.shared import Role, Shared, Things
from tests.support.world import CONFIG_MAP, POD, World

pytestmark = pytest.mark.core

SERVICE = GVK("", "v1", "Service")

NO_PROXY_SETTINGS = {name: "" for each in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (each, each.lower())}
RESULT = """
- name: Keep the result
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: result, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {result: "{{ result }}"}
"""
TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: result, namespace: "{{ ansible_operator_meta.namespace }}"}
data: {result: "size {{ size }}"}
"""
SHORT_NAMES = """
- hosts: localhost
  gather_facts: false
  collections: [kubernetes.core]
  tasks:
    - k8s_info: {api_version: v1, kind: Namespace, name: "{{ ansible_operator_meta.namespace }}"}
      register: found
    - k8s:
        definition:
          apiVersion: v1
          kind: ConfigMap
          metadata: {name: result, namespace: "{{ ansible_operator_meta.namespace }}"}
          data: {result: "found {{ found.resources | length }}"}
"""
PINNED_FILTER = '''
class FilterModule:
    """The filters of the pinned collection."""

    def filters(self):
        """Return the filters by name."""
        return {"quoted": lambda text: f"<{text}>"}
'''
POD_RUN = """
- name: Start a pod
  kubernetes.core.k8s:
    wait: true
    wait_condition: {type: Ready, status: "True"}
    definition:
      apiVersion: v1
      kind: Pod
      metadata: {name: executed, namespace: "{{ ansible_operator_meta.namespace }}"}
      spec: {containers: [{name: main, image: none}]}
- name: Run a command in it
  kubernetes.core.k8s_exec:
    namespace: "{{ ansible_operator_meta.namespace }}"
    pod: executed
    command: /bin/true
  register: executed
- ansible.builtin.set_fact: {result: "exit code {{ executed.rc }}"}
"""
FOLLOWING = """
- name: Create a Service
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Service
      metadata: {name: followed, namespace: "{{ ansible_operator_meta.namespace }}"}
      spec: {type: LoadBalancer, ports: [{port: 80}]}
  register: service
- ansible.builtin.set_fact:
    result: "{{ service.result.status.loadBalancer.ingress | default([]) | map(attribute='ip') | join(' ') }}"
"""


@dataclass(frozen=True, slots=True)
class Construct:
    """A role, the result that it keeps, and its failure with ansible-core 2.19 and newer, if it has one."""

    tasks: str
    result: str
    failure_since_2_19: str = ""
    playbook: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the role."""


CONSTRUCTS = {
    "length": Construct(
        "- ansible.builtin.set_fact: {result: counted}\n  when: ansible_operator_meta.name | length\n" + RESULT,
        "counted",
    ),
    "text": Construct(
        "- ansible.builtin.set_fact: {result: found}\n  when: lookup('env', 'IMAGE_OF_A_PROJECT')\n" + RESULT, "found"
    ),
    "undefined": Construct(
        """
- ansible.builtin.set_fact:
    result: "{% if unset_limit is number %}limited{% else %}unlimited{% endif %}"
"""
        + RESULT,
        "unlimited",
        "unset_limit",
    ),
    "empty": Construct(
        """- ansible.builtin.set_fact: {result: "<{{ lookup('template', 'empty.j2') | indent(2) }}>"}\n""" + RESULT,
        "<>",
        "NoneType",
        files={"templates/empty.j2": "{% if false %}nothing{% endif %}"},
    ),
    "dictlike": Construct(
        """
- ansible.builtin.set_fact: {settings: "{ 'origin': '{{ ansible_operator_meta.name }}' }"}
- ansible.builtin.set_fact: {result: "{{ ({'mode': 'all'} | combine(settings)).origin }}"}
"""
        + RESULT,
        "one",
        "combine",
    ),
    "template": Construct(
        "- kubernetes.core.k8s: {state: present, template: result.yaml.j2}\n",
        "size 1",
        files={"templates/result.yaml.j2": TEMPLATE},
    ),
    "noproxy": Construct(
        """- ansible.builtin.set_fact: {result: "<{{ lookup('env', 'NO_PROXY') }}{{ lookup('env', 'no_proxy') }}>"}\n"""
        + RESULT,
        "<>",
    ),
    "shortnames": Construct("", "found 1", playbook=SHORT_NAMES),
    "pinned": Construct(
        "- ansible.builtin.set_fact: {result: \"{{ 'x' | example.pinned.quoted }}\"}\n" + RESULT, "<x>"
    ),
    "executed": Construct(POD_RUN + RESULT, "exit code 0"),
    "following": Construct(FOLLOWING + RESULT, ""),
}
COLLECTION = ".ansible/collections/ansible_collections/example/pinned"
SHARED = Shared(
    {name: Role(each.tasks, playbook=each.playbook) for name, each in CONSTRUCTS.items()},
    arguments=(
        # The entry point of a base image names a file, the arguments of the container another: the last one counts.
        "--watches-file=./watches-of-the-image.yaml",
        "--watches-file=./watches.yaml",
        "--ansible-log-events=Tasks",
        "--proxy-port=0",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--user-metrics-port=0",
        "--work-dir=FOLDER/runner",
        "--backoff-min=5m",
    ),
    command=ANSIBLE_OPERATOR,
    environment={"HOME": "FOLDER", "IMAGE_OF_A_PROJECT": "example/image:1", **NO_PROXY_SETTINGS},
    files={
        **{f"roles/{role}/{file}": text for role, each in CONSTRUCTS.items() for file, text in each.files.items()},
        f"{COLLECTION}/galaxy.yml": "namespace: example\nname: pinned\nversion: 1.0.0\nauthors: []\n",
        f"{COLLECTION}/plugins/filter/quoted.py": PINNED_FILTER,
    },
)


@pytest.mark.parametrize("name", CONSTRUCTS)
async def test_construct_of_an_existing_role_has_the_result_of_the_go_runner(
    things: Things, world: World, name: str
) -> None:
    construct, thing = CONSTRUCTS[name], things[name]
    await thing.create()
    if construct.failure_since_2_19 and CORE >= (2, 19):
        await thing.fails(construct.failure_since_2_19)
        assert await world.find(CONFIG_MAP, "result") is None
        return
    await thing.succeeds()
    kept = await world.wait_for(CONFIG_MAP, "result", bool)
    assert kept["data"] == {"result": construct.result}
    if name == "executed":
        await world.delete(POD, "executed")


async def test_status_field_that_a_dependent_gets_starts_a_run(things: Things, world: World) -> None:
    thing = things["following"]
    await thing.create()
    await thing.succeeds()
    await world.patch(SERVICE, "followed", {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}, "status")
    await world.wait_for(CONFIG_MAP, "result", lambda kept: kept["data"] == {"result": "192.0.2.1"})
