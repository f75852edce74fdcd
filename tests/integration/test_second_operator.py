"""An operator reports another deployment that reconciles the same objects, and not a replica of its own."""

import itertools
from pathlib import Path

from rolecall.workbench.controlplane.cluster import ControlPlane
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import TIMEOUT_SECONDS, World, eventually, is_true

NOTHING = "- name: Do nothing\n  ansible.builtin.debug: {msg: nothing}\n"
REPORT = "Another program writes the conditions of this operator, probably a second operator; logged once"


def replica(directory: Path, defined: ControlPlane, world: World, lease: str) -> Operator:
    """Return an operator that takes part in an election, as a pod of a Deployment does."""
    directory.mkdir()
    write_project(directory, NOTHING)
    election = ("--leader-elect", "--leader-election-id", lease, "--leader-election-namespace", world.namespace)
    return Operator(directory, defined.kubeconfig, world.namespace, election)


async def test_two_deployments_for_the_same_objects_report_each_other(
    world: World, defined: ControlPlane, tmp_path: Path
) -> None:
    first, second = (replica(tmp_path / name, defined, world, name) for name in ("first", "second"))
    try:
        for operator in (first, second):
            operator.start()
            await wait_until_ready(operator)
        await world.create(MANIFEST)
        sizes = itertools.count(2)

        async def reports_after_a_change() -> list[int]:
            size = next(sizes)
            await world.patch(THING, "one", {"spec": {"size": size}})
            await world.wait_for(
                THING, "one", lambda obj: is_true(obj, "Successful") and obj["status"]["observedGeneration"] == size
            )
            return [len(each.messages(REPORT)) for each in (first, second)]

        reports = await eventually(
            reports_after_a_change, lambda found: min(found) > 0, TIMEOUT_SECONDS, "a report by each operator"
        )
        assert reports == [1, 1]
        (report,) = second.messages(REPORT)
        assert (report["gvk"], report["object"]) == (str(THING), f"{world.namespace}/one")
        assert report["field_manager"]
    finally:
        for operator in (first, second):
            operator.stop()


async def test_replica_that_takes_over_reports_nothing(world: World, defined: ControlPlane, tmp_path: Path) -> None:
    first, second = (replica(tmp_path / name, defined, world, "shared") for name in ("first", "second"))
    try:
        first.start()
        await wait_until_ready(first)
        await world.create(MANIFEST)
        await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))
        second.start()  # it isn't ready before it leads
        assert first.stop() == 0
        await world.patch(THING, "one", {"spec": {"size": 2}})
        await world.wait_for(THING, "one", lambda obj: obj["status"]["observedGeneration"] == 2)
    finally:
        first.stop()
        second.stop()
    assert first.messages(REPORT) + second.messages(REPORT) == []
