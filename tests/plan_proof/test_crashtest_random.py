"""Crash tests of random roles agree with roles that simply end after the same write.

A role that lacks its last tasks comes to the state of an interrupted one without any kill. So its first tasks run, then
the whole role until it has settled, and the end state decides what the crash test must have found: for each write that
the crash test reports, and for every third of the others. Some random roles have a fault, for example if they read an
object, delete it, and write what they have read, or never settle.

``ROLECALL_PLANNED_ROLES`` sets the number of roles, ``ROLECALL_FIRST_SEED`` the first seed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import yaml

from rolecall.runner.config.watches import Watch
from rolecall.workbench.comparison.clocks import Clocks
from rolecall.workbench.comparison.end_states import Baseline, Difference
from rolecall.workbench.crashtest.object_under_test import ObjectUnderTest, Uninterrupted, end_state
from rolecall.workbench.crashtest.results import Verdict
from rolecall.workbench.crashtest.simulated_operator import Limits, SimulatedOperator
from rolecall.workbench.crashtest.write_log import Write, WriteLog
from rolecall.workbench.plan.model import PlanError
from tests.integration.crash_tests import crash_test_of, crash_tester_of, of_case, project_of
from tests.integration.planned import COMMON, NAMES, Project
from tests.integration.random_roles import TASKS, TEMPLATE, setup_of, tasks_of
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.support.things import KINDS

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ROLECALL_PLANNED_ROLES", "2")))
SHARED = Shared(
    {"chance": Role(COMMON, NAMES)},
    files={
        **{f"roles/chance/tasks/seed-{seed}.yml": tasks_of(seed, can_fail=False) for seed in SEEDS},
        "roles/chance/templates/text.j2": TEMPLATE,
    },
)
LIMITS = Limits(seconds=120, wait_seconds=60)
TOLERANCE_SECONDS = 60.0
"""The random roles write no times."""
JUDGE_EVERY = 3


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, clusters: Clusters) -> Iterator[Project]:
    """Yield the project with the roles."""
    with project_of(SHARED, tmp_path_factory.mktemp("chance"), clusters) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a write: after complete runs, and these first tasks with so many items of the last one; 0 is all."""

    runs: int
    tasks: int
    items: int


def places_of(writes: Sequence[Write]) -> list[Place]:
    """Return the place of each write. A run ends with a status of the operator; another one begins again."""
    found: list[Place] = []
    before = Place(0, 0, 0)
    for write in writes:
        if write.origin is None:
            place = replace(before, tasks=TASKS + 1, items=0) if before.tasks else before
        else:
            tasks = 1 + int(write.task.name.rpartition(" : ")[2].split()[0])
            is_next = tasks < before.tasks
            items = before.items + 1 if tasks == before.tasks else 1
            place = Place(before.runs + is_next, tasks, items)
        found.append(place)
        before = place
    # A task with one write is complete after it, even if it has two items.
    return [
        replace(one, items=0) if (two.runs, two.tasks) != (one.runs, one.tasks) else one
        for one, two in pairwise([*found, Place(-1, 0, 0)])
    ]


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of a seed, complete and cut off."""

    seed: int
    watch: Watch
    project: Project

    def until(self, place: Place) -> Watch:
        """Return the watch of the role that ends at a place."""
        tasks = yaml.safe_load(tasks_of(self.seed, can_fail=False))[: place.tasks]
        if place.items:
            tasks[-1]["loop"] = tasks[-1]["loop"][: place.items]
        name = f"seed-{self.seed}-until-{place.tasks}-{place.items}"
        (self.project.directory / f"roles/chance/tasks/{name}.yml").write_text(yaml.safe_dump(tasks))
        return replace(self.watch, variables={**self.watch.variables, "case": name})


async def differences_after(
    tested: ObjectUnderTest, roles: Roles, place: Place, first: Uninterrupted, baseline: Baseline
) -> list[Difference]:
    """Return the differences if runs end at a place by themselves, and complete ones follow."""
    await tested.reset()
    primary = await tested.context.client.get(roles.watch.gvk, tested.target.key)
    log = WriteLog(resource=tested.resource, primary=primary)
    for watch in (*[roles.watch] * place.runs, roles.until(place)):
        await SimulatedOperator(tested.context, watch, log, LIMITS).reconciles.reconcile(())
    await SimulatedOperator(tested.context, roles.watch, log, LIMITS).settle(until_unchanged=first.is_unchanging)
    end = await end_state(tested.context, log, (*first.objects, *first.end))
    return baseline.differences(end, Clocks(first.started, first.started, TOLERANCE_SECONDS), str)


def scales_in_two_directions(seed: int) -> bool:
    """Return whether a role gives a Deployment two numbers of replicas, so that its controller starts run after run."""
    made = [task.get("kubernetes.core.k8s", {}).get("definition", {}) for task in yaml.safe_load(tasks_of(seed))]
    replicas = {
        (each["metadata"]["name"], each["spec"]["replicas"]) for each in made if each.get("kind") == "Deployment"
    }
    return len(replicas) > len({name for name, _ in replicas})


@pytest.mark.parametrize("seed", SEEDS)
async def test_crash_test_of_a_random_role_finds_what_a_cut_off_role_leaves(
    project: Project, clusters: Clusters, seed: int, record_property: Callable[[str, object], None]
) -> None:
    obj, others = of_case(KINDS[0], f"seed-{seed}"), setup_of(f"seed-{seed}")
    try:
        found = await crash_test_of(project, clusters, obj, others)
    except PlanError as error:
        assert "doesn't settle even if nothing interrupts it" in str(error)  # noqa: PT017 - not every such role
        assert scales_in_two_directions(seed), tasks_of(seed)
        return
    assert len(found.trials) == len(found.writes)
    bad = {trial.number: trial for trial in found.trials if trial.verdict is not Verdict.SAME}
    record_property("trials", len(found.trials))
    record_property("bad", str({number: trial.write.task.name for number, trial in bad.items()}))
    record_property("seconds", found.seconds)

    numbers = range(1, len(found.trials) + 1)
    judged = [number for number in numbers if number in bad or (number + seed) % JUDGE_EVERY == 0]
    expected = {}
    async with crash_tester_of(project, clusters, obj, others) as (crash_tester, targets):
        tested = await crash_tester.object_under_test(targets)
        await tested.start(deletes=False, edited=None)
        first = await tested.uninterrupted()
        await tested.reset()
        second = await tested.uninterrupted(until_unchanged=first.is_unchanging)
        baseline = Baseline(first.end, second.end, Clocks(first.started, second.started, TOLERANCE_SECONDS))
        roles = Roles(seed, tested.target.watch, project)
        places = places_of(found.writes)
        for number in judged:
            if differences := await differences_after(tested, roles, places[number - 1], first, baseline):
                expected[number] = differences
    assert bad.keys() == expected.keys(), "\n".join(map(str, (bad, expected, tasks_of(seed, can_fail=False))))
