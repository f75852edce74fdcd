"""A crash test finds each planted fault at its task, and nothing in the corrected role."""

import asyncio
import json
import math
import re
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from rolecall.kube.client import Client
from rolecall.kube.references import GVK
from rolecall.workbench.comparison.reports import ExitCode
from rolecall.workbench.crashtest import tester
from rolecall.workbench.crashtest.object_under_test import ObjectUnderTest
from rolecall.workbench.crashtest.results import CrashTest, Trial, Verdict
from rolecall.workbench.crashtest.tester import CrashTester, Trials, opened_tester
from rolecall.workbench.plan.sandbox import running_sandbox
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.crash_cases import CASES, CORRECT, LEDGER, OUTSIDE, RESIZED, Case
from tests.integration.crash_tests import (
    Command,
    crash_test_of,
    crash_tester_of,
    killed_at,
    of_case,
    project_of,
)
from tests.integration.operators import PROJECT
from tests.integration.planned import NAMES, Project, primary
from tests.integration.sandboxes import (
    DEPLOYMENT_OF_TWO,
    Clusters,
    clusters,
    reader_kubeconfig,
    sandbox_plane,
    use_sandbox,
)
from tests.integration.shared import Role, Shared
from tests.support.things import DEFINITION, KINDS
from tests.support.world import POD, TIMEOUT_SECONDS, World, eventually

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

PLAIN, FINAL, SHOP, FAILING = KINDS[0], KINDS[1], KINDS[2], KINDS[3]
_INCLUDE = '- name: Run the tasks of the case\n  ansible.builtin.include_tasks: "{{ case }}.yml"\n'
NO_PERMISSIONS = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: powerless, namespace: default}}"
GUIDE = (PROJECT / "docs/guides/crash-consistency.md").read_text()
ROLE_OF_GUIDE, REMEDY = (text + "\n" for text in re.findall(r"```yaml\n(.*?)\n```", GUIDE, re.DOTALL))
[CHOICE] = re.findall(r"- name: Choose a password\n.*?\n\n", ROLE_OF_GUIDE, re.DOTALL)
SHARED = Shared(
    {
        "plain": Role(_INCLUDE, NAMES),
        "final": Role(
            _INCLUDE,
            f"{NAMES[:-1]}, state: present}}\n"
            "finalizer: {name: test.rolecall.dev/finalizer, vars: {state: absent}}",
        ),
        "shop": Role(ROLE_OF_GUIDE),
        "failing": Role("- name: Give up\n  ansible.builtin.fail: {msg: it never works}\n"),
        "fixed": Role(ROLE_OF_GUIDE.replace(CHOICE, f"{REMEDY}\n")),
    },
    files={
        **{f"roles/plain/tasks/{name}.yml": case.tasks.replace("KIND", PLAIN.kind) for name, case in CASES.items()},
        **{
            f"roles/plain/tasks/{name}-corrected.yml": case.corrected.replace("KIND", PLAIN.kind)
            for name, case in CASES.items()
        },
        "roles/plain/tasks/outside.yml": OUTSIDE,
        "roles/plain/tasks/deployed.yml": CORRECT.tasks,
        "roles/plain/tasks/resized.yml": RESIZED.tasks,
        "roles/plain/tasks/resized-corrected.yml": RESIZED.corrected,
        "roles/final/tasks/ledger.yml": LEDGER.tasks,
        "roles/final/tasks/ledger-corrected.yml": LEDGER.corrected,
    },
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, clusters: Clusters) -> Iterator[Project]:
    """Yield the project of ``SHARED`` for a namespace of this file, which has no objects."""
    with project_of(SHARED, tmp_path_factory.mktemp("crashes"), clusters) as found:
        yield found


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


IN_CI = ("generated", "password", "locked")
"""A case of each verdict and of a value that differs; make plan-proof tries all cases."""

ALL_CASES = [pytest.param(name, marks=() if name in IN_CI else pytest.mark.proof) for name in CASES]


@pytest.mark.parametrize("name", ALL_CASES)
async def test_crashtest_finds_planted_fault_at_its_task(project: Project, clusters: Clusters, name: str) -> None:
    found = await crash_test_of(project, clusters, of_case(PLAIN, name), CASES[name].others(name))
    check_fault(found, CASES[name])


@pytest.mark.parametrize("name", ALL_CASES)
async def test_crashtest_finds_nothing_in_the_corrected_role(project: Project, clusters: Clusters, name: str) -> None:
    found = await crash_test_of(
        project, clusters, of_case(PLAIN, f"{name}-corrected"), CASES[name].others(f"{name}-corrected")
    )
    assert bad_trials(found) == []
    assert len(found.trials) == len(found.writes) > 1


async def test_runs_of_both_operators_are_forked(project: Project, clusters: Clusters) -> None:
    """Processes with other hash seeds are those of fork servers: started from scratch, each run would take seconds."""
    with capture_logs() as logs:
        found = await crash_test_of(project, clusters, of_case(PLAIN, "first-corrected"), servers=3)
    assert len(found.trials) > 1
    assert [each for each in logs if each["event"] == "Process not forked"] == []
    assert [each["event"] for each in logs].count("The fork server is ready") == 4


async def test_crashtest_finds_objects_that_an_interrupted_finalizer_leaves(
    project: Project, clusters: Clusters
) -> None:
    check_fault(await crash_test_of(project, clusters, of_case(FINAL, "ledger"), deletes=True), LEDGER)
    corrected = await crash_test_of(project, clusters, of_case(FINAL, "ledger-corrected"), deletes=True)
    assert bad_trials(corrected) == []
    assert len(corrected.trials) > 2


@pytest.mark.parametrize("name", ["resized", "resized-corrected"])
async def test_crashtest_of_a_change_starts_with_the_settled_object(
    project: Project, clusters: Clusters, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "edited.yaml"
    file.write_text(yaml.safe_dump(primary(PLAIN, name, case=name, size=2)))
    found = await crash_test_of(project, clusters, of_case(PLAIN, name), edited=file)
    assert [each.method for each in found.writes if each.name] == [], "everything was created before the change"
    if name == "resized":
        check_fault(found, RESIZED)
    else:
        assert bad_trials(found) == []


async def test_crashtest_is_incomplete_if_a_role_uses_the_result_of_a_command(
    project: Project, clusters: Clusters
) -> None:
    found = await crash_test_of(project, clusters, of_case(PLAIN, "outside"))
    tasks = {trial.write.task.name.rpartition(" : ")[2] for trial in found.trials}
    assert tasks == {"the operator", "Create the first one"}
    assert (bad_trials(found), found.exit_code) == ([], ExitCode.INCOMPLETE)
    assert "Ask another system" in found.stopped_at or "Create the one with the answer" in found.stopped_at


@pytest.fixture
def command(
    project: Project, clusters: Clusters, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Return the command; its sandbox is that of the file."""
    use_sandbox(clusters.plane, tester, monkeypatch)
    monkeypatch.setattr(tester, "_SECOND_SANDBOX_SECONDS", math.inf)  # it would be the same one
    return Command("crashtest", project, clusters.reader, capsys)


def manifest(directory: Path, gvk: GVK) -> str:
    """Return a file with the object ``books`` of a kind."""
    file = directory / "books.yaml"
    file.write_text(yaml.safe_dump(primary(gvk, "books")))
    return str(file)


def as_in_guide(text: str, namespace: str, gvk: GVK) -> str:
    """Return the output of a command with the names of the guide, without durations."""
    names = {namespace: "default", gvk.kind: "Shop", f"{gvk.kind.lower()}s": "shops", gvk.group: "example.com"}
    for name, name_in_guide in names.items():
        text = text.replace(name, name_in_guide)
    text = re.sub(r"/\S*?(/roles/|roles/)", "roles/", text)
    return re.sub(r"/tmp/\S+/write", "/tmp/rolecall-crashtest/write", re.sub(r" in [\dms]+:", " in 9s:", text))  # noqa: S108


def test_output_for_the_role_of_the_guide_is_that_of_the_guide(command: Command, tmp_path: Path) -> None:
    code, out, _ = command.run("-f", manifest(tmp_path, SHOP), "--records", str(tmp_path / "records"))
    assert code == 2
    text = as_in_guide(out, command.project.namespace, SHOP)
    guide = re.sub(r"/tmp/\S+/write", "/tmp/rolecall-crashtest/write", re.sub(r" in [\dms]+:", " in 9s:", GUIDE))  # noqa: S108
    assert text in guide, text
    [kept] = (tmp_path / "records").iterdir()
    assert {stat.S_IMODE(each.stat().st_mode) for each in kept.glob("*.jsonl")} == {0o600}

    repeated = command.run("-f", manifest(tmp_path, SHOP), "--writes", "1,2", "-o", "json")
    document = json.loads(repeated[1])
    assert (repeated[0], document["result"], document["writes"]) == (2, "different", 4)
    assert [(each["write"], each["verdict"]) for each in document["trials"]] == [(1, "same"), (2, "differs")]
    assert document["trials"][1]["task"]["place"].startswith("roles/shop/tasks/main.yml:")


def test_remedy_of_the_guide_has_no_findings(command: Command, tmp_path: Path) -> None:
    code, out, err = command.run("-f", manifest(tmp_path, KINDS[4]))
    assert code == 0, out + err
    assert "4 same" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Thingz", "books"), "'Thingz' is not in watches.yaml"),
        ((SHOP.kind, "missing"), "missing was not found"),
        (("-f", "FAILING"), "fails even if nothing interrupts it: Task 'Give up': it never works"),
        (("-f", "SHOP", "--deletion"), "has no finalizer, so nothing runs when it is deleted"),
        (("-f", "SHOP", "--writes", "9"), "there is no write 9"),
        (("-f", "no-file.yaml"), "no-file.yaml: cannot be read"),
    ],
)
def test_bad_input_is_one_line(command: Command, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    files = {"FAILING": FAILING, "SHOP": SHOP}
    words = [manifest(tmp_path, files[each]) if each in files else each for each in arguments]
    code, out, err = command.run(*words)
    assert (code, out) == (1, "")
    [line] = [line for line in err.splitlines() if line.startswith("rolecall crashtest: ")]
    assert message in line


def test_account_that_may_not_read_is_reported(command: Command, clusters: Clusters, tmp_path: Path) -> None:
    Applier(clusters.operator).apply(list(yaml.safe_load_all(NO_PERMISSIONS)))
    powerless = clusters.real.service_account_kubeconfig("default", "powerless")
    code, out, err = command.run("-f", manifest(tmp_path, SHOP), kubeconfig=powerless)
    assert (code, out) == (1, "")
    [line] = [line for line in err.splitlines() if line.startswith("rolecall crashtest: ")]
    assert "cannot" in line
    assert "powerless" in line


async def content_of(crash_tester: CrashTester) -> dict[str, str]:
    """Return everything that the sandbox stores, except for the objects that the API server keeps changing."""
    content = await crash_tester.sandbox.store.content()
    own = ("/registry/leases/kube-", "/registry/masterleases/", "/registry/apiregistration.k8s.io/")
    return {key: value for key, value in content.items() if not key.startswith(own)}


async def wait_for_pods(client: Client, namespace: str, count: int) -> None:
    """Wait until a namespace has so many pods."""
    await eventually(
        lambda: World(client, namespace).objects(POD), lambda found: len(found) == count, TIMEOUT_SECONDS, "pods"
    )


@pytest.mark.parametrize(
    "name",
    [
        "generated",
        "deployed",
        *(pytest.param(name, marks=pytest.mark.proof) for name in ("moved", "password", "locked")),
    ],
)
async def test_trial_ends_as_if_the_run_had_been_killed_at_its_write(
    project: Project, clusters: Clusters, tmp_path: Path, name: str
) -> None:
    """The state after the write is all that an interruption leaves, whether or not a run came to it and was killed."""
    obj, case = of_case(PLAIN, name), CASES.get(name, CORRECT)
    async with crash_tester_of(project, clusters, obj, case.others(name)) as (crash_tester, targets):
        tested = await crash_tester.object_under_test(targets)
        await tested.start(deletes=False, edited=None)
        first = await tested.uninterrupted()
        await tested.reset()
        second = await tested.uninterrupted(until_unchanged=first.is_unchanging)
        numbers = range(1, len(first.writes) + 1)
        killed = replace(first, snapshots=tuple([await killed_at(tested, number) for number in numbers]))
        ends = []
        for work in (first, killed):
            trials = Trials(tested, work, second)
            done = [await trials.at(number, tmp_path, tested) for number in numbers]
            ends.append([(each.verdict, sorted(found.path for found in each.differences)) for each in done])
    assert ends[0] == ends[1]
    assert {verdict for verdict, _ in ends[0]} == {Verdict.SAME, case.verdict}


async def test_second_sandbox_finds_the_same_and_trials_are_reported_in_their_order(
    project: Project, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Trial] = []
    second_began, at = asyncio.Event(), Trials.at

    async def at_with_second_first(trials: Trials, number: int, records: Path, tested: ObjectUnderTest) -> Trial:
        if tested is trials.tested:
            await second_began.wait()
        else:
            second_began.set()
        return await at(trials, number, records, tested)

    monkeypatch.setattr(tester, "_SECOND_SANDBOX_SECONDS", 0.0)
    monkeypatch.setattr(Trials, "at", at_with_second_first)
    async with crash_tester_of(project, clusters, of_case(PLAIN, "password")) as (crash_tester, targets):
        importer, processes = crash_tester.context.importer, crash_tester.processes

        @asynccontextmanager
        async def another() -> AsyncIterator[CrashTester]:
            async with (
                running_sandbox(print) as sandbox,
                opened_tester(crash_tester.request, sandbox, importer.source, processes) as other,
            ):
                yield other

        found = await replace(crash_tester, another=another).test(targets, print, shown.append)
    check_fault(found, CASES["password"])
    assert shown == list(found.trials)
    assert [each.number for each in shown] == list(range(1, len(found.writes) + 1))


async def test_reset_sandbox_equals_its_initial_state(project: Project, clusters: Clusters) -> None:
    obj, others = of_case(PLAIN, "replaced"), CASES["replaced"].others("replaced")
    async with crash_tester_of(project, clusters, obj, others) as (crash_tester, targets):
        tested = await crash_tester.object_under_test(targets)
        await tested.start(deletes=False, edited=None)
        before = await content_of(crash_tester)
        changed = await tested.uninterrupted()
        definition = {**DEFINITION, "metadata": {"name": "gadgets.test.rolecall.dev"}}
        definition["spec"] = {**DEFINITION["spec"], "names": {"kind": "Gadget", "plural": "gadgets"}}
        await crash_tester.context.client.create(definition)
        deployment = yaml.safe_load(DEPLOYMENT_OF_TWO)
        deployment["metadata"]["namespace"] = project.namespace
        await crash_tester.context.importer.controllers.need()
        await crash_tester.context.client.create(deployment)
        await wait_for_pods(crash_tester.context.client, project.namespace, 2)
        assert changed.writes
        assert await content_of(crash_tester) != before

        await tested.reset()
        assert await content_of(crash_tester) == before
        await wait_for_pods(crash_tester.context.client, project.namespace, 0)
