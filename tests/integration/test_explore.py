"""An exploration finds each planted fault at its task, and nothing in the corrected role.

``ROLECALL_EXPLORED_ROLES`` sets the number of random roles, ``ROLECALL_FIRST_SEED`` the first seed.
"""

import asyncio
import json
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.comparison.reports import ExitCode
from rolecall.workbench.crashtest.processes import OTHER_SERVERS
from rolecall.workbench.explore import explorer as explorer_module
from rolecall.workbench.explore.results import Example, Exploration, Row, Verdict
from rolecall.workbench.explore.rules import Rule, Symptom
from tests.integration.crash_tests import Command, project_of
from tests.integration.explorations import FILTER_OF_SETS, explored_until, explorer_of
from tests.integration.explore_cases import CASES, Case
from tests.integration.operators import PROJECT
from tests.integration.planned import COMMON, NAMES, Project, primary
from tests.integration.random_roles import TEMPLATE, setup_of, tasks_of
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane, use_sandbox
from tests.integration.shared import Role, Shared
from tests.support.things import KINDS

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

PLAIN, FINAL, SHOP, FIXED, CHANCE = KINDS[:5]
FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ROLECALL_EXPLORED_ROLES", "2")))
RULES = {Rule.FRESH: (Rule.FRESH, Rule.RETURN), Rule.RETURN: (Rule.FRESH, Rule.RETURN)}
"""The order of the edits decides under which of these rules a fault is found first."""

_INCLUDE = '- name: Run the tasks of the case\n  ansible.builtin.include_tasks: "{{ case }}.yml"\n'


def files_of(role: str, *, is_final: bool) -> dict[str, str]:
    """Return the files of the cases of a role."""
    cases = {name: case for name, case in CASES.items() if case.is_final is is_final}
    faulty = {f"roles/{role}/tasks/{name}.yml": case.tasks for name, case in cases.items()}
    return faulty | {f"roles/{role}/tasks/{name}-corrected.yml": case.corrected for name, case in cases.items()}


GUIDE = (PROJECT / "docs/guides/explore.md").read_text()
ROLE_OF_GUIDE, REMOVAL, LAYOUT = (text + "\n" for text in re.findall(r"```yaml\n(.*?)\n```", GUIDE, re.DOTALL))
[FAULTY_LAYOUT] = re.findall(r"^ +layout: .*\n", ROLE_OF_GUIDE, re.MULTILINE)
RENAMED = """
- name: Write tls
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-{{ 'wide' if wide else 'narrow' }}", namespace: "{{ ns }}"}
  when: tls
- name: Remove tls
  kubernetes.core.k8s:
    state: absent
    kind: ConfigMap
    name: "{{ me }}-{{ 'wide' if wide else 'narrow' }}"
    namespace: "{{ ns }}"
  when: not tls
"""
REPLICA_SET = GVK("apps", "v1", "ReplicaSet")
CONTROLLED = """
- name: Run the workers
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "{{ me }}-workers", namespace: "{{ ns }}"}
      spec:
        replicas: 2
        selector: {matchLabels: {app: "{{ me }}"}}
        template:
          metadata: {labels: {app: "{{ me }}"}}
          spec: {containers: [{name: worker, image: "worker:1"}]}
  when: workers | default(false)
"""
REMOVED_WORKERS = """
- name: Remove the workers
  kubernetes.core.k8s:
    state: absent
    api_version: apps/v1
    kind: Deployment
    name: "{{ me }}-workers"
    namespace: "{{ ns }}"
  when: not workers | default(false)
"""
AVAILABLE = """
- name: Read the workers
  kubernetes.core.k8s_info: {api_version: apps/v1, kind: Deployment, name: "{{ me }}-workers", namespace: "{{ ns }}"}
  register: found
- name: Write the number of workers
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-available", namespace: "{{ ns }}"}
      data: {workers: "{{ found.resources | map(attribute='status') | sum(attribute='availableReplicas') }} available"}
  when: found.resources | rejectattr('status.availableReplicas', 'defined') | length == 0
"""
UNSORTED = """
- name: Write the first word
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-{{ (['north', 'south', 'east', 'west'] | unordered)[0] }}", namespace: "{{ ns }}"}
"""
SHARED = Shared(
    {
        "plain": Role(_INCLUDE, NAMES),
        "final": Role(
            _INCLUDE,
            f"{NAMES[:-1]}, state: present}}\n"
            "finalizer: {name: test.rolecall.dev/finalizer, vars: {state: absent}}",
        ),
        "shop": Role(ROLE_OF_GUIDE),
        "fixed": Role(ROLE_OF_GUIDE.replace(FAULTY_LAYOUT, LAYOUT) + "\n" + REMOVAL),
        "chance": Role(COMMON, NAMES),
    },
    files={
        **files_of("plain", is_final=False),
        **files_of("final", is_final=True),
        **{f"roles/chance/tasks/seed-{seed}.yml": tasks_of(seed, can_fail=False) for seed in SEEDS},
        "roles/chance/templates/text.j2": TEMPLATE,
        "roles/plain/tasks/pruned.yml": CASES["leftover"].tasks
        + "\n- name: Prune\n  rolecall.util.prune: {mode: delete}\n",
        "roles/plain/tasks/outside.yml": (
            "- name: Ask another system\n  ansible.builtin.command: date\n  register: answer\n"
            "  when: asks | default(false)\n"
            "- name: Write the answer\n  kubernetes.core.k8s:\n    definition:\n      apiVersion: v1\n"
            '      kind: ConfigMap\n      metadata: {name: "{{ me }}-answer", namespace: "{{ ns }}"}\n'
            "      data: {answer: \"{{ answer.stdout | default('none') }}\"}\n"
        ),
        "roles/plain/tasks/controlled.yml": CONTROLLED + AVAILABLE,
        "roles/plain/tasks/controlled-corrected.yml": CONTROLLED + REMOVED_WORKERS + AVAILABLE,
        "roles/plain/tasks/renamed.yml": RENAMED,
        "roles/plain/tasks/unsorted.yml": UNSORTED,
        "roles/plain/filter_plugins/sets.py": FILTER_OF_SETS,
        "roles/plain/tasks/immutable-and-leftover.yml": CASES["immutable"].tasks + CASES["leftover"].tasks,
        "roles/plain/tasks/gated.yml": (
            "- name: Share if this is wanted\n  when: shares | default(false)\n  block:\n"
            + textwrap.indent(CASES["divided"].tasks, "    ")
        ),
        "roles/plain/tasks/asserted.yml": (
            "- name: Check the size\n  ansible.builtin.assert: {that: size | default(1) > 0}\n"
        )
        + CASES["divided"].tasks,
    },
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, clusters: Clusters) -> Iterator[Project]:
    """Yield the project of ``SHARED`` for a namespace of this file, which has no objects."""
    with project_of(SHARED, tmp_path_factory.mktemp("explored"), clusters) as found:
        yield found


async def explored(
    project: Project, clusters: Clusters, name: str, spec: dict[str, Any], gvk: GVK = PLAIN, **asked: Any
) -> Exploration:
    """Return what is found in the role of a case, with its name as the name of the object."""
    async with explorer_of(project, clusters, primary(gvk, name, case=name, **spec), **asked) as explorer:
        return await explorer.explore(print, print)


def kind_of(case: Case) -> GVK:
    """Return the kind whose role has a case."""
    return FINAL if case.is_final else PLAIN


IN_CI = ("leftover", "latched", "noisy", "divided", "reader")
"""A case of each rule; make plan-proof tries all cases."""

ALL_CASES = [pytest.param(name, marks=() if name in IN_CI else pytest.mark.proof) for name in CASES]


@pytest.mark.parametrize("name", ALL_CASES)
async def test_explore_finds_planted_fault_at_its_task(project: Project, clusters: Clusters, name: str) -> None:
    case = CASES[name]

    def symptoms(found: Exploration) -> list[Symptom]:
        return [each.symptom for each in found.findings if each.symptom.rule in RULES.get(case.rule, (case.rule,))]

    obj = primary(kind_of(case), name, case=name, **case.spec)
    async with explorer_of(project, clusters, obj, edits=10) as explorer:
        found = await explored_until(explorer, lambda found: bool(symptoms(found)))
    assert symptoms(found), found.rows
    first = symptoms(found)[0]
    assert first.task is not None
    assert first.task.name.endswith(case.task), first
    assert first.task.location
    assert case.finding in first.text, first
    assert case.remedy in first.remedy, first
    assert found.findings[0].example is not None


@pytest.mark.parametrize("name", ALL_CASES)
async def test_explore_finds_nothing_in_the_corrected_role(project: Project, clusters: Clusters, name: str) -> None:
    case = CASES[name]
    found = await explored(project, clusters, f"{name}-corrected", dict(case.spec), kind_of(case), edits=10)
    assert found.findings == []
    assert found.exit_code is ExitCode.SAME, found.rows
    assert len(found.rows) > 3


async def test_object_that_another_process_makes_is_found_at_its_task(project: Project, clusters: Clusters) -> None:
    obj = primary(PLAIN, "unsorted", case="unsorted")
    async with explorer_of(project, clusters, obj, edits=1, servers=OTHER_SERVERS) as explorer:
        found = await explored_until(explorer, lambda found: bool(found.findings))
    [finding] = found.findings
    assert finding.symptom.rule is Rule.QUIET
    assert finding.symptom.task is not None
    assert finding.symptom.task.name.endswith("Write the first word")


async def test_edit_that_fails_does_not_change_what_later_edits_show(project: Project, clusters: Clusters) -> None:
    found = await explored(project, clusters, "immutable-and-leftover", {"size": 3, "tls": False}, edits=20)
    findings = [(each.symptom.place, str(each.symptom.task).rpartition(" : ")[2]) for each in found.findings]
    assert len(findings) == 2, findings
    assert {place for place, task in findings if "Write settings" in task} == {"size"}
    assert {place for place, task in findings if "Write tls" in task} == {"ConfigMap"}


async def test_objects_that_the_role_prunes_are_no_finding(project: Project, clusters: Clusters) -> None:
    found = await explored(project, clusters, "pruned", {"tls": True}, edits=6)
    assert found.findings == []
    assert len(found.rows) > 2


async def test_spec_that_a_task_rejects_on_purpose_is_rejected_late(project: Project, clusters: Clusters) -> None:
    found = await explored(project, clusters, "asserted", {"size": 3}, edits=8)
    late = [each for each in found.rows if each.verdict is Verdict.REJECTED]
    assert (found.findings, found.exit_code) == ([], ExitCode.SAME)
    assert {each.fields for each in late} == {("size",)}
    assert "minimum: 1 for size" in late[0].message


async def test_option_that_an_edit_switches_off_does_not_hide_the_fault_of_another_one(
    project: Project, clusters: Clusters
) -> None:
    found = await explored(project, clusters, "gated", {"shares": True, "size": 3}, edits=3)
    assert Rule.VALID in {each.symptom.rule for each in found.findings}, found.rows


async def test_exploration_is_incomplete_if_a_role_uses_the_result_of_a_command(
    project: Project, clusters: Clusters
) -> None:
    found = await explored(project, clusters, "outside", {"asks": False}, edits=4)
    tried = {each.verdict for each in found.rows}
    assert tried == {Verdict.SAME, Verdict.NOT_TRIED}
    assert found.exit_code is ExitCode.INCOMPLETE


async def test_workload_that_remains_is_found_with_controllers(project: Project, clusters: Clusters) -> None:
    obj = primary(PLAIN, "controlled", case="controlled", workers=True)
    async with explorer_of(project, clusters, obj, only="workers", edits=2, follows_controllers=True) as explorer:
        found = await explorer.explore(print, print)
        client = explorer.tested.context.client
        made = [each async for page, _ in client.list_pages(REPLICA_SET, project.namespace) for each in page]
    assert [each["status"]["availableReplicas"] for each in made] == [2], "of the controllers"
    remaining = f"Deployment {project.namespace}/controlled-workers remains"
    assert remaining in [each.symptom.text for each in found.findings], found


async def test_what_controllers_create_is_no_finding(project: Project, clusters: Clusters) -> None:
    found = await explored(
        project, clusters, "controlled-corrected", {"workers": True}, only="workers", edits=2, follows_controllers=True
    )
    assert (found.findings, {each.verdict for each in found.rows}) == ([], {Verdict.SAME})


async def test_example_is_short_although_an_earlier_edit_has_deleted_the_object(
    project: Project, clusters: Clusters
) -> None:
    start: dict[str, Any] = {"case": "renamed", "tls": True, "wide": False}
    walk = ({**start, "tls": False}, start, {**start, "wide": True})
    example = Example(start, walk, deletes=False)
    found = await explored(project, clusters, "renamed", {"tls": True, "wide": False}, example=example)
    [finding] = found.findings
    assert finding.symptom.task is not None
    assert finding.symptom.task.name == "plain : Write tls"
    assert finding.walk == walk[2:]


async def test_interrupted_exploration_has_what_was_found_before(project: Project, clusters: Clusters) -> None:
    obj = primary(PLAIN, "leftover", case="leftover", tls=False)
    async with explorer_of(project, clusters, obj) as explorer:
        second = asyncio.Event()

        def on_row(row: Row) -> None:
            if row.number > 1:
                second.set()

        task = asyncio.create_task(explorer.explore(print, on_row))
        await second.wait()
        task.cancel()
        found = await task
    assert found.was_interrupted
    assert len(found.rows) > 1


async def test_what_an_unedited_object_shows_is_no_edit(project: Project, clusters: Clusters) -> None:
    case = CASES["reader"]
    found = await explored(project, clusters, "reader", dict(case.spec), kind_of(case), edits=2)
    assert [(row.number, bool(row.fields)) for row in found.rows] == [(0, False), (1, True), (2, True)], found.rows


async def test_same_seed_makes_the_same_edits(project: Project, clusters: Clusters) -> None:
    one, two = [
        [row.edit for row in (await explored(project, clusters, "once-corrected", {"size": 3}, edits=5)).rows]
        for _ in range(2)
    ]
    assert one == two


@pytest.mark.parametrize("seed", SEEDS)
async def test_fields_that_a_random_role_does_not_read_have_no_finding(
    project: Project, clusters: Clusters, seed: int
) -> None:
    name = f"seed-{seed}"
    spec = {"case": name, "unread": True, "size": 3, "hosts": ["a", "b"]}
    others = setup_of(name)
    async with explorer_of(project, clusters, primary(CHANCE, name, **spec), others=others, edits=4) as explorer:
        found = await explorer.explore(print, print)
    assert [each.symptom for each in found.findings if each.symptom.rule is not Rule.QUIET] == [], tasks_of(seed)
    assert found.edits == 4


@pytest.fixture
def command(
    project: Project, clusters: Clusters, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Return the command; its sandbox is that of the file."""
    use_sandbox(clusters.plane, explorer_module, monkeypatch)
    return Command("explore", project, clusters.reader, capsys)


def manifest(directory: Path, gvk: GVK) -> str:
    """Return a file with the object ``books`` of a kind."""
    file = directory / "books.yaml"
    file.write_text(yaml.safe_dump(primary(gvk, "books", pages=4, https=False)))
    return str(file)


def as_in_guide(text: str, namespace: str) -> str:
    """Return output with the names of the guide, without durations and directories."""
    for name, name_in_guide in {namespace: "default", SHOP.kind: "Shop", FIXED.kind: "Shop"}.items():
        text = text.replace(name, name_in_guide)
    text = re.sub(r"/\S*?(/roles/|roles/)", "roles/", text)
    return re.sub(r" in [\dms]+: ", " in 9s: ", text)


def test_output_and_example_for_the_role_of_the_guide_are_those_of_the_guide(command: Command, tmp_path: Path) -> None:
    file = manifest(tmp_path, SHOP)
    code, out, _ = command.run("-f", file, "--edits", "8", "--minutes", "60", "--seed", "4711")
    assert code == 2
    assert as_in_guide(out, command.project.namespace) in re.sub(r" in [\dms]+: ", " in 9s: ", GUIDE), out

    examples = sorted((command.project.directory / "explore").glob("*.json"))
    again = command.run("-f", file, "--replay", str(examples[0]), "-o", "json", "--examples", str(tmp_path / "again"))
    document = json.loads(again[1])
    assert (again[0], document["result"], len(document["findings"])) == (2, "different", 1)

    fixed = command.run("-f", manifest(tmp_path, FIXED), "--replay", str(examples[0]))
    assert fixed[0] == 0, fixed


async def _create_live(clusters: Clusters, namespace: str) -> list[RawObject]:
    """Create an object in the cluster with what its runs would have made; return all of them."""
    contents: dict[str, RawObject] = {
        "live-config": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"layout": "another"}},
        "live-https": {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 443}]}},
    }
    async with await Client.connect(str(clusters.real.kubeconfig)) as client:
        obj = primary(SHOP, "live", pages=4, https=True)
        live = await client.create({**obj, "metadata": {"name": "live", "namespace": namespace}})
        owner = {"apiVersion": SHOP.api_version, "kind": SHOP.kind, "name": "live", "uid": live["metadata"]["uid"]}
        owned = [
            await client.create(
                {**content, "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]}}
            )
            for name, content in contents.items()
        ]
        return [live, *owned]


async def _current(clusters: Clusters, objects: list[RawObject]) -> list[RawObject]:
    async with await Client.connect(str(clusters.real.kubeconfig)) as client:
        return [await client.get(GVK.of_object(each), ObjectKey.of_object(each)) for each in objects]


def test_live_object_is_explored_as_if_new_and_the_cluster_stays_the_same(command: Command, clusters: Clusters) -> None:
    before = asyncio.run(_create_live(clusters, command.project.namespace))
    code, out, err = command.run(SHOP.kind, "live", "--field", "https", "--edits", "2", "-o", "json")
    assert code == 2, out + err
    document = json.loads(out)
    assert {each["place"] for each in document["findings"]} == {"Service"}, document
    assert asyncio.run(_current(clusters, before)) == before


def test_remedies_of_the_guide_have_no_findings(command: Command, tmp_path: Path) -> None:
    code, out, err = command.run("-f", manifest(tmp_path, FIXED), "--edits", "8", "--minutes", "60", "--seed", "4711")
    assert code == 0, out + err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Thingz", "books"), "'Thingz' is not in watches.yaml"),
        ((SHOP.kind, "missing"), "missing was not found"),
        (("-f", "SHOP", "--field", "nothing"), "there is nothing to edit of nothing"),
        (("-f", "SHOP", "--replay", "no-file.json"), "no-file.json: cannot be read"),
        (("-f", "no-file.yaml"), "no-file.yaml: cannot be read"),
    ],
)
def test_bad_input_is_one_line(command: Command, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    words = [manifest(tmp_path, SHOP) if each == "SHOP" else each for each in arguments]
    code, _, err = command.run(*words)
    assert code == 1
    [line] = [line for line in err.splitlines() if line.startswith("rolecall explore: ")]
    assert message in line
