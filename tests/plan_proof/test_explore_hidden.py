"""Explorations find faults that another option, a type, or the process hides, with each seed, and none in their twins.

``ROLECALL_EXPLORED_SEEDS`` sets the number of seeds, ``ROLECALL_FIRST_SEED`` the first one.
"""

import os
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.comparison.reports import ExitCode
from rolecall.workbench.crashtest.processes import OTHER_SERVERS
from rolecall.workbench.crashtest.results import Verdict
from rolecall.workbench.explore.edits import Schema, edits_of
from rolecall.workbench.explore.results import Exploration, Row
from rolecall.workbench.explore.rules import Rule
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.crash_tests import crash_test_of, project_of
from tests.integration.explorations import FILTER_OF_SETS, explored_until, explorer_of
from tests.integration.planned import NAMES, Project, primary
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.support.things import definition_of

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ROLECALL_EXPLORED_SEEDS", "1")))
TASK: Final = "Write it"
ON: Final = True
FLAG: Final = {"type": "boolean"}
TEXT: Final = {"type": "string"}
COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 2}
INT_OR_STRING: Final = {"x-kubernetes-int-or-string": True}
ANY: Final = {"x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, slots=True)
class Hidden:
    """A faulty role, the texts to replace in its twin, its schema and first spec, and the rule that it breaks."""

    tasks: str
    corrections: Mapping[str, str]
    rule: Rule
    schema: Mapping[str, Schema] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    @property
    def corrected(self) -> str:
        """The tasks of the twin."""
        tasks = self.tasks
        for text, correction in self.corrections.items():
            assert text in tasks, text
            tasks = tasks.replace(text, correction)
        return tasks

    @property
    def full_schema(self) -> dict[str, Any]:
        """The schema of the spec."""
        required = {"required": list(self.required)} if self.required else {}
        return {"type": "object", "properties": dict(self.schema)} | required


def _config_map(data: str, name: str = "it", end: str = "") -> str:
    return f"""
- name: Write it
  kubernetes.core.k8s:
    apply: true
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {{name: "{{{{ me }}}}-{name}", namespace: "{{{{ ns }}}}"}}
      data: {data}
{textwrap.indent(end, "  ")}"""


def _gated(schema: Schema, value: Any, is_on: str) -> Hidden:
    """Return a role that fails without hosts, but only if the option ``gate`` is on."""
    removal = f"""
- name: Remove it
  kubernetes.core.k8s: {{state: absent, kind: ConfigMap, name: "{{{{ me }}}}-it", namespace: "{{{{ ns }}}}"}}
  when: not ({is_on})
"""
    return Hidden(
        _config_map('{host: "the {{ hosts[0] }}"}', end=f"when: {is_on}\n") + removal,
        {"hosts[0]": "hosts | first | default('none')"},
        Rule.VALID,
        {"gate": schema, "hosts": {"type": "array", "items": TEXT}, "size": COUNT},
        {"gate": value, "hosts": ["a", "b"], "size": 1},
        ("hosts",),
    )


def _typed(schema: Schema, value: Any, faulty: str, correct: str) -> Hidden:
    """Return a role that fails with some of the types that an option may have."""
    spec = {} if value is None else {"option": value}
    text = f'{{text: "is {{{{ {faulty} if option is defined else 0 }}}}"}}'
    return Hidden(_config_map(text), {faulty: correct}, Rule.VALID, {"option": schema, "size": COUNT}, spec)


def _unordered(tasks: str, schema: Mapping[str, Schema] | None = None, **spec: Any) -> Hidden:
    """Return a role whose order depends on the process; its twin sorts."""
    return Hidden(
        tasks, {"unordered": "unordered | sort"}, Rule.QUIET, {"size": COUNT, **(schema or {})}, {"size": 1, **spec}
    )


_WORDS: Final = "['north', 'south', 'east', 'west']"
_ENV: Final = f"""
- name: Write it
  kubernetes.core.k8s:
    apply: true
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {{name: "{{{{ me }}}}-it", namespace: "{{{{ ns }}}}"}}
      spec:
        selector: {{matchLabels: {{app: "{{{{ me }}}}"}}}}
        template:
          metadata: {{labels: {{app: "{{{{ me }}}}"}}}}
          spec:
            containers:
              - name: web
                image: "web:1"
                env: "{{{{ dict({_WORDS} | unordered | zip({_WORDS})) | dict2items(key_name='name') }}}}"
"""
CASES: Final[Mapping[str, Hidden]] = {
    # What another option hides while it is off.
    "field": _gated(FLAG, ON, "gate | default(false)"),
    "mapping": _gated(
        {"type": "object", "properties": {"enabled": FLAG}},
        {"enabled": True},
        "(gate | default({})).enabled | default(false)",
    ),
    "item": _gated(
        {"type": "array", "items": {"type": "object", "properties": {"name": TEXT, "tls": FLAG}}},
        [{"name": "a"}, {"name": "b", "tls": True}],
        "gate | default([]) | selectattr('tls', 'defined') | selectattr('tls') | list | length > 0",
    ),
    "number": _gated(COUNT, 2, "gate | default(0) > 0"),
    "items": _gated({"type": "array", "items": TEXT}, ["x"], "gate | default([]) | length > 0"),
    "map": _gated(
        {"type": "object", "additionalProperties": {"type": "string", "enum": ["low", "high"]}},
        {"x": "low"},
        "gate | default({}) | length > 0",
    ),
    "choice": _gated({"type": "string", "enum": ["all", "none"]}, "all", "gate | default('none') != 'none'"),
    # Types that the schema of an option allows.
    "port": _typed(INT_OR_STRING, 80, "option + 1", "option | string"),
    "absentport": _typed(INT_OR_STRING, None, "option + 1", "option | string"),
    "ports": _typed({"type": "array", "items": INT_OR_STRING}, [80], "option | sum", "option | join(' ')"),
    "limits": _typed(
        {"type": "object", "additionalProperties": INT_OR_STRING},
        {"cpu": 1},
        "option.values() | sum",
        "option.values() | join(' ')",
    ),
    "anything": _typed(ANY, None, "option.level", "option | string"),
    "anyfield": _typed(
        {"type": "object", **ANY}, None, "option.values() | map('int') | map('pow', -1) | sum", "option | length"
    ),
    # Order that depends on the process.
    "text": _unordered(_config_map(f"{{words: \"{{{{ {_WORDS} | unordered | join(' ') }}}}\"}}")),
    "pair": _unordered(_config_map("{words: \"{{ ['one', 'two'] | unordered | join(' ') }}\"}")),
    "env": _unordered(_ENV),
    "name": _unordered(_config_map("{word: same}", name=f"{{{{ ({_WORDS} | unordered)[0] }}}}")),
    "dictionary": _unordered(_config_map(f"\"{{{{ dict({_WORDS} | unordered | zip(['a', 'b', 'c', 'd'])) }}}}\"")),
    "debug": _unordered(
        _config_map(
            f"{{words: \"{{{{ ({_WORDS} | unordered if debug | default(false) else ['none']) | join(' ') }}}}\"}}"
        ),
        {"debug": FLAG},
        debug=False,
    ),
}


class HiddenRoles(Shared):
    """Roles with a kind for each, whose group is its own."""

    def gvk(self, name: str) -> GVK:
        """Return the kind of a role."""
        return GVK(f"{name}.rolecall.dev", "v1", name.capitalize())


ROLES = {
    f"{kind}{name}": tasks
    for name, case in CASES.items()
    for kind, tasks in (("hidden", case.tasks), ("correct", case.corrected))
}
SHARED = HiddenRoles(
    {name: Role(tasks, NAMES) for name, tasks in ROLES.items()},
    files={f"roles/{name}/filter_plugins/sets.py": FILTER_OF_SETS for name in ROLES},
)


def definitions() -> list[RawObject]:
    """Return the CRDs of the roles."""
    found = []
    for name in ROLES:
        definition = definition_of(SHARED.gvk(name))
        [version] = definition["spec"]["versions"]
        root = version["schema"]["openAPIV3Schema"]
        spec = CASES[name.removeprefix("hidden").removeprefix("correct")].full_schema
        version["schema"] = {"openAPIV3Schema": {**root, "properties": {**root["properties"], "spec": spec}}}
        found.append(definition)
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, clusters: Clusters) -> Iterator[Project]:
    """Yield the project with the roles, whose kinds the cluster knows."""
    Applier(clusters.real.kubeconfig).apply(definitions())
    with project_of(SHARED, tmp_path_factory.mktemp("hidden"), clusters) as found:
        yield found


async def explored(
    project: Project, clusters: Clusters, role: str, case: Hidden, on_row: Callable[[Row], None] = print, **asked: Any
) -> Exploration:
    """Return what is found in a role while each edit is made from the first spec."""
    limits = {"edits": 2 * len(edits_of(case.full_schema, case.spec)), **asked}
    obj = primary(SHARED.gvk(role), "one", **case.spec)
    async with explorer_of(project, clusters, obj, servers=OTHER_SERVERS, **limits) as explorer:
        return await explorer.explore(print, on_row)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
async def test_explore_finds_what_is_hidden_with_each_seed(
    project: Project, clusters: Clusters, name: str, seed: int
) -> None:
    """It ends with the finding: what else it would find in such a role, its twin shows."""
    case = CASES[name]
    limit = 2 * len(edits_of(case.full_schema, case.spec))
    async with explorer_of(
        project,
        clusters,
        primary(SHARED.gvk(f"hidden{name}"), "one", **case.spec),
        servers=OTHER_SERVERS,
        seed=seed,
        edits=limit,
    ) as explorer:

        def places(found: Exploration) -> set[tuple[Rule, bool]]:
            return {(each.symptom.rule, TASK in str(each.symptom.task)) for each in found.findings}

        found = await explored_until(explorer, lambda found: (case.rule, True) in places(found))
        assert (case.rule, True) in places(found), (found.findings, found.rows)
        assert {rule for rule, _ in places(found)} == {case.rule}, found.findings


@pytest.mark.parametrize("name", CASES)
async def test_explore_finds_nothing_in_the_corrected_role(project: Project, clusters: Clusters, name: str) -> None:
    found = await explored(project, clusters, f"correct{name}", CASES[name], seed=FIRST, edits=16)
    assert (found.findings, found.exit_code) == ([], ExitCode.SAME), found.rows


@pytest.mark.parametrize("name", ["text", "env", "name", "dictionary"])
async def test_crashtest_finds_order_that_depends_on_the_process(
    project: Project, clusters: Clusters, name: str
) -> None:
    for role in ("hidden", "correct"):
        obj = primary(SHARED.gvk(f"{role}{name}"), f"crash-{name}", **CASES[name].spec)
        found = await crash_test_of(project, clusters, obj, servers=OTHER_SERVERS)
        verdicts = {each.verdict for each in found.trials}
        assert verdicts <= {Verdict.SAME, Verdict.DIFFERS}, found.trials
        assert (Verdict.DIFFERS in verdicts) == (role == "hidden"), found.trials


async def test_exploration_ends_soon_after_its_minutes(project: Project, clusters: Clusters) -> None:
    case, began = CASES["field"], time.monotonic()
    found = await explored(project, clusters, "hiddenfield", case, seed=FIRST, edits=0, minutes=0.5)
    assert time.monotonic() - began < 30 + 60 + 30, "its start, one step, and the end of its runs"
    assert found.edits > 0
