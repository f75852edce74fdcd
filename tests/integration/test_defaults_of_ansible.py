"""Defaults of Ansible under ``rolecall run``, without variables or an ansible.cfg of the user.

HOME is not the one of the passwd file here, as for the random users of OpenShift.
"""

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rolecall.kube.client import Client
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import ROLECALL, Operator
from tests.support.things import MANIFEST, THING, WATCH, write_role
from tests.support.world import World, is_true

PLAYBOOK = """
- hosts: localhost
  roles: [tell]
- hosts: localhost
  gather_facts: true
  tasks:
    - ansible.builtin.set_stats: {data: {facts_on_request: "{{ 'python' in ansible_facts }}"}}
"""
TELL = """
- name: Work in the background
  ansible.builtin.command: echo done
  async: 30
  poll: 0
  register: started
- name: Wait for it
  ansible.builtin.async_status: {jid: "{{ started.ansible_job_id }}"}
  register: waited
  until: waited.finished
  retries: 100
  delay: 0.1
- name: Make a temporary directory
  ansible.builtin.copy: {content: x, dest: "{{ playbook_dir }}/written"}
- name: Start what outlives the run
  ansible.builtin.command: sleep 600
  async: 900
  poll: 0
  register: outliving
- name: Wait until it has started
  ansible.builtin.wait_for: {path: "{{ outliving.results_file }}"}
- name: Tell
  ansible.builtin.set_stats:
    data:
      facts: "{{ 'python' in ansible_facts }}"
      results: "{{ started.results_file }}"
"""
TELL_STATUS = "  status: {facts: $.stats.facts, onRequest: $.stats.facts_on_request, results: $.stats.results}\n"
NOTHING_SET = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose playbook lies in its own directory and names a role of the project."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "playbooks").mkdir()
    (directory / "playbooks/site.yml").write_text(PLAYBOOK)
    (directory / "watches.yaml").write_text(WATCH.replace("role: thing", "playbook: playbooks/site.yml") + TELL_STATUS)
    write_role(directory, TELL, name="tell")
    return directory


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Yield a directory with a short path: ansible-core creates sockets below TMPDIR."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture(scope="module", params=["true", "false"], ids=["warm", "cold"])
def operator(
    request: pytest.FixtureRequest, defined: ControlPlane, project: Path, temporary: Path
) -> Iterator[Operator]:
    """Yield the project's operator, which serves one namespace: runs of other objects would have temporary files."""
    command = ("env", "-u", "ANSIBLE_GATHERING", *ROLECALL)
    arguments = (f"--warm={request.param}", "--zap-log-level=debug")
    variables = {"HOME": str(project / "home"), "TMPDIR": str(temporary)}
    namespace = f"defaults-{uuid.uuid4().hex[:8]}"
    operator = Operator(project, defined.kubeconfig, namespace, arguments, variables, command)
    operator.start()
    yield operator
    operator.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def status(operator: Operator, defined: ControlPlane) -> dict[str, Any]:
    """Return the status of an object after its run."""
    await wait_until_ready(operator)
    async with await Client.connect(str(defined.kubeconfig)) as client:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": operator.namespace}}
        await client.create(manifest)
        world = World(client, operator.namespace)
        await world.create(MANIFEST)
        thing = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))
        await world.delete(THING, "one")
    return dict(thing["status"])


def test_project_with_roles_named_by_a_playbook_is_valid(project: Path) -> None:
    command = [sys.executable, "-m", "rolecall", "validate", "--strict"]
    done = subprocess.run(command, cwd=project, env=NOTHING_SET, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "watches.yaml: 1 kind, 1 role or playbook, no problems found\n")


async def test_facts_are_gathered_only_on_request(status: dict[str, Any]) -> None:
    assert (status["facts"], status["onRequest"]) == (False, True)


def names_below(directory: Path, part: str) -> list[str]:
    """Return the names of files below a directory that contain a part."""
    # Not rglob: the operator removes directories of runs in the meantime.
    return [name for _, directories, files in os.walk(directory) for name in directories + files if part in name]


async def test_background_job_is_killed_with_its_run_and_leaves_nothing(
    operator: Operator, status: dict[str, Any], project: Path, temporary: Path
) -> None:
    assert is_true({"status": status}, "Successful")
    lines = operator.messages("The end of the run killed background jobs")
    assert [len(line["jobs"]) for line in lines] == [1] * len({line["job"] for line in lines})  # one line for each run
    assert lines
    assert Path(status["results"]).parent.name == "async"
    assert not (project / "home/.ansible_async").exists()
    assert not (project / "home/.ansible/tmp").exists()
    assert names_below(temporary, "payload") == []


async def test_warm_server_accepts_every_run(operator: Operator, status: dict[str, Any]) -> None:
    assert is_true({"status": status}, "Successful")
    reasons = [line["reason"] for line in operator.messages("Process not forked")]
    assert [reason for reason in reasons if reason.startswith("ansible-playbook is not forked")] == []
