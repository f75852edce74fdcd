"""``rolecall.dev/paused`` keeps runs from starting, ``rolecall.dev/reconcile-at`` starts one (design 7)."""

import pytest

from rolecall.kube.metadata import has_finalizer
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.integration.things import MANIFEST, THING, write_project
from tests.integration.world import CONFIG_MAP, World, always, condition, eventually, is_true

PATIENCE = 60.0
TASKS = """
- name: Remember the size
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ state | default('size-' ~ size) }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
        annotations:
          rolecall.dev/adopt: "false"  # what a finalizer leaves would go with its owner
"""
WATCH = "finalizer: {name: test.rolecall.dev/finalizer, vars: {state: finalized}}"


def annotate(**values: str | None) -> dict[str, object]:
    """Return the patch that sets rolecall's annotations, or with None takes them away."""
    return {
        "metadata": {"annotations": {f"rolecall.dev/{name.replace('_', '-')}": text for name, text in values.items()}}
    }


@pytest.fixture
async def started(world: World, thing_operator: Operator) -> Operator:
    write_project(thing_operator.folder, TASKS, WATCH)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"), PATIENCE)
    return thing_operator


async def runs(operator: Operator) -> int:
    """Count the runs that ended well."""
    return len(operator.messages("Reconcile succeeded"))


@pytest.mark.usefixtures("started")
async def test_a_pause_keeps_runs_back_until_it_ends(world: World) -> None:
    """A condition says so, a change of the spec waits, and what was changed is done at once when it is resumed."""
    await world.patch(THING, "one", annotate(paused="true"))
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Paused"), PATIENCE)
    await world.patch(THING, "one", {"spec": {"size": 2}})
    await always(lambda: world.find(CONFIG_MAP, "size-2"), lambda found: found is None, 3, "nothing runs")
    await world.patch(THING, "one", annotate(paused=None))
    thing = await world.wait_for(
        THING, "one", lambda obj: obj["status"].get("observedGeneration") == obj["metadata"]["generation"], PATIENCE
    )
    assert await world.find(CONFIG_MAP, "size-2")
    assert condition(thing, "Paused") == {}
    assert is_true(thing, "Successful")


@pytest.mark.usefixtures("started")
async def test_the_finalizer_of_a_paused_object_runs(world: World) -> None:
    """Nobody has to resume an object to get rid of it."""
    await world.patch(THING, "one", annotate(paused="true"))
    paused = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Paused"), PATIENCE)
    assert has_finalizer(paused, "test.rolecall.dev/finalizer")
    await world.delete(THING, "one")
    await world.wait_until_gone(THING, "one", PATIENCE)
    assert await world.find(CONFIG_MAP, "finalized")


async def test_anything_new_in_reconcile_at_starts_a_run(world: World, started: Operator) -> None:
    """Once for each new text, and not for another annotation."""
    for number, text in enumerate(("now", "2026-11-20T12:00:00Z"), 2):
        await world.patch(THING, "one", annotate(reconcile_at=text))
        await eventually(lambda: runs(started), lambda count, least=number: count >= least, PATIENCE, f"run {number}")  # type: ignore[misc]
    await world.patch(THING, "one", {"metadata": {"annotations": {"example.com/other": "text"}}})
    await always(lambda: runs(started), lambda count: count == 3, 2, "no further run")
