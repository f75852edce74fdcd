"""Crash tests of random roles have no findings: these roles write whole objects, in any order.

``ROLECALL_PLANNED_ROLES`` sets their number, ``ROLECALL_FIRST_SEED`` the first seed.
"""

import os
from collections.abc import Iterator

import pytest

from rolecall.workbench.crashtest.model import Verdict
from rolecall.workbench.plan.model import PlanError
from tests.integration.crash_tests import crash_test_of, project_of
from tests.integration.planned import COMMON, NAMES, Project
from tests.integration.random_roles import TEMPLATE, setup_of, tasks_of
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.integration.things import KINDS

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ROLECALL_PLANNED_ROLES", "2")))
SHARED = Shared(
    {"chance": Role(COMMON, NAMES)},
    files={
        **{f"roles/chance/tasks/seed-{seed}.yml": tasks_of(seed) for seed in SEEDS},
        "roles/chance/templates/text.j2": TEMPLATE,
    },
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, clusters: Clusters) -> Iterator[Project]:
    """Give the project with the roles."""
    with project_of(SHARED, tmp_path_factory.mktemp("chance"), clusters) as found:
        yield found


@pytest.mark.parametrize("seed", SEEDS)
async def test_crash_test_of_a_random_role_has_no_findings(project: Project, clusters: Clusters, seed: int) -> None:
    name = f"seed-{seed}"
    try:
        found = await crash_test_of(project, clusters, KINDS[0], name, setup_of(name))
    except PlanError as error:  # some roles have a task that fails
        assert "even if nothing interrupts it" in str(error)  # noqa: PT017
        return
    bad = [trial for trial in found.trials if trial.verdict is not Verdict.SAME]
    assert not bad, "\n".join([*map(str, bad), tasks_of(seed)])
