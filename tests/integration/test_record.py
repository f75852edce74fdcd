"""Records of real runs: each request has its task, warm and cold, and no secret is in any file."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.runner.record.reader import StoredRecord, read_record
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, write_project
from tests.support.world import TIMEOUT_SECONDS, World, eventually

pytestmark = pytest.mark.core

PLANTED = "planted-Pa55word"
TASKS = """
- name: Read a Secret
  kubernetes.core.k8s_info:
    {api_version: v1, kind: Secret, name: planted, namespace: "{{ ansible_operator_meta.namespace }}"}
  register: found
- name: Copy it into a ConfigMap
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: copy, namespace: "{{ ansible_operator_meta.namespace }}", annotations: {note: "{{ password }}"}}
      data:
        plain: "{{ password }}"
        url: "postgres://u:{{ password }}@h"
        encoded: "{{ ('u:' ~ password) | b64encode }}"
  vars: &vars
    password: "{{ found.resources[0].data.password | b64decode }}"
- name: Look it up
  ansible.builtin.set_fact:
    looked_up: "{{ lookup('kubernetes.core.k8s', api_version='v1', kind='ConfigMap', resource_name='copy',
      namespace=ansible_operator_meta.namespace) }}"
- name: Write in a loop
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "loop-{{ item }}", namespace: "{{ ansible_operator_meta.namespace }}"}
  loop: [one, two]
- name: Ask with kubectl
  ansible.builtin.command: PROGRAMS/kubectl get configmap copy -n {{ ansible_operator_meta.namespace }} -o name
  changed_when: false
- name: Hide what this one does
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: hidden, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {a: planted-in-a-hidden-task}
  no_log: true
- name: Fail with it
  ansible.builtin.fail: {msg: "cannot use {{ password }} or {{ password | to_json | to_json }}"}
  vars: *vars
  environment: {PLANTED: "{{ password }}"}
"""
MANY_HOSTS = """
- name: Make hosts
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Add one
      ansible.builtin.add_host:
        name: "{{ item }}"
        groups: many
        ansible_connection: local
        ansible_python_interpreter: "{{ ansible_playbook_python }}"
        # By default one of Ansible's two programs asks passwd for the home directory, and the other one HOME.
        ansible_async_dir: "{{ lookup('env', 'HOME') }}/.ansible_async"
      loop: [alpha, beta, gamma]
- name: Ask on each of them
  hosts: many
  strategy: free
  gather_facts: false
  tasks:
    - name: Ask first
      kubernetes.core.k8s_info: &ask
        {api_version: v1, kind: ConfigMap, name: "first-{{ inventory_hostname }}", namespace: default}
    - name: Ask second
      kubernetes.core.k8s_info:
        <<: *ask
        name: "second-{{ inventory_hostname }}"
    - name: Ask in the background
      ansible.builtin.command:
        PROGRAMS/kubectl get configmap third-{{ inventory_hostname }} -n default --ignore-not-found
      changed_when: false
      async: 30
      poll: 1
"""
SECRET = f"""
apiVersion: v1
kind: Secret
metadata: {{name: planted}}
stringData: {{password: {PLANTED}}}
"""


async def record_of_a_run(operator: Operator, world: World) -> StoredRecord:
    """Run the project for one object, and return the record of its first run."""
    directory = operator.directory / "records"
    operator.arguments = (*operator.arguments, "--record-dir", str(directory))
    operator.start()
    await wait_until_ready(operator)
    await world.create(MANIFEST)

    async def files() -> list[Path]:
        return sorted(directory.glob("*.jsonl"))

    found = await eventually(files, bool, TIMEOUT_SECONDS, "a record is written")
    return read_record(found[0])


def requests_of(record: StoredRecord, name: str) -> set[tuple[str, str, str]]:
    """Return the verb, resource and name of the requests of a task, without those of discovery."""
    idents = {task["task"] for task in record.tasks if task["name"] == f"thing : {name}"}
    assert len(idents) == 1, [task["name"] for task in record.tasks]
    mine = [each for each in record.exchanges if each["task"] in idents and "resource" in each]
    assert {each["host"] for each in mine} <= {"localhost"}
    return {(each["verb"], each["resource"], each["name"]) for each in mine}


@pytest.mark.parametrize("warm", ["true", "false"])
async def test_each_request_has_its_task_and_no_secret_is_in_any_file(
    warm: str, thing_operator: Operator, world: World, defined: ControlPlane
) -> None:
    thing_operator.arguments = (*thing_operator.arguments, f"--warm={warm}")
    write_project(thing_operator.directory, TASKS.replace("PROGRAMS", str(defined.program_directory)))
    await world.create(SECRET)
    record = await record_of_a_run(thing_operator, world)
    assert requests_of(record, "Read a Secret") == {("get", "secrets", "planted")}
    assert {("get", "configmaps", "copy"), ("create", "configmaps", "")} <= requests_of(
        record, "Copy it into a ConfigMap"
    )
    assert requests_of(record, "Look it up") == {("get", "configmaps", "copy")}
    assert {("get", "configmaps", "loop-one"), ("get", "configmaps", "loop-two")} <= requests_of(
        record, "Write in a loop"
    )
    assert requests_of(record, "Ask with kubectl") == {("get", "configmaps", "copy")}
    assert ("create", "configmaps", "") in requests_of(record, "Hide what this one does")
    assert [task["result"] for task in record.tasks][-1] == "failed"
    assert record.end["outcome"] == "failed"
    assert all(each["task"] for each in record.exchanges)
    assert thing_operator.stop() == 0  # until then, it repeats the run that fails, and writes files
    assert_nothing_planted(record.path.parent)


@pytest.mark.parametrize("warm", ["true", "false"])
async def test_tasks_of_several_hosts_at_once_are_told_apart(
    warm: str, thing_operator: Operator, world: World, defined: ControlPlane
) -> None:
    write_project(thing_operator.directory, "[]\n", "playbook: many.yml")
    text = MANY_HOSTS.replace("PROGRAMS", str(defined.program_directory))
    await asyncio.to_thread((thing_operator.directory / "many.yml").write_text, text)
    thing_operator.arguments = (*thing_operator.arguments, f"--warm={warm}")
    record = await record_of_a_run(thing_operator, world)
    assert record.end["outcome"] == "succeeded", record.end["failures"]
    names = {(task["task"], task["host"]): task["name"] for task in record.tasks}
    asked = {(names[each["task"], each["host"]], each["name"]) for each in record.exchanges if each.get("name")}
    expected = {
        (f"Ask {task}", f"{prefix}-{host}")
        for task, prefix in (("first", "first"), ("second", "second"), ("in the background", "third"))
        for host in ("alpha", "beta", "gamma")
    }
    assert asked == expected
    assert all(each["name"].endswith(each["host"]) for each in record.exchanges if each.get("name"))


def assert_nothing_planted(directory: Path) -> None:
    """Assert that no file has a secret, that what was copied is there all the same, and that files are private."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    encoded = [base64.b64encode(text.encode()).decode().rstrip("=") for text in (PLANTED, f"u:{PLANTED}")]
    for path in paths:
        text = path.read_text()
        assert [each for each in ("planted-", *encoded) if each in text] == [], path
    created = [line for path in directory.glob("*.jsonl") for line in lines_of(path) if line.get("verb") == "create"]
    masked = {value for path in directory.glob("*.jsonl") for value in lines_of(path)[-1]["masked"]}
    assert [line for line in created if line["request"]["json"].get("data", {}).get("plain") in masked]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a record."""
    return [json.loads(line) for line in path.read_text().splitlines()]
