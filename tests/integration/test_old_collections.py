"""Pinned collections: older releases of kubernetes.core run warm, and their templates are rendered."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tools.fingerprints import release_sources

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.process import ProcessRunner, RunSpec, new_ident
from rolecall.runner.runs.run import RunEnvironment
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm.ansible_patches.patches import SHARED_OBJECTS, VARIABLE, PatchStatus
from rolecall.runner.warm.starter import ForkserverStarter
from rolecall.workbench.controlplane import ControlPlane

CONFIG_MAP = GVK("", "v1", "ConfigMap")
TASKS = """\
---
- name: Create what the template says
  kubernetes.core.k8s:
    template: {template}
- name: Read it
  kubernetes.core.k8s_info: {{api_version: v1, kind: ConfigMap, namespace: default, name: "{{{{ name }}}}"}}
  register: found
  failed_when: found.resources | length != 1
"""
TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ name }}", namespace: default}
data:
{% for word in words %}
  {{ word }}: "{{ word | upper }}"
{% endfor %}
"""


async def config_map(plane: ControlPlane, directory: Path, name: str, template: str) -> tuple[RawObject, list[str]]:
    """Run a role with a template warm; return the object that it has created, and the patches that aren't in use."""
    role = directory / "roles" / "templates"
    for path, text in (("tasks/main.yml", TASKS.format(template=template)), ("templates/config.yml.j2", TEMPLATE)):
        file = role / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
    reported: list[PatchStatus] = []
    workspace = Workspace(directory / "runs", CONFIG_MAP, ObjectKey("default", name))
    ident = new_ident()
    variables: dict[str, Any] = {"name": name, "words": ["one", "two"]}
    workspace.prepare(ident, variables)
    environment = RunEnvironment({"K8S_AUTH_KUBECONFIG": str(plane.kubeconfig)})
    with capture_logs() as lines:
        async with ForkserverStarter([role], on_patches=reported.extend) as starter:
            assert starter.server
            await starter.server.ready  # without a limit: other work on the machine may delay it
            spec = RunSpec(ident, workspace, RoleContent(role), environment=environment)
            summary = await ProcessRunner(starter).run(spec, lambda _event: None)
    assert [failure.message for failure in summary.failures] == []
    assert [line for line in lines if "warm" in line["event"] or "cold" in line["event"]] == []
    async with await Client.connect(str(plane.kubeconfig)) as client:
        created = await client.get(CONFIG_MAP, ObjectKey("default", name))
    of_ansible = (status for status in reported if status.name != SHARED_OBJECTS)  # which depends on Python only
    return created, [status.name for status in of_ansible if not status.is_in_use]


@pytest.mark.parametrize("release", ["2.4.0", "3.2.0"])
@pytest.mark.parametrize("template", ["config.yml.j2", "{path: config.yml.j2, trim_blocks: true}"])
async def test_template_of_an_old_collection_is_rendered(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, template: str
) -> None:
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(release_sources("kubernetes.core", release)))
    monkeypatch.setenv(VARIABLE, "module-host")  # experimental, and like the others tested with each release
    name = f"old-{release.replace('.', '-')}-{len(template)}"
    created, unused = await config_map(control_plane, tmp_path, name, template)
    assert created["data"] == {"one": "ONE", "two": "TWO"}
    assert unused == []
