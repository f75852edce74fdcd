"""A plan shows the writes of the next run, although its account is only permitted to read."""

import asyncio
import base64
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.comparison.reports import ExitCode
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan.model import Plan
from rolecall.workbench.plan.output import document_of, lines_of
from rolecall.workbench.plan.shown_changes import Findings, findings_of
from tests.integration.definitions import CRD
from tests.integration.plan_cases import CASES, COPY, DEPLOYMENTS, FINALIZING, PASSWORD, SETUP
from tests.integration.planned import COMMON, NAMES, KeptPlan, ObjectId, Project, clear, plan_of, primary
from tests.integration.proofs import Proof, follow
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.support.things import KINDS, THING
from tests.support.world import CONFIG_MAP, DEPLOYMENT, EVENT, POD, REPLICA_SET, TIMEOUT_SECONDS, World

pytestmark = pytest.mark.core

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

SECRET, SERVICE = GVK("", "v1", "Secret"), GVK("", "v1", "Service")
FINALIZER = "test.rolecall.dev/finalizer"
PLAIN, FINAL = KINDS[0], KINDS[1]
SHARED = Shared(
    {
        "plain": Role(COMMON, NAMES),
        "final": Role(FINALIZING, f"{NAMES}\nfinalizer: {{name: {FINALIZER}, vars: {{state: absent}}}}"),
    },
    files={
        **{f"roles/plain/tasks/{name}.yml": tasks for name, tasks in CASES.items()},
        "roles/plain/templates/copy.j2": COPY,
    },
)
"""Kinds ``plain``, whose objects name their case, and ``final``, whose objects have a finalizer."""

COMPARED = set(CASES) - {"secret"}
"""A record has placeholders for the values of Secrets, a plan does not."""

IDEMPOTENT = sorted(set(CASES) - {"generated", "invalid", "conflict", "applied", "present"})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, defined: ControlPlane) -> Iterator[Project]:
    """Yield the project of ``SHARED`` for a namespace of this file."""
    directory = tmp_path_factory.mktemp("planned")
    SHARED.operator(directory, defined.kubeconfig)
    project = Project(directory, f"plan-{uuid.uuid4().hex[:8]}")
    yield project
    asyncio.run(clear(project, defined.kubeconfig))
    asyncio.run(undefine_gadgets(project, defined.kubeconfig))


async def undefine_gadgets(project: Project, kubeconfig: Path) -> None:
    """Remove the kind that the case ``definition`` has made."""
    async with await Client.connect(str(kubeconfig)) as client:
        with suppress(NotFoundError):
            await client.delete(CRD, ObjectKey("", f"gadgets.{project.namespace}.rolecall.dev"))


@dataclass(frozen=True, slots=True)
class Before:
    """The plan made before the operator's start, and all objects of the namespace before and after the plan."""

    kept: KeptPlan
    versions: tuple[Mapping[str, str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class After:
    """The runs of planned objects, and the plan afterwards."""

    proofs: Mapping[ObjectId, Proof]
    kept: KeptPlan


@pytest.fixture(scope="module")
def before(project: Project, clusters: Clusters) -> Before:
    """Return the plan of all cases."""

    async def plan() -> Before:
        async with clusters.opened(project.namespace) as (world, sandbox):
            await prepare(world)
            first = await versions_in(world)
            kept = await plan_of(project, sandbox, clusters.reader)
            return Before(kept, (first, await versions_in(world)))

    return asyncio.run(plan())


@pytest.fixture(scope="module")
def after(before: Before, project: Project, clusters: Clusters) -> After:
    """Return the runs of the operator, and the plan of the same objects afterwards."""

    async def do() -> After:
        proofs = await follow(project, before.kept, clusters.operator)
        async with clusters.opened(project.namespace, is_new=False) as (_, sandbox):
            return After(proofs, await plan_of(project, sandbox, clusters.reader))

    return asyncio.run(do())


async def prepare(world: World) -> None:
    """Create the existing objects, and an object for each case."""
    await world.create(SETUP)
    for name in DEPLOYMENTS:
        await world.wait_for(DEPLOYMENT, name, is_available, TIMEOUT_SECONDS)
    await world.create(yaml.safe_dump_all([primary(PLAIN, name, case=name) for name in CASES]))
    ending = primary(FINAL, "ending")
    ending["metadata"]["finalizers"] = [FINALIZER]
    await world.create(yaml.safe_dump_all([ending, primary(FINAL, "living")]))
    await world.delete(FINAL, "ending")


def is_available(obj: RawObject) -> bool:
    """Return whether a Deployment has its replicas."""
    return bool((obj.get("status") or {}).get("availableReplicas") == obj["spec"]["replicas"])


def is_of_pods(obj: RawObject) -> bool:
    """Return whether this is an Event about pods, which controllers post at any time."""
    return obj.get("involvedObject", {}).get("kind") in ("Pod", "ReplicaSet", "Deployment")


async def versions_in(world: World) -> dict[str, str]:
    """Return the resource versions of the objects in a namespace, by kind and name."""
    kinds = (CONFIG_MAP, SECRET, DEPLOYMENT, REPLICA_SET, POD, SERVICE, EVENT, THING, PLAIN, FINAL)
    found = [(gvk.kind, obj["metadata"]) for gvk in kinds for obj in await world.objects(gvk) if not is_of_pods(obj)]
    return {f"{kind} {metadata['name']}": metadata["resourceVersion"] for kind, metadata in found}


def found_for(plan: Plan, name: str) -> Findings:
    """Return the findings of a plan about an object."""
    return next(each for each in findings_of(plan) if each.plan.key.name == name)


@pytest.mark.parametrize("case", sorted(COMPARED))
def test_planned_writes_equal_those_of_the_next_run(after: After, project: Project, case: str) -> None:
    proof = after.proofs[PLAIN.kind, ObjectKey(project.namespace, case)].of_common_runs()
    assert proof.differences == []
    assert proof.surplus == 0
    assert bool(proof.planned_writes)


@pytest.mark.parametrize("name", ["ending", "living"])
def test_run_of_a_finalizer_is_planned(after: After, project: Project, name: str) -> None:
    proof = after.proofs[FINAL.kind, ObjectKey(project.namespace, name)]
    assert proof.differences == []
    assert len(proof.planned_writes) == 1


def test_plan_only_reads(before: Before) -> None:
    assert set(before.kept.requests) == {"GET"}
    assert before.versions[0] == before.versions[1]


@pytest.mark.parametrize("case", IDEMPOTENT)
def test_completed_changes_are_not_planned_again(after: After, case: str) -> None:
    assert found_for(after.kept.plan, case).exit_code == ExitCode.SAME


def test_rejected_write_is_planned_as_a_failure(before: Before, after: After, project: Project) -> None:
    found = found_for(before.kept.plan, "invalid")
    assert found.exit_code == ExitCode.FAILED
    assert "Create an invalid Service" in found.failure
    assert after.proofs[PLAIN.kind, ObjectKey(project.namespace, "invalid")].real_failure == found.failure


def test_no_secret_value_is_shown(before: Before) -> None:
    plan = before.kept.plan
    findings = findings_of(plan)
    encoded = base64.b64encode(PASSWORD.encode()).decode()
    for text in (
        json.dumps(document_of(plan, findings)),
        "\n".join(line.text for line in lines_of(plan, findings, is_verbose=True)),
    ):
        assert "secret-passed" in text
        assert PASSWORD not in text
        assert encoded not in text
