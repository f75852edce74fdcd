"""The demo of a new project: a missing permission is named with its remedy, and the remedy works."""

import asyncio
import os
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from rolecall.workbench.project.scaffold import NewKind, create_api, init_project
from tests.support.world import TIMEOUT_SECONDS

ROLE = """
- name: Create the namespace
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Namespace
      metadata:
        name: "team-{{ ansible_operator_meta.name }}"

- name: Limit the pods
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ResourceQuota
      metadata:
        name: pods
        namespace: "team-{{ ansible_operator_meta.name }}"
      spec:
        hard: {pods: "5"}

- name: Report the message
  ansible.builtin.set_stats:
    data:
      message: "{{ message }}"
"""


def cluster_scoped_project(directory: Path) -> None:
    """Create a project whose only kind is cluster-scoped, and whose role needs more than its generated permissions."""
    init_project(directory, "web", "example.com").write()
    create_api(directory, NewKind("apps", "v1", "Team")).write()
    definition = directory / "deploy/crds" / "teams.yaml"
    definition.write_text(definition.read_text().replace("scope: Namespaced", "scope: Cluster"))
    metadata = {"name": "checkout"}
    sample = {"apiVersion": "apps.example.com/v1", "kind": "Team", "metadata": metadata, "spec": {"message": "Hello"}}
    (directory / "deploy/samples" / "team.yaml").write_text(yaml.safe_dump(sample))
    (directory / "roles/team/tasks/main.yml").write_text(ROLE)


async def run(directory: Path, command: str) -> tuple[int, str]:
    """Run a command as the demo prints it; return its exit code and output."""
    program, *arguments = shlex.split(command)
    assert program == "rolecall"
    environment = {**os.environ, "ROLECALL_STATE_DIR": str(directory.with_name("state"))}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "rolecall", *arguments],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    return done.returncode, done.stdout


async def test_printed_commands_add_the_missing_permissions(tmp_path: Path) -> None:
    project = tmp_path / "web"
    await asyncio.to_thread(cluster_scoped_project, project)
    code, printed = await run(project, "rolecall demo --name permissions")
    assert code == 1
    assert "Team checkout failed 3 times in the same way:\n  task: Create the namespace\n  reason: " in printed
    assert 'cannot get resource "namespaces"' in printed
    commands = [line.strip() for line in printed.splitlines() if line.startswith("  rolecall ")]
    assert commands == [
        "rolecall demo --name permissions --record-dir records",
        "rolecall rbac --from records --write",
        "rolecall demo --name permissions",
    ]
    for command in commands:
        code, printed = await run(project, command)
        assert code == 0, printed
    roles = list(yaml.safe_load_all((project / "deploy/rbac" / "team.yaml").read_text()))
    rules = [rule for role in roles for rule in role.get("rules", ()) if rule["resources"] == ["resourcequotas"]]
    # The first run creates the quota, and the second one changes it.
    assert {verb for rule in rules for verb in rule["verbs"]} >= {"create", "get", "patch"}
