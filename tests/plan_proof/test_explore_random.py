"""Explorations of random roles find each planted fault at its task, and nothing else.

``random_options`` has the constructs of the roles, and knows which of them break a rule.

``ROLECALL_PLANNED_ROLES`` sets the number of roles, ``ROLECALL_FIRST_SEED`` the first seed.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rolecall.workbench.explore.edits import edits_of
from rolecall.workbench.explore.results import Exploration, Verdict
from rolecall.workbench.explore.rules import Rule
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.crash_tests import project_of
from tests.integration.explorations import explorer_of
from tests.integration.planned import Project, primary
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.plan_proof.random_options import QUIET, VALID, RandomRole, definitions, shared_roles

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ROLECALL_PLANNED_ROLES", "2")))
SHARED = shared_roles(SEEDS)


def limit_of(role: RandomRole) -> int:
    """Return a number of edits with which each is made at least once: after a failure, the walk returns first."""
    fields = [each.changes[0].path[0] for each in edits_of(role.schema, role.spec)]
    failing = {name for name, each in role.options.items() if {VALID, QUIET} & {*each.breaks} or each.is_rejected_late}
    return round(1.35 * len(fields)) + bool(role.gated) + sum(name in failing for name in fields)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, clusters: Clusters) -> Iterator[Project]:
    """Yield the project with the roles, whose kinds the cluster knows."""
    Applier(clusters.real.kubeconfig).apply(definitions(SHARED, SEEDS))
    with project_of(SHARED, tmp_path_factory.mktemp("options"), clusters) as found:
        yield found


def breaches(found: Exploration) -> set[tuple[Rule, str]]:
    """Return the rules that findings break, each with its task; ``return`` counts as ``fresh``."""
    symptoms = [each.symptom for each in found.findings]
    return {
        (
            Rule.FRESH if each.rule is Rule.RETURN else each.rule,
            each.task.name.rpartition(" : ")[2] if each.task else "",
        )
        for each in symptoms
    }


@pytest.mark.parametrize("seed", SEEDS)
async def test_findings_are_the_planted_faults_of_a_random_role(
    project: Project, clusters: Clusters, seed: int, record_property: Callable[[str, object], None]
) -> None:
    role, name = RandomRole.of_seed(seed), f"seed{seed}"
    project = project if role.owns else replace(project, arguments=("--inject-owner-ref=false",))
    async with explorer_of(
        project, clusters, primary(SHARED.gvk(name), "one", **role.spec), edits=limit_of(role)
    ) as explorer:
        found = await explorer.explore(print, print)
    record_property("options", len(role.spec))
    record_property("edits", found.edits)
    record_property("expected", len(role.expected))
    record_property("seconds", round(found.seconds))
    assert breaches(found) == role.expected, "\n".join(map(str, (role, *found.findings, *found.notes)))
    assert Verdict.NOT_TRIED not in {each.verdict for each in found.rows}, found.rows
    late = {each.fields for each in found.rows if each.verdict is Verdict.REJECTED}
    rejecting = {name for name, each in role.options.items() if each.is_rejected_late}
    assert rejecting == {field for fields in late for field in fields} & rejecting
