"""``rolecall.dev/paused`` keeps runs from starting, ``rolecall.dev/reconcile-requested-at`` starts one (design 7)."""

from typing import Any

import pytest

from rolecall.kube.metadata import has_finalizer
from rolecall.kube.references import RawObject
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, always, condition, eventually, is_true

pytestmark = pytest.mark.core

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


SHARED = Shared({"thing": Role(TASKS, WATCH)})


def annotate(**values: str | None) -> dict[str, Any]:
    """Return the patch that sets rolecall's annotations, or with None takes them away."""
    return {
        "metadata": {"annotations": {f"rolecall.dev/{name.replace('_', '-')}": text for name, text in values.items()}}
    }


@pytest.fixture
async def thing(things: Things) -> Thing:
    """Return a Thing that has been reconciled once."""
    await things["thing"].create()
    await things["thing"].succeeds()
    return things["thing"]


async def wait_until_paused(thing: Thing) -> RawObject:
    """Wait until a condition says that it is paused."""
    return await thing.world.wait_for(thing.gvk, "one", lambda obj: is_true(obj, "Paused"))


async def test_pause_delays_runs_until_it_ends(world: World, thing: Thing) -> None:
    """A condition reports this. A change of the spec waits, and is applied immediately after the pause."""
    await thing.patch(annotate(paused="true"))
    await wait_until_paused(thing)
    await thing.patch({"spec": {"size": 2}})
    await always(lambda: world.find(CONFIG_MAP, "size-2"), lambda found: found is None, 3, "nothing runs")
    await thing.patch(annotate(paused=None))
    found = await world.wait_for(
        thing.gvk,
        "one",
        lambda obj: obj["status"].get("observedGeneration") == obj["metadata"]["generation"],
    )
    assert await world.find(CONFIG_MAP, "size-2")
    assert condition(found, "Paused") == {}
    assert is_true(found, "Successful")


async def test_the_finalizer_of_a_paused_object_runs(world: World, thing: Thing) -> None:
    """A paused object can be deleted."""
    await thing.patch(annotate(paused="true"))
    assert has_finalizer(await wait_until_paused(thing), "test.rolecall.dev/finalizer")
    await thing.delete()
    await thing.goes()
    assert await world.find(CONFIG_MAP, "finalized")


async def test_changed_reconcile_requested_at_starts_a_run(thing: Thing) -> None:
    """Once for each new text, and not for another annotation."""

    async def runs() -> int:
        return len(thing.messages("Reconcile succeeded"))

    for number, text in enumerate(("now", "2026-11-20T12:00:00Z"), 2):
        await thing.patch(annotate(reconcile_requested_at=text))
        await eventually(runs, lambda count, least=number: count >= least, TIMEOUT_SECONDS, f"run {number}")  # type: ignore[misc]
    await thing.patch({"metadata": {"annotations": {"example.com/other": "text"}}})
    await always(runs, lambda count: count == 3, 2, "no further run")
