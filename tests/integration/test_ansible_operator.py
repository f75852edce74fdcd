"""The program under its other name: an entry point, a layout on disk and a log that were made for the Go runner."""

import json
from pathlib import Path

import pytest

from rolecall.workbench.controlplane import ControlPlane
from tests.integration.operators import ANSIBLE_OPERATOR, Operator
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, condition, eventually, is_true

pytestmark = pytest.mark.core

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
COUNTING_ROLE = """
- name: Count a list
  ansible.builtin.debug: {msg: counted}
  when: names | length
  loop: "{{ range(20) | list }}"
- name: Look for a variable
  ansible.builtin.debug: {msg: found}
  when: lookup('env', 'HOME')
"""
INVENTORY = "localhost ansible_connection=local ansible_python_interpreter={{ ansible_playbook_python }}\n"
OLDER_SPECS = "argument_specs: {main: {options: {quota: {type: dict, options: {cpu: {type: int}}}}}}\n"
SPEC = {"podSize": 3}
SHARED = Shared(
    {
        "sized": Role(ROLE),
        "broken": Role(BROKEN_ROLE),
        "talking": Role("- ansible.builtin.command: echo hello\n"),
        "counting": Role(COUNTING_ROLE),
        "older": Role("- ansible.builtin.debug: {msg: fine}\n"),
    },
    arguments=(
        "--watches-file=./watches.yaml",
        # No fixed port that another process could have.
        "--proxy-port=0",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--user-metrics-port=0",
        "--work-dir=FOLDER/runner",
        "--backoff-min=5m",  # so that there is one run of the broken role to look at
    ),
    command=ANSIBLE_OPERATOR,
    environment={"ANSIBLE_INVENTORY": "FOLDER/inventory"},
    files={
        "inventory/hosts": INVENTORY,
        "inventory/group_vars/all.yml": "from_inventory: yes indeed\n",
        "roles/older/meta/argument_specs.yml": OLDER_SPECS,
    },
)


async def test_an_image_made_for_the_go_runner_runs_unchanged(things: Things, world: World) -> None:
    thing = things["sized"]
    await thing.create(SPEC)
    done = await thing.succeeds()
    assert {each["type"] for each in done["status"]["conditions"]} == {"Running", "Successful", "Failure"}
    sizes = await world.get(CONFIG_MAP, "sizes")
    assert sizes["data"] == {"size": "size 3", "from_inventory": "yes indeed"}
    gvk = thing.gvk
    check_workspace(
        thing.operator.directory / "runner" / gvk.group / gvk.version / gvk.kind / world.namespace / "one", gvk.kind
    )

    async def ended() -> int:
        return len(thing.operator.messages("Ansible-runner exited successfully", logger="runner"))

    await eventually(ended, bool, TIMEOUT_SECONDS, "the end of the run is logged")
    check_log(thing)


def check_workspace(workspace: Path, kind: str) -> None:
    """Find what people look for on disk."""
    variables = json.loads((workspace / "env" / "extravars").read_text())
    assert variables["pod_size"] == 3
    assert variables[f"_test_rolecall_dev_{kind.lower()}_spec"] == SPEC
    latest = workspace / "artifacts" / "latest"
    assert latest.is_symlink()
    assert "TASK [sized : Say the size]" in (latest / "stdout").read_text()
    assert ((latest / "rc").read_text(), (latest / "status").read_text()) == ("0", "successful")
    assert (latest / "job_events").is_dir()
    assert (workspace / "inventory" / "group_vars" / "all.yml").exists()


def check_log(thing: Thing) -> None:
    """Find what tools look for in the log, and nothing that is not JSON."""
    operator, kind = thing.operator, thing.gvk.kind
    text = operator.log_file.read_text()
    lines = [json.loads(line) for line in text[: text.rindex("\n")].splitlines()]
    assert all({"level", "ts", "logger", "msg"} <= line.keys() for line in lines)
    gvk = f"test.rolecall.dev/v1, Kind={kind}"
    started = operator.messages("[playbook task start]", logger="logging_event_handler", gvk=gvk)
    assert "sized : Keep the size" in [line["EventData.Name"] for line in started]
    assert all({"name", "namespace", "job", "event_type"} <= line.keys() for line in started)
    said, *_ = operator.messages("[playbook debug]", gvk=gvk)
    assert said["EventData.TaskArgs"] == "size 3 of one, yes indeed"
    recaps = [line["stdout"] for line in operator.messages("Ansible Task Status Event StdOut", gvk=gvk)]
    assert recaps
    assert all("failed=0" in recap and "\x1b" not in recap for recap in recaps)
    watching = operator.messages("Watching resource", logger="cmd")
    assert ("test.rolecall.dev", kind) in [(line["Options.Group"], line["Options.Kind"]) for line in watching]
    [child] = operator.messages("Watching child resource", logger="proxy")
    assert (child["kind"], child["enqueue_kind"]) == ("/v1, Kind=ConfigMap", gvk)


async def test_failure_is_logged_once_with_its_location(things: Things) -> None:
    thing = things["broken"]
    await thing.create(SPEC)
    assert "no more coffee" in condition(await thing.fails(), "Failure")["message"]
    gvk = f"test.rolecall.dev/v1, Kind={thing.gvk.kind}"
    [failed] = thing.operator.messages("[playbook task failed]", logger="logging_event_handler", gvk=gvk)
    assert (failed["level"], failed["EventData.Task"]) == ("error", "Give up")
    assert failed["EventData.FailedTaskPath"].startswith(f"{thing.operator.directory}/roles/broken/tasks/main.yml:")
    exits = thing.operator.messages("Ansible-runner exited successfully", namespace=thing.world.namespace)
    assert exits == []


async def test_the_verbosity_of_an_object_shows_what_its_tasks_print(things: Things) -> None:
    thing = things["talking"]
    await thing.create(SPEC, annotations={"ansible.sdk.operatorframework.io/verbosity": "1"})
    await thing.succeeds()
    gvk = f"test.rolecall.dev/v1, Kind={thing.gvk.kind}"
    shown = [line["stdout"] for line in thing.operator.messages("Ansible event", gvk=gvk)]
    assert any("changed: [localhost]" in text and "hello" in text for text in shown)
    assert thing.operator.messages("[playbook task start]", gvk=gvk) == []


async def test_a_condition_that_is_not_boolean_is_accepted_with_few_log_lines(things: Things) -> None:
    thing = things["counting"]
    await thing.create({"names": ["one"]})
    await thing.succeeds()
    warnings = [line for line in thing.operator.log_file.read_text().splitlines() if "DEPRECATION" in line.upper()]
    assert warnings == []


@pytest.mark.parametrize("warm", ["true", "false"])
@pytest.mark.parametrize("allowed", ["", "false"])
async def test_the_users_setting_for_conditions_takes_precedence(
    tmp_path: Path, defined: ControlPlane, world: World, warm: str, allowed: str
) -> None:
    write_project(tmp_path, COUNTING_ROLE)
    given = {"ANSIBLE_ALLOW_BROKEN_CONDITIONALS": allowed} if allowed else {}
    arguments = (*SHARED.arguments[1:-2], f"--work-dir={tmp_path}/runner", f"--warm={warm}")
    operator = Operator(tmp_path, defined.kubeconfig, world.namespace, arguments, given, ANSIBLE_OPERATOR)
    operator.start()
    try:
        await world.create(MANIFEST.replace("size: 1", "names: [one]"))
        wanted = "Failure" if allowed else "Successful"
        await world.wait_for(THING, "one", lambda obj: is_true(obj, wanted))
    finally:
        operator.stop()


async def test_a_nested_option_that_the_role_does_not_declare_fails_as_with_the_go_runner(things: Things) -> None:
    thing = things["older"]
    await thing.create({"quota": {"cpu": 1, "storage": 2}})
    failed = await thing.fails("quota.storage")
    assert "Supported parameters include: cpu" in condition(failed, "Failure")["message"]
