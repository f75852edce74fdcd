"""A run's own deletions, and objects that controllers restore, start no run. Changes by other clients always do."""

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from tests.integration.shared import Role, Shared, Things
from tests.integration.test_own_writes import quiet
from tests.support.world import CONFIG_MAP, DEPLOYMENT, World

TASKS = """
- name: Make a dependent
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ item }}", namespace: "{{ ansible_operator_meta.namespace }}"}
  loop: [kept, temporary]
- name: Delete one of them
  kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    name: temporary
    namespace: "{{ ansible_operator_meta.namespace }}"
    state: absent
"""


WITH_A_USER = TASKS.replace(
    "- name: Delete one of them",
    "- name: Let a user delete the other\n"
    "  ansible.builtin.command:\n"
    '    argv: [kubectl, --kubeconfig, "{{ admin }}", -n, "{{ ansible_operator_meta.namespace }}",\n'
    "           delete, configmap, kept]\n"
    "  when: lookup('ansible.builtin.fileglob', gate) | length == 0\n"
    "- name: Remember that the user was here\n"
    '  ansible.builtin.copy: {dest: "{{ gate }}", content: "", mode: "0600"}\n'
    "- name: Delete one of them",
)
COLLECTS = """
- name: Make dependents
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ item }}", namespace: "{{ ansible_operator_meta.namespace }}", labels: {part: "temporary"}}
  loop: [a, b]
- name: Delete both with one request
  ansible.builtin.command:
    argv: ["{{ ansible_playbook_python }}", -c, "{{ script }}", "{{ ansible_operator_meta.namespace }}"]
  vars:
    script: |
      import sys
      from kubernetes import client, config
      config.load_kube_config()
      client.CoreV1Api().delete_collection_namespaced_config_map(sys.argv[1], label_selector="part=temporary")
"""
DEPLOYS = """
- name: Make a Deployment
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: web
        namespace: "{{ ansible_operator_meta.namespace }}"
        labels: {app: web}
      spec:
        replicas: 0
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec: {containers: [{name: web, image: nginx}]}
"""
SHARED = Shared(
    {
        "deleting": Role(TASKS),
        "collecting": Role(COLLECTS),
        "with-a-user": Role(WITH_A_USER),
        "deploying": Role(DEPLOYS),
    }
)


async def test_own_deletion_triggers_no_run_but_a_users_does(world: World, things: Things) -> None:
    """One run, although it deleted what it had made; a user's deletion is repaired, by one run."""
    thing = things["deleting"]
    await thing.create()
    await thing.succeeds()
    assert await quiet(thing, 3.0) == 1
    await world.delete(CONFIG_MAP, "kept")
    await world.wait_for(CONFIG_MAP, "kept", bool)
    assert await quiet(thing, 3.0) == 2


async def test_own_deletion_of_a_collection_triggers_no_run(world: World, things: Things) -> None:
    thing = things["collecting"]
    await thing.create()
    await thing.succeeds()
    assert await quiet(thing, 3.0) == 1
    assert await world.find(CONFIG_MAP, "a") is None


async def test_users_deletion_during_a_run_triggers_a_run(world: World, things: Things) -> None:
    """An object is made again if another client deletes it after the run made it, and before the run deletes one."""
    thing = things["with-a-user"]
    await thing.create({"gate": str(thing.operator.directory / "gate"), "admin": str(thing.operator.kubeconfig)})
    await world.wait_for(CONFIG_MAP, "kept", bool)
    await thing.runs_at_least(2)
    assert await quiet(thing, 3.0) == 2
    assert await world.find(CONFIG_MAP, "kept")
    assert await world.find(CONFIG_MAP, "temporary") is None


async def test_changes_by_controllers_in_a_dependent_trigger_no_run(world: World, things: Things) -> None:
    """The Deployment's controller writes its revision and status; only a label that a user changes is repaired."""
    thing = things["deploying"]
    await thing.create()

    def has_revision(deployment: RawObject) -> bool:
        annotations = metadata_of(deployment).get("annotations") or {}
        return "deployment.kubernetes.io/revision" in annotations and bool(deployment["status"])

    await world.wait_for(DEPLOYMENT, "web", has_revision)
    assert await quiet(thing, 3.0) == 1
    await world.patch(DEPLOYMENT, "web", {"metadata": {"labels": {"app": "changed"}}})
    await world.wait_for(DEPLOYMENT, "web", lambda obj: metadata_of(obj)["labels"]["app"] == "web")
    assert await quiet(thing, 3.0) == 2
