"""The cases of a reconcile that hold for every cluster: a class for the one in memory and the real one to inherit.

Each test gets a fixture ``world``, a namespace of its own on one of them.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from rolecall.kube.errors import NotFoundError
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.metadata import generation_of, has_finalizer
from rolecall.runner.controller.controller import Result
from rolecall.runner.runs.outcome import Outcome
from tests.support.reconciler_rig import DEFAULT_PERIOD_SECONDS, FAILURE, FINALIZER, SUCCESS, finalizer, make_rig
from tests.support.things import MANIFEST, THING
from tests.support.world import World

SUCCESSFUL = {
    "Running": ("True", "Successful", "Awaiting next reconciliation"),
    "Successful": ("True", "Successful", "Last reconciliation succeeded"),
    "Failure": ("False", "Successful", ""),
}
PERIOD = "ansible.sdk.operatorframework.io/reconcile-period"


class ReconcilerContract:
    """The changes of a reconcile in the cluster."""

    async def test_success_is_in_the_status(self, world: World, tmp_path: Path) -> None:
        """Conditions, counts and generation are there, and the next time is that of the period."""
        rig = make_rig(world, tmp_path)
        await world.create(MANIFEST)
        assert await rig.reconcile() == Result(requeue_after_seconds=DEFAULT_PERIOD_SECONDS)
        assert await rig.conditions() == SUCCESSFUL
        thing = await rig.thing()
        assert thing["status"]["observedGeneration"] == generation_of(thing) == 1
        [running] = [item for item in thing["status"]["conditions"] if item["type"] == "Running"]
        assert running["ansibleResult"]["ok"] == 2

    async def test_failure_names_its_task_until_a_success(self, world: World, tmp_path: Path) -> None:
        """The condition Failure says why until a run succeeds."""
        rig = make_rig(world, tmp_path)
        await world.create(MANIFEST)
        succeeded, rig.runner.outcome = rig.runner.outcome, FAILURE
        assert await rig.reconcile() == Result(failed=True)
        failed = await rig.conditions()
        assert failed["Failure"] == ("True", "Failed", "Task 'Boom': no more coffee")
        assert (failed["Successful"][0], failed["Running"][0]) == ("False", "False")
        rig.runner.outcome = succeeded
        await rig.reconcile()
        assert await rig.conditions() == SUCCESSFUL

    async def test_ready_conditions_follow_the_outcome(self, world: World, tmp_path: Path) -> None:
        """They survive the API server, follow the outcome, and name the generation."""
        rig = make_rig(world, tmp_path, ready_conditions=True, stalled_after_seconds=0.0)
        await world.create(MANIFEST)
        await rig.reconcile()
        done = {kind: rest for kind, rest in (await rig.conditions()).items() if kind not in SUCCESSFUL}
        assert done == {
            "Ready": ("True", "RunSucceeded", "The last run succeeded"),
            "Reconciling": ("False", "RunSucceeded", ""),
            "Stalled": ("False", "RunSucceeded", ""),
        }
        rig.runner.outcome = FAILURE
        await rig.reconcile()
        failed = await rig.conditions()
        assert failed["Ready"][:2] == ("False", "RunFailed")
        assert failed["Stalled"] == ("True", "RunFailed", "Task 'Boom': no more coffee")
        thing = await rig.thing()
        of = {item["type"]: item.get("observedGeneration") for item in thing["status"]["conditions"]}
        assert of == {**dict.fromkeys(SUCCESSFUL), "Ready": 1, "Reconciling": 1, "Stalled": 1}

    async def test_finalizer_exists_before_the_run_and_until_its_own_succeeds(
        self, world: World, tmp_path: Path
    ) -> None:
        """A deleted object stays until the finalizer's run succeeds."""
        rig = make_rig(world, tmp_path, finalizer=finalizer())
        await world.create(MANIFEST)
        carried = []

        async def look() -> None:
            carried.append(has_finalizer(await rig.thing(), FINALIZER))

        rig.runner.play = look
        await rig.reconcile()
        await world.delete(THING, "one")
        succeeded, rig.runner.outcome = rig.runner.outcome, FAILURE
        assert (await rig.reconcile()).failed
        assert (await rig.conditions())["Failure"][0] == "True"
        rig.runner.outcome = succeeded
        await rig.reconcile()
        assert await world.find(THING, "one") is None
        assert carried == [True, True, True]

    async def test_writes_of_other_clients_during_a_run_are_kept(self, world: World, tmp_path: Path) -> None:
        """The status is folded from the object as it is after the run, and observes what the run worked with."""
        rig = make_rig(world, tmp_path)
        await world.create(MANIFEST)

        async def interfere() -> None:
            await world.patch(THING, "one", {"spec": {"size": 2}, "metadata": {"labels": {"by": "user"}}})
            await world.patch(THING, "one", {"status": {"foreign": "kept"}}, "status")

        rig.runner.play = interfere
        await rig.reconcile()
        thing = await rig.thing()
        assert thing["status"]["foreign"] == "kept"
        assert (thing["spec"], thing["metadata"]["labels"]) == ({"size": 2}, {"by": "user"})
        assert (thing["status"]["observedGeneration"], generation_of(thing)) == (1, 2)
        assert await rig.conditions() == SUCCESSFUL
        assert rig.runs == 1

    async def test_mapped_value_rejected_by_the_schema_is_omitted_and_reported(
        self, world: World, tmp_path: Path
    ) -> None:
        """The conditions are written all the same."""
        rig = make_rig(world, tmp_path, status={"small": FieldPath.parse("$.resource.spec.size")})
        await world.create(MANIFEST.replace("size: 1", "size: 11"))
        await rig.reconcile()
        thing = await rig.thing()
        assert "small" not in thing["status"]
        state, _, message = (await rig.conditions())["Successful"]
        assert state == "True"
        assert message.startswith("Last reconciliation succeeded; the mapped status was rejected: ")
        assert "status.small" in message
        assert rig.runs == 1

    async def test_recreated_object_gets_no_status_of_its_predecessor(self, world: World, tmp_path: Path) -> None:
        """Only the name is the same."""
        rig = make_rig(world, tmp_path)
        [before] = await world.create(MANIFEST)
        await world.delete(THING, "one")
        await world.create(MANIFEST)
        with pytest.raises(NotFoundError):
            await rig.reconciler.status.write(before, Outcome.of_failure("no"))
        assert "status" not in await rig.thing()

    async def test_non_finite_number_is_omitted(self, world: World, tmp_path: Path) -> None:
        """The API server answers such a status with 400."""
        paths = {name: FieldPath.parse(f"$.stats.{name}") for name in ("ratio", "small")}
        rig = make_rig(world, tmp_path, status=paths)
        rig.runner.outcome = replace(SUCCESS, stats={"ratio": math.nan, "small": 1})
        await world.create(MANIFEST)
        await rig.reconcile()
        assert "ratio" not in (await rig.thing())["status"]
        assert (await rig.thing())["status"]["small"] == 1
        state, _, message = (await rig.conditions())["Successful"]
        assert (state, "ratio: found a number that is infinite or NaN" in message) == ("True", True)

    async def test_mapped_value_is_in_the_status(self, world: World, tmp_path: Path) -> None:
        """A path into the object gives the field its value."""
        rig = make_rig(world, tmp_path, status={"small": FieldPath.parse("$.resource.spec.size")})
        await world.create(MANIFEST)
        await rig.reconcile()
        assert (await rig.thing())["status"]["small"] == 1

    async def test_object_deleted_during_its_run_is_not_a_failure(self, world: World, tmp_path: Path) -> None:
        """No status is written, and the object stays deleted."""
        rig = make_rig(world, tmp_path)
        await world.create(MANIFEST)
        rig.runner.play = lambda: world.delete(THING, "one")
        assert await rig.reconcile() == Result()
        assert await world.find(THING, "one") is None

    async def test_invalid_period_annotation_fails_without_a_run(self, world: World, tmp_path: Path) -> None:
        """The condition names the annotation and the text."""
        rig = make_rig(world, tmp_path)
        await world.create(MANIFEST.replace("name: one", f"name: one, annotations: {{{PERIOD}: soon}}"))
        assert await rig.reconcile() == Result(failed=True, is_final=True)
        state, reason, message = (await rig.conditions())["Failure"]
        assert (state, reason) == ("True", "Failed")
        assert message.startswith("Unable to parse reconcile period annotation: not a duration: 'soon'")
        assert rig.runs == 0
