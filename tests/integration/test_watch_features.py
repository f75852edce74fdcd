"""The keys of watches.yaml that the four operators do not need, each seen to work on the cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.metadata import metadata_of
from tests.integration.shared import Role, Shared, Things
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, condition, eventually

WRITE_DOWN = """
- name: Write down what this run was given
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-main"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        colour: "{{ favourite_colour | default('none') }}"
        snake: "{{ snake_case | default('none') }}"
        raw: "{{ lookup('vars', spec_name).snakeCase | default('none') }}"
        kind: "{{ lookup('vars', object_name).kind }}"
  vars:
    object_name: "_test_rolecall_dev_{{ 'KIND' | lower }}"
    spec_name: "{{ object_name }}_spec"
"""
REPORT = "- name: Report\n  ansible.builtin.set_stats: {data: {small: 7, list: [1, 2]}, aggregate: false}\n"
PAUSED = "rolecall.dev/paused"
PERIOD = "ansible.sdk.operatorframework.io/reconcile-period"
SHARED = Shared(
    {
        "plain": Role(WRITE_DOWN, "vars: {favourite_colour: red}"),
        "unsafe": Role(WRITE_DOWN, "markUnsafe: true"),
        "periodic": Role(WRITE_DOWN, "reconcilePeriod: 1h"),
        "unmanaged": Role(WRITE_DOWN, "manageStatus: false"),
        "mapped": Role(
            REPORT,
            "status: {small: $.stats.small, items: '$.stats.list[*]', ran: $.run.status, gone: $.stats.nothing}",
        ),
    }
)


async def test_a_role_gets_what_the_go_runner_gives(world: World, things: Things) -> None:
    """The spec in snake case, the raw one, the whole object, and the vars of the watch."""
    thing = things["plain"]
    await thing.create({"snakeCase": "data"})
    await thing.succeeds()
    written = (await world.get(CONFIG_MAP, "one-main"))["data"]
    assert written == {"colour": "red", "snake": "data", "raw": "data", "kind": thing.gvk.kind}


@pytest.mark.parametrize("role", ["unsafe", "plain"])
async def test_an_unsafe_spec_is_never_evaluated(world: World, things: Things, role: str) -> None:
    """With markUnsafe, the default, an expression in a spec stays the text that it is."""
    await things[role].create({"snakeCase": "{{ lookup('pipe', 'id') }}"})
    await things[role].succeeds()
    assert (await world.get(CONFIG_MAP, "one-main"))["data"]["snake"] == "{{ lookup('pipe', 'id') }}"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("labels", {"__ansible_unsafe": "x"}, "the key '__ansible_unsafe', which Ansible itself acts on"),
        ("labels", {"a": [{"__ansible_vault": 1}]}, "the key '__ansible_vault', which Ansible itself acts on"),
        ("deep", json.loads("[" * 200 + "]" * 200), "nested in more than 100 levels"),
    ],
    ids=["mark", "vault", "nesting"],
)
async def test_object_that_forges_marks_runs_no_program(
    things: Things, tmp_path: Path, field: str, value: Any, reason: str
) -> None:
    """The run fails before Ansible reads its variables; without the field, the expression is data."""
    thing, mark = things["unsafe"], tmp_path / "mark"
    await thing.create({"snakeCase": f"{{{{ lookup('pipe', 'touch {mark}') }}}}", field: value})
    await thing.fails(reason)
    assert not mark.exists()
    await thing.patch({"spec": {field: None}})
    await thing.succeeds()
    assert not mark.exists()


async def test_the_period_comes_from_the_annotation_first(things: Things) -> None:
    """An object is reconciled again after its own period; one whose period is none reports this."""
    often, wrong = things.named("periodic", "often"), things.named("periodic", "wrong")
    await often.create(annotations={PERIOD: "2s"})
    await wrong.create(annotations={PERIOD: "2"})
    await often.runs_at_least(3)
    assert "'2'" in condition(await wrong.fails(), "Failure")["message"]


async def test_without_manage_status_nothing_is_written_to_the_object(world: World, things: Things) -> None:
    """The role runs, the object stays as it was."""
    thing = things["unmanaged"]
    created = await thing.create()
    await world.wait_for(CONFIG_MAP, "one-main", bool)

    async def ended() -> int:
        return thing.ended()

    await eventually(ended, bool, TIMEOUT_SECONDS, "the run has ended")
    assert metadata_of(await thing.get())["resourceVersion"] == metadata_of(created)["resourceVersion"]


async def test_the_status_mapping_reads_stats_and_leaves_foreign_fields(things: Things) -> None:
    """Values of set_stats come to the status; what others wrote there, conditions too, stays."""
    thing = things["mapped"]
    await thing.create(annotations={PAUSED: "true"})  # until others have written
    foreign = {"type": "Happy", "status": "True", "reason": "Always", "message": "", "observedGeneration": 3}
    await thing.patch({"status": {"gone": "kept", "conditions": [foreign]}}, "status")
    await thing.patch({"metadata": {"annotations": {PAUSED: None}}})
    found = await thing.succeeds()
    status = found["status"]
    assert {key: status[key] for key in ("small", "items", "ran", "gone")} == {
        "small": 7,
        "items": [1, 2],
        "ran": "successful",
        "gone": "kept",
    }
    assert foreign in status["conditions"]
    assert status["observedGeneration"] == metadata_of(found)["generation"]
