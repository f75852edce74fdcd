"""The keys of watches.yaml that the four operators do not need, each seen to work on the cluster."""

from pathlib import Path

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.integration.things import MANIFEST, THING, write_project, write_role
from tests.integration.world import CONFIG_MAP, World, eventually, is_true

PATIENCE = 60.0

WRITE_DOWN = """
- name: Write down what this run was given
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-{{ phase | default('main') }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        colour: "{{ favourite_colour | default('none') }}"
        snake: "{{ snake_case | default('none') }}"
        raw: "{{ _test_rolecall_dev_thing_spec.snakeCase | default('none') }}"
        kind: "{{ _test_rolecall_dev_thing.kind }}"
"""


async def start(operator: Operator) -> None:
    """Start an operator and wait until it works."""
    operator.start()
    await wait_until_ready(operator)


async def wait_for_success(world: World, name: str = "one") -> RawObject:
    """Wait until a Thing's run has succeeded."""
    return await world.wait_for(THING, name, lambda obj: is_true(obj, "Successful"), PATIENCE)


async def test_a_role_gets_what_the_go_runner_gives(world: World, thing_operator: Operator) -> None:
    """The spec in snake case, the raw one, the whole object, and the vars of the watch."""
    write_project(thing_operator.folder, WRITE_DOWN, "vars: {favourite_colour: red}")
    await start(thing_operator)
    await world.create(MANIFEST.replace("{size: 1}", "{snakeCase: data}"))
    await wait_for_success(world)
    written = (await world.get(CONFIG_MAP, "one-main"))["data"]
    assert written == {"colour": "red", "snake": "data", "raw": "data", "kind": "Thing"}


async def test_an_unsafe_spec_is_never_evaluated(world: World, thing_operator: Operator) -> None:
    """With markUnsafe an expression in a spec stays the text that it is."""
    write_project(thing_operator.folder, WRITE_DOWN, "markUnsafe: true")
    await start(thing_operator)
    await world.create(MANIFEST.replace("{size: 1}", "{snakeCase: \"{{ lookup('pipe', 'id') }}\"}"))
    await wait_for_success(world)
    assert (await world.get(CONFIG_MAP, "one-main"))["data"]["snake"] == "{{ lookup('pipe', 'id') }}"


async def keep_farewell(world: World) -> None:
    """Make the ConfigMap that a farewell fills in; as it is nobody's dependent, it stays when the Thing goes."""
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: one-farewell}}")


async def test_a_finalizer_runs_its_own_role_before_the_object_goes(world: World, thing_operator: Operator) -> None:
    """It is on the object before the first run, and leaves only after its own run has succeeded."""
    write_project(
        thing_operator.folder,
        WRITE_DOWN,
        "finalizer: {name: test.rolecall.dev/finalizer, role: farewell, vars: {phase: farewell}}",
    )
    broken = "- name: Not yet\n  ansible.builtin.fail: {msg: not yet}\n"
    write_role(thing_operator.folder, broken, name="farewell")
    await keep_farewell(world)
    await start(thing_operator)
    await world.create(MANIFEST)
    thing = await wait_for_success(world)
    assert metadata_of(thing)["finalizers"] == ["test.rolecall.dev/finalizer"]
    await world.delete(THING, "one")
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Failure"), PATIENCE)
    assert "data" not in await world.get(CONFIG_MAP, "one-farewell")
    write_role(thing_operator.folder, WRITE_DOWN, name="farewell")
    await world.wait_until_gone(THING, "one", PATIENCE)
    assert (await world.get(CONFIG_MAP, "one-farewell"))["data"]["kind"] == "Thing"


async def test_a_finalizer_with_vars_alone_runs_the_main_role(world: World, thing_operator: Operator) -> None:
    """The main role runs once more, with the finalizer's vars."""
    write_project(
        thing_operator.folder, WRITE_DOWN, "finalizer: {name: test.rolecall.dev/finalizer, vars: {phase: farewell}}"
    )
    await keep_farewell(world)
    await start(thing_operator)
    await world.create(MANIFEST)
    await wait_for_success(world)
    await world.delete(THING, "one")
    await world.wait_until_gone(THING, "one", PATIENCE)
    assert (await world.get(CONFIG_MAP, "one-farewell"))["data"]["kind"] == "Thing"


async def test_a_selector_leaves_other_objects_alone(world: World, thing_operator: Operator) -> None:
    """An object without the label is not touched; the one beside it is."""
    write_project(
        thing_operator.folder, WRITE_DOWN, "selector: {matchExpressions: [{key: reconcile, operator: Exists}]}"
    )
    await start(thing_operator)
    await world.create(MANIFEST.replace("one", "without"))
    await world.create(MANIFEST.replace("{name: one}", "{name: with, labels: {reconcile: 'yes'}}"))
    await wait_for_success(world, "with")
    assert "status" not in await world.get(THING, "without")


async def test_the_period_comes_from_the_annotation_first(world: World, thing_operator: Operator) -> None:
    """An object is reconciled again after its own period; one with 0s is not."""
    write_project(thing_operator.folder, WRITE_DOWN, "reconcilePeriod: 1h")
    await start(thing_operator)
    annotation = "annotations: {ansible.sdk.operatorframework.io/reconcile-period:"
    await world.create(MANIFEST.replace("{name: one}", f"{{name: often, {annotation} 2s}}}}"))
    await world.create(MANIFEST.replace("{name: one}", f"{{name: wrong, {annotation} '2'}}}}"))

    async def runs() -> int:
        return thing_operator.runs("Thing", "often")

    await eventually(runs, lambda count: count >= 3, PATIENCE, "three runs")
    wrong = await world.wait_for(THING, "wrong", lambda obj: is_true(obj, "Failure"), PATIENCE)
    message = next(item["message"] for item in wrong["status"]["conditions"] if item["type"] == "Failure")
    assert "'2'" in message


async def test_without_manage_status_nothing_is_written_to_the_object(world: World, thing_operator: Operator) -> None:
    """The role runs, the object stays as it was."""
    write_project(thing_operator.folder, WRITE_DOWN, "manageStatus: false")
    await start(thing_operator)
    (created,) = await world.create(MANIFEST)
    await world.wait_for(CONFIG_MAP, "one-main", bool, PATIENCE)
    await eventually(lambda: _succeeded(thing_operator), bool, PATIENCE, "the run has ended")
    assert metadata_of(await world.get(THING, "one"))["resourceVersion"] == metadata_of(created)["resourceVersion"]


async def _succeeded(operator: Operator) -> bool:
    return bool(operator.messages("Reconcile succeeded"))


async def test_a_playbook_serves_as_well_as_a_role(world: World, thing_operator: Operator) -> None:
    """An entry with a playbook runs it, and the role beside it."""
    write_project(thing_operator.folder, WRITE_DOWN)
    playbook = thing_operator.folder / "site.yml"
    playbook.write_text(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.import_role: {name: thing}\n"
    )
    _use_playbook(thing_operator.folder / "watches.yaml")
    await start(thing_operator)
    await world.create(MANIFEST)
    await wait_for_success(world)
    assert (await world.get(CONFIG_MAP, "one-main"))["data"]["kind"] == "Thing"


def _use_playbook(watches: Path) -> None:
    watches.write_text(watches.read_text().replace("role: thing", "playbook: site.yml"))


async def test_the_status_mapping_reads_stats_and_leaves_foreign_fields(world: World, thing_operator: Operator) -> None:
    """Values of set_stats come to the status; what others wrote there, conditions too, stays."""
    tasks = "- name: Report\n  ansible.builtin.set_stats: {data: {small: 7, list: [1, 2]}, aggregate: false}\n"
    mapping = "status: {small: $.stats.small, items: '$.stats.list[*]', ran: $.run.status, gone: $.stats.nothing}"
    write_project(thing_operator.folder, tasks, mapping)
    (thing,) = await world.create(MANIFEST)
    foreign = {"type": "Happy", "status": "True", "reason": "Always", "message": "", "observedGeneration": 3}
    await world.patch(THING, "one", {"status": {"gone": "kept", "conditions": [foreign]}}, "status")
    await start(thing_operator)
    status = (await wait_for_success(world))["status"]
    assert {key: status[key] for key in ("small", "items", "ran", "gone")} == {
        "small": 7,
        "items": [1, 2],
        "ran": "successful",
        "gone": "kept",
    }
    assert foreign in status["conditions"]
    assert status["observedGeneration"] == metadata_of(thing)["generation"]
