"""Roles made by chance do what was planned.

``ROLECALL_PLANNED_ROLES`` asks for more of them, ``ROLECALL_FIRST_SEED`` for others.
"""

import asyncio
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.kube.references import ObjectKey
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan.sandbox import sandbox_in
from tests.integration.planned import ObjectId, Project, clear
from tests.integration.planned_roles import TEMPLATE, setup_of, tasks_of
from tests.integration.proofs import Proof, prove
from tests.integration.sandboxes import reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.integration.things import KINDS
from tests.integration.world import World

__all__ = ["reader_kubeconfig", "sandbox_plane"]

FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ROLECALL_PLANNED_ROLES", "2")))
KIND = KINDS[0]
COMMON = '- name: Do what the object asks for\n  ansible.builtin.include_tasks: "{{ case }}.yml"\n'
NAMES = 'vars: {me: "{{ ansible_operator_meta.name }}", ns: "{{ ansible_operator_meta.namespace }}"}'
SHARED = Shared(
    {"chance": Role(COMMON, NAMES)},
    files={
        **{f"roles/chance/tasks/seed-{seed}.yml": tasks_of(seed) for seed in SEEDS},
        "roles/chance/templates/text.j2": TEMPLATE,
    },
)


@pytest.fixture(scope="module")
def proofs(
    tmp_path_factory: pytest.TempPathFactory,
    defined: ControlPlane,
    sandbox_plane: ControlPlane,
    reader_kubeconfig: Path,
) -> Iterator[Mapping[ObjectId, Proof]]:
    """Give the roles, planned and run."""
    folder = tmp_path_factory.mktemp("chance")
    SHARED.operator(folder, defined.kubeconfig)
    project = Project(folder, f"chance-{uuid.uuid4().hex[:8]}")

    async def do() -> Mapping[ObjectId, Proof]:
        async with await Client.connect(str(defined.kubeconfig)) as client, sandbox_in(sandbox_plane) as sandbox:
            world = World(client, project.namespace)
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}})
            for name in (f"seed-{seed}" for seed in SEEDS):
                thing = {"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": {"name": name}}
                await world.create(yaml.safe_dump_all([*setup_of(name), {**thing, "spec": {"case": name}}]))
            return await prove(project, sandbox, reader_kubeconfig, defined.kubeconfig)

    yield asyncio.run(do())
    asyncio.run(clear(project, defined.kubeconfig))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_role_made_by_chance_does_what_was_planned(proofs: Mapping[ObjectId, Proof], seed: int) -> None:
    [proof] = [each for (_, key), each in proofs.items() if key == ObjectKey(key.namespace, f"seed-{seed}")]
    differences = proof.of_common_runs().differences
    assert not differences, "\n".join([*differences, tasks_of(seed)])
