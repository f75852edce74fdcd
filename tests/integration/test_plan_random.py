"""Random roles write as planned.

``ROLECALL_PLANNED_ROLES`` sets their number, ``ROLECALL_FIRST_SEED`` the first seed.
"""

import asyncio
import os
import uuid
from collections.abc import Iterator, Mapping

import pytest
import yaml

from rolecall.kube.references import ObjectKey
from tests.integration.planned import COMMON, NAMES, ObjectId, Project, clear, primary
from tests.integration.proofs import Proof, prove
from tests.integration.random_roles import TEMPLATE, setup_of, tasks_of
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.support.things import KINDS

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ROLECALL_PLANNED_ROLES", "2")))
KIND = KINDS[0]
SHARED = Shared(
    {"chance": Role(COMMON, NAMES)},
    files={
        **{f"roles/chance/tasks/seed-{seed}.yml": tasks_of(seed) for seed in SEEDS},
        "roles/chance/templates/text.j2": TEMPLATE,
    },
)


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory, clusters: Clusters) -> Iterator[Mapping[ObjectId, Proof]]:
    """Yield the roles, planned and run."""
    directory = tmp_path_factory.mktemp("chance")
    SHARED.operator(directory, clusters.operator)
    project = Project(directory, f"chance-{uuid.uuid4().hex[:8]}")

    async def do() -> Mapping[ObjectId, Proof]:
        async with clusters.opened(project.namespace) as (world, sandbox):
            for name in (f"seed-{seed}" for seed in SEEDS):
                await world.create(yaml.safe_dump_all([*setup_of(name), primary(KIND, name, case=name)]))
            return await prove(project, sandbox, clusters)

    yield asyncio.run(do())
    asyncio.run(clear(project, clusters.operator))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_role_writes_as_planned(proofs: Mapping[ObjectId, Proof], seed: int) -> None:
    [proof] = [each for (_, key), each in proofs.items() if key == ObjectKey(key.namespace, f"seed-{seed}")]
    differences = proof.of_common_runs().differences
    assert not differences, "\n".join([*differences, tasks_of(seed)])
