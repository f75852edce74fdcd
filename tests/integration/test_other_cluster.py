"""A task that names another cluster works there, and a task that names none works in the operator's."""

import os
from collections.abc import Iterator

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import CONFIG_MAP, World, is_true, names

TASKS = """
- name: Name a file
  kubernetes.core.k8s:
    kubeconfig: OTHER
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: by-path, namespace: default}}
- name: Give the content
  kubernetes.core.k8s:
    kubeconfig: "{{ lookup('file', 'OTHER') | from_yaml }}"
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: by-content, namespace: default}}
- name: Name a file and a context
  kubernetes.core.k8s:
    kubeconfig: OTHER
    context: CONTEXT
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: by-context, namespace: default}}
- name: Name a file in the environment
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: by-environment, namespace: default}}
  environment: {K8S_AUTH_KUBECONFIG: OTHER}
- name: Look up there and here
  ansible.builtin.set_stats:
    aggregate: false
    data:
      there: "{{ query('kubernetes.core.k8s', kubeconfig='OTHER', **wanted) | length }}"
      here: "{{ query('kubernetes.core.k8s', **wanted) | length }}"
  vars:
    wanted: {kind: ConfigMap, namespace: default, label_selector: is=other}
- name: Name no cluster
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: here, namespace: "{{ ansible_operator_meta.namespace }}"}
"""


@pytest.fixture(scope="module")
def other_plane() -> Iterator[ControlPlane]:
    """Yield a second API server."""
    with ControlPlane(f"other-{os.getpid()}") as running:
        yield running


@pytest.mark.parametrize("warm", [True, False])
async def test_tasks_work_in_the_cluster_that_they_name(
    world: World, thing_operator: Operator, other_plane: ControlPlane, *, warm: bool
) -> None:
    content = yaml.safe_load(other_plane.kubeconfig.read_text())
    tasks = TASKS.replace("OTHER", str(other_plane.kubeconfig)).replace("CONTEXT", content["current-context"])
    write_project(thing_operator.directory, tasks, "status: {there: $.stats.there, here: $.stats.here}")
    thing_operator.arguments += (f"--warm={str(warm).lower()}",)
    async with await Client.connect(str(other_plane.kubeconfig)) as client:
        other = World(client, "default")
        for name in names(await other.objects(CONFIG_MAP)):
            await other.delete(CONFIG_MAP, name)
        labeled = "{apiVersion: v1, kind: ConfigMap, metadata: {name: labeled, labels: {is: other}}}"
        await other.create(labeled)
        thing_operator.start()
        await wait_until_ready(thing_operator)
        await world.create(MANIFEST)
        thing = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful") or is_true(obj, "Failure"))
        assert is_true(thing, "Successful"), thing["status"]
        expected = {"by-path", "by-content", "by-context", "by-environment", "labeled"}
        assert {name for name in names(await other.objects(CONFIG_MAP)) if name in expected} == expected
        assert "here" not in names(await other.objects(CONFIG_MAP))
    assert (thing["status"]["there"], thing["status"]["here"]) == (1, 0)
    here = set(names(await world.objects(CONFIG_MAP))) | set(
        names(await World(world.client, "default").objects(CONFIG_MAP))
    )
    assert "here" in here
    assert not expected & here
