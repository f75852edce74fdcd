"""A crash test finds each planted fault at its task, and nothing in the corrected role."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.runs.process import ProcessRunner
from rolecall.runner.runs.process_marks import processes_of_run
from rolecall.runner.warm.starter import starter_for
from rolecall.system.processes import reap_children
from rolecall.workbench.crashtest.model import CrashTest, CrashTestRequest, Trial, Verdict
from rolecall.workbench.crashtest.operator_life import Fate, Limits, OperatorLife
from rolecall.workbench.crashtest.tester import CrashTester, opened_tester
from rolecall.workbench.crashtest.write_log import WriteLog
from rolecall.workbench.plan.planner import Target, Targets, apply_file
from rolecall.workbench.plan.sandbox_sources import LiveSource
from tests.integration.crash_cases import CASES, LEDGER, Case
from tests.integration.planned import NAMES, Project, clear, primary
from tests.integration.sandboxes import DEPLOYMENT_OF_TWO, Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.integration.things import DEFINITION, KINDS
from tests.integration.world import CONFIG_MAP, POD, TIMEOUT_SECONDS, World, condition, eventually

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

PLAIN, FINAL = KINDS[0], KINDS[1]
_INCLUDE = '- name: Run the tasks of the case\n  ansible.builtin.include_tasks: "{{ case }}.yml"\n'
SHARED = Shared(
    {
        "plain": Role(_INCLUDE, NAMES),
        "final": Role(
            _INCLUDE,
            f"{NAMES[:-1]}, state: present}}\n"
            "finalizer: {name: test.rolecall.dev/finalizer, vars: {state: absent}}",
        ),
    },
    files={
        **{f"roles/plain/tasks/{name}.yml": case.tasks.replace("KIND", PLAIN.kind) for name, case in CASES.items()},
        **{
            f"roles/plain/tasks/{name}-corrected.yml": case.corrected.replace("KIND", PLAIN.kind)
            for name, case in CASES.items()
        },
        "roles/final/tasks/ledger.yml": LEDGER.tasks,
        "roles/final/tasks/ledger-corrected.yml": LEDGER.corrected,
    },
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, clusters: Clusters) -> Iterator[Project]:
    """Give the project of ``SHARED`` for a namespace of this file, which has no objects."""
    directory = tmp_path_factory.mktemp("crashes")
    SHARED.operator(directory, clusters.operator)
    project = Project(directory, f"crash-{uuid.uuid4().hex[:8]}")

    async def create() -> None:
        async with clusters.opened(project.namespace):
            pass

    asyncio.run(create())
    yield project
    asyncio.run(clear(project, clusters.operator))


@asynccontextmanager
async def crash_tester_of(
    project: Project, clusters: Clusters, gvk: GVK, name: str, setup: str = "", **asked: Any
) -> AsyncIterator[tuple[CrashTester, Targets]]:
    """Yield the tester of an object that does not exist yet, whose name is that of its case."""
    with project.entered():
        plan = project.request(clusters.reader, kind=gvk.kind, name=name)
        request = CrashTestRequest(plan, project.directory / "records" / name, **asked)
        [watch] = [watch for watch in plan.watches if watch.gvk == gvk]
        others = tuple(yaml.safe_load_all(setup.replace("ME", name))) if setup else ()
        edited = primary(gvk, name, case=name)
        for each in (edited, *others):
            each["metadata"]["namespace"] = project.namespace
        targets = Targets((Target(watch, ObjectKey(project.namespace, name), edited),), others=others)
        async with (
            clusters.opened(project.namespace, is_new=False) as (_, sandbox),
            await Client.connect(str(clusters.reader)) as cluster,
        ):
            reap_children()
            try:
                async with (
                    starter_for(plan.watches, warm=plan.settings.warm) as starter,
                    opened_tester(request, sandbox, LiveSource(cluster), ProcessRunner(starter)) as tester,
                ):
                    yield tester, targets
            finally:
                await sandbox.forget()


async def crash_test_of(
    project: Project, clusters: Clusters, gvk: GVK, name: str, setup: str = "", **asked: Any
) -> CrashTest:
    """Return the crash test of an object that does not exist yet, whose name is that of its case."""
    async with crash_tester_of(project, clusters, gvk, name, setup, **asked) as (tester, targets):
        return await tester.test(targets, lambda _: None, print)


def bad_trials(found: CrashTest) -> list[Trial]:
    """Return the trials that did not end in the same state."""
    return [trial for trial in found.trials if trial.verdict is not Verdict.SAME]


def check_fault(found: CrashTest, case: Case) -> None:
    """Assert that a fault was found first at its task, and that the trials before it are the same."""
    first = bad_trials(found)[0]
    assert first.write.task.name.endswith(case.task), bad_trials(found)
    assert first.write.task.location
    assert first.verdict is case.verdict, first
    assert case.finding in f"{first.differences[:1]} {first.message}", first
    assert first.records is not None
    assert list(first.records.glob("*.jsonl"))


@pytest.mark.parametrize("name", CASES)
async def test_crashtest_finds_planted_fault_at_its_task(project: Project, clusters: Clusters, name: str) -> None:
    found = await crash_test_of(project, clusters, PLAIN, name, CASES[name].setup)
    check_fault(found, CASES[name])


@pytest.mark.parametrize("name", CASES)
async def test_crashtest_finds_nothing_in_the_corrected_role(project: Project, clusters: Clusters, name: str) -> None:
    found = await crash_test_of(project, clusters, PLAIN, f"{name}-corrected", CASES[name].setup)
    assert bad_trials(found) == []
    assert len(found.trials) == len(found.writes) > 1


async def test_crashtest_finds_objects_that_an_interrupted_finalizer_leaves(
    project: Project, clusters: Clusters
) -> None:
    check_fault(await crash_test_of(project, clusters, FINAL, "ledger", deletes=True), LEDGER)
    corrected = await crash_test_of(project, clusters, FINAL, "ledger-corrected", deletes=True)
    assert bad_trials(corrected) == []
    assert len(corrected.trials) > 2


async def content_of(tester: CrashTester) -> dict[str, str]:
    """Return everything that the sandbox stores, except for the objects that the API server keeps changing."""
    content = await tester.sandbox.store.content()
    own = ("/registry/leases/kube-", "/registry/masterleases/", "/registry/apiregistration.k8s.io/")
    return {key: value for key, value in content.items() if not key.startswith(own)}


async def wait_for_pods(client: Client, namespace: str, count: int) -> None:
    """Wait until a namespace has so many pods."""
    await eventually(
        lambda: World(client, namespace).objects(POD), lambda found: len(found) == count, TIMEOUT_SECONDS, "pods"
    )


async def test_dead_operator_and_its_run_write_nothing_more(project: Project, clusters: Clusters) -> None:
    async with crash_tester_of(project, clusters, PLAIN, "first") as (tester, targets):
        [target] = targets.single
        resource = await tester.context.client.resource(PLAIN)
        await tester.context.importer.import_object(PLAIN, target.key)
        await apply_file(tester.context.client, PLAIN, target.key, target.edited or {})
        primary = await tester.context.client.get(PLAIN, target.key)
        log = WriteLog(life=tester.life, resource=resource, primary=primary, dies_after=2)
        operator = OperatorLife(tester.context, target.watch, log, Limits(60, 60))
        ending = await operator.settle(until_unchanged=False)

        assert ending.fate is Fate.DIED
        assert [each.name for each in log.writes if each.method == "POST"] == ["first-configuration"]
        with pytest.raises(NotFoundError):
            await tester.context.client.get(CONFIG_MAP, ObjectKey(project.namespace, "first-initialized"))
        status = (await tester.context.client.get(PLAIN, target.key))["status"]
        assert condition({"status": status}, "Running")["reason"] == "Running", "as it was when the operator died"
        [record] = operator.reconciles.recorder.records
        assert processes_of_run(record.ident) == []


async def test_reset_sandbox_equals_its_initial_state(project: Project, clusters: Clusters) -> None:
    case = CASES["replaced"]
    async with crash_tester_of(project, clusters, PLAIN, "replaced", case.setup) as (tester, targets):
        subject = await tester.subject(targets)
        await subject.start(deletes=False, edited=None)
        before = await content_of(tester)
        changed = await subject.uninterrupted()
        definition = {**DEFINITION, "metadata": {"name": "gadgets.test.rolecall.dev"}}
        definition["spec"] = {**DEFINITION["spec"], "names": {"kind": "Gadget", "plural": "gadgets"}}
        await tester.context.client.create(definition)
        deployment = yaml.safe_load(DEPLOYMENT_OF_TWO)
        deployment["metadata"]["namespace"] = project.namespace
        await tester.context.importer.controllers.need()
        await tester.context.client.create(deployment)
        await wait_for_pods(tester.context.client, project.namespace, 2)
        assert changed.writes
        assert await content_of(tester) != before

        await subject.reset()
        assert await content_of(tester) == before
        await wait_for_pods(tester.context.client, project.namespace, 0)
