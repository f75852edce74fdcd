"""The program under its other name: an entry point, a layout on disk and a log that were made for the Go runner."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rolecall.controlplane import ControlPlane
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import ANSIBLE_OPERATOR, Operator
from tests.integration.things import MANIFEST, THING, write_project
from tests.integration.world import CONFIG_MAP, World, condition, is_true

ROLE = """
- name: Look for what cannot be found
  ansible.builtin.command: "false"
  ignore_errors: true
- name: Say the size
  ansible.builtin.debug:
    msg: "size {{ pod_size }} of {{ ansible_operator_meta.name }}, {{ from_inventory }}"
- name: Keep the size
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: sizes, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "size {{ pod_size }}", from_inventory: "{{ from_inventory }}"}
"""
BROKEN_ROLE = """
- name: Give up
  ansible.builtin.fail: {msg: no more coffee}
"""
INVENTORY = "localhost ansible_connection=local ansible_python_interpreter={{ ansible_playbook_python }}\n"
SPEC_MANIFEST = MANIFEST.replace("size: 1", "podSize: 3")


@pytest.fixture
def drop_in(tmp_path: Path, defined: ControlPlane, world: World) -> Iterator[Operator]:
    """Give ``ansible-operator run``, with no fixed port that another process could have; not started yet."""
    inventory = tmp_path / "inventory"
    (inventory / "group_vars").mkdir(parents=True)
    (inventory / "hosts").write_text(INVENTORY)
    (inventory / "group_vars" / "all.yml").write_text("from_inventory: yes indeed\n")
    arguments = (
        "--watches-file=./watches.yaml",
        "--proxy-port=0",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--user-metrics-port=0",
        f"--work-dir={tmp_path / 'runner'}",
    )
    operator = Operator(tmp_path, defined.kubeconfig, world.namespace, arguments, command=ANSIBLE_OPERATOR)
    operator.environment["ANSIBLE_INVENTORY"] = str(inventory)
    yield operator
    operator.stop()


async def test_an_image_made_for_the_go_runner_runs_unchanged(drop_in: Operator, world: World) -> None:
    write_project(drop_in.folder, ROLE)
    drop_in.start()
    await wait_until_ready(drop_in)
    await world.create(SPEC_MANIFEST)
    await world.wait_for(THING, "one", lambda thing: is_true(thing, "Successful"), 60)
    sizes = await world.get(CONFIG_MAP, "sizes")
    assert sizes["data"] == {"size": "size 3", "from_inventory": "yes indeed"}
    check_workspace(drop_in.folder / "runner" / "test.rolecall.dev" / "v1" / "Thing" / world.namespace / "one")
    assert drop_in.stop() == 0
    check_log(drop_in)


def check_workspace(workspace: Path) -> None:
    """Find what people look for on disk."""
    variables = json.loads((workspace / "env" / "extravars").read_text())
    assert variables["pod_size"] == 3
    assert variables["_test_rolecall_dev_thing_spec"] == {"podSize": 3}
    latest = workspace / "artifacts" / "latest"
    assert latest.is_symlink()
    assert "TASK [thing : Say the size]" in (latest / "stdout").read_text()
    assert ((latest / "rc").read_text(), (latest / "status").read_text()) == ("0", "successful")
    assert (latest / "job_events").is_dir()
    assert (workspace / "inventory" / "group_vars" / "all.yml").exists()


def check_log(operator: Operator) -> None:
    """Find what tools look for in the log, and nothing that is not JSON."""
    lines = [json.loads(line) for line in operator.log_file.read_text().splitlines()]
    assert all({"level", "ts", "logger", "msg"} <= line.keys() for line in lines)
    started = operator.messages("[playbook task start]", logger="logging_event_handler")
    assert "thing : Keep the size" in [line["EventData.Name"] for line in started]
    assert {line["gvk"] for line in started} == {"test.rolecall.dev/v1, Kind=Thing"}
    assert all({"name", "namespace", "job", "event_type"} <= line.keys() for line in started)
    said, *_ = operator.messages("[playbook debug]")
    assert said["EventData.TaskArgs"] == "size 3 of one, yes indeed"
    assert len(operator.messages("Ansible-runner exited successfully", logger="runner")) >= 1
    recaps = [line["stdout"] for line in operator.messages("Ansible Task Status Event StdOut")]
    assert all("failed=0" in text and "\x1b" not in text for text in recaps)
    [watching] = operator.messages("Watching resource", logger="cmd")
    assert (watching["Options.Group"], watching["Options.Kind"]) == ("test.rolecall.dev", "Thing")
    [child] = operator.messages("Watching child resource", logger="proxy")
    assert (child["kind"], child["enqueue_kind"]) == ("/v1, Kind=ConfigMap", "test.rolecall.dev/v1, Kind=Thing")


async def test_a_failure_is_told_once_and_with_its_place(drop_in: Operator, world: World) -> None:
    role = write_project(drop_in.folder, BROKEN_ROLE)
    drop_in.arguments += ("--backoff-min=5m",)  # so that there is one run to look at
    drop_in.start()
    await wait_until_ready(drop_in)
    await world.create(SPEC_MANIFEST)
    thing = await world.wait_for(THING, "one", lambda thing: is_true(thing, "Failure"), 60)
    assert "no more coffee" in condition(thing, "Failure")["message"]
    [failed] = drop_in.messages("[playbook task failed]", logger="logging_event_handler")
    assert (failed["level"], failed["EventData.Task"]) == ("error", "Give up")
    assert failed["EventData.FailedTaskPath"].startswith(f"{role}/tasks/main.yml:")
    assert drop_in.messages("Ansible-runner exited successfully") == []


async def test_the_verbosity_of_an_object_shows_what_its_tasks_print(drop_in: Operator, world: World) -> None:
    write_project(drop_in.folder, "- ansible.builtin.command: echo hello\n")
    drop_in.start()
    await wait_until_ready(drop_in)
    annotations = '{ansible.sdk.operatorframework.io/verbosity: "1"}'
    await world.create(SPEC_MANIFEST.replace("{name: one}", f"{{name: one, annotations: {annotations}}}"))
    await world.wait_for(THING, "one", lambda thing: is_true(thing, "Successful"), 60)
    shown = [line["stdout"] for line in drop_in.messages("Ansible event")]
    assert any("changed: [localhost]" in text and "hello" in text for text in shown)
    assert drop_in.messages("[playbook task start]") == []
