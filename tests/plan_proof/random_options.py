"""Random roles whose options break rules of ``rolecall explore``, and what exactly must be found in each.

A construct is what a role does with one option. It is faulty, the corrected twin of a faulty one, or harmless; its
``breaks`` are the rules that an edit of the option breaks, each with the task. ``OPT`` stands for the name of the
option. A role combines three to five constructs: some tasks are in blocks, loops, or files of their own, some run only
if another option is on, and some write to one object. The same seed gives the same role.
"""

import random
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import yaml

from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.explore.rules import KEPT_KINDS, Rule
from tests.integration.shared import Role, Shared
from tests.support.things import definition_of

Breach = tuple[Rule, str]
"""A broken rule, and the name of the task."""

WRITE: Final = "Write OPT"
FRESH, QUIET, VALID, DELETE = ((rule, WRITE) for rule in (Rule.FRESH, Rule.QUIET, Rule.VALID, Rule.DELETE))
API_VERSIONS: Final = {"ClusterRole": "rbac.authorization.k8s.io/v1", "Deployment": "apps/v1", "Job": "batch/v1"}
NEVER_PRUNED: Final = frozenset({"Secret", "ClusterRole"})
ALL: Final = frozenset({"ConfigMap", "Deployment", "ServiceAccount"})
_TYPES: Final = {"boolean": "bool", "integer": "int", "string": "str", "array": "list", "object": "dict"}


@dataclass(frozen=True, slots=True)
class Construct:
    """The tasks for an option, its schema, its first value, and the rules that its edits break.

    ``makes`` is the kind of the object that the task ``Write OPT`` writes.
    """

    schema: Mapping[str, Any]
    value: Any
    tasks: str
    breaks: tuple[Breach, ...] = ()
    makes: str = "ConfigMap"
    leaves: bool = False
    """Whether objects remain that the spec no longer needs, unless the role prunes them."""

    has_fixed_name: bool = True
    """Whether its only object is ``me-OPT``."""

    is_required: bool = False
    """Whether the CRD requires the option."""

    argument: Mapping[str, Any] = field(default_factory=dict)
    """Further keys in the argument spec."""

    template: str = ""
    """The template ``OPT.yml.j2``."""

    removal: str = ""
    """The tasks of the finalizer."""

    is_rejected_late: bool = False
    unpruned: frozenset[str] = frozenset()
    """The kinds that runs with this construct never prune."""

    is_always_noisy: bool = False

    def but(self, *replaced: str, **changed: Any) -> "Construct":
        """Return a twin: texts of the tasks are replaced by those that follow them, and it breaks nothing."""
        tasks, template = self.tasks, self.template
        for before, after in zip(replaced[::2], replaced[1::2], strict=True):
            assert before in tasks + template, before
            tasks, template = tasks.replace(before, after), template.replace(before, after)
        harmless: dict[str, Any] = {"breaks": (), "leaves": False, "tasks": tasks, "template": template}
        return replace(self, **(harmless | changed))


def _written(data: str, *, kind: str = "ConfigMap", name: str = "{{ me }}-OPT", end: str = "") -> str:
    """Return the task ``Write OPT``; ``data`` are the fields of the object, ``end`` keys of the task."""
    namespace = "" if kind == "ClusterRole" else ', namespace: "{{ ns }}"'
    return (
        f"- name: Write OPT\n  kubernetes.core.k8s:\n    definition:\n"
        f"      apiVersion: {API_VERSIONS.get(kind, 'v1')}\n      kind: {kind}\n"
        f'      metadata: {{name: "{name}"{namespace}}}\n'
        f"{textwrap.indent(data, '      ')}\n{textwrap.indent(end, '  ')}\n"
    )


def _removed(kind: str, *, when: str = "", name: str = "{{ me }}-OPT", namespace: str = "{{ ns }}") -> str:
    place = "" if kind == "ClusterRole" else f'\n    namespace: "{namespace}"'
    return (
        f"- name: Remove OPT\n  kubernetes.core.k8s:\n    state: absent\n"
        f'    api_version: {API_VERSIONS.get(kind, "v1")}\n    kind: {kind}\n    name: "{name}"{place}\n'
        + (f"  when: {when}\n" if when else "")
    )


def _words(text: str) -> str:
    return f'data: {{word: "{text}"}}'


_READ: Final = """
- name: Read OPT
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-OPT", namespace: "{{ ns }}"}
  register: OPT_found
"""
_LIST: Final = """
- name: List OPT
  kubernetes.core.k8s_info: {kind: ConfigMap, namespace: "{{ ns }}"}
"""
_RESCUED: Final = """
- name: Try OPT
  block:
    - name: Fail for OPT
      ansible.builtin.fail: {msg: on purpose}
  rescue:
    - name: Note OPT
      ansible.builtin.set_fact: {OPT_failed: true}
"""
_DEPLOYMENT: Final = """spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: "{{ me }}-OPT"}}
  template:
    metadata: {labels: {app: "{{ me }}-OPT"}}
    spec: {containers: [{name: web, image: "web:1", env: ENV}]}"""
_JOB: Final = """spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: job, image: "job:1"}]}"""
_STATUS: Final = """
- name: Write OPT
  operator_sdk.util.k8s_status:
    api_version: "{{ api_version }}"
    kind: "{{ watched }}"
    name: "{{ me }}"
    namespace: "{{ ns }}"
    status: {OPT: "is {{ OPT | default('unset') }}"}
"""
_ASSERTED: Final = """
- name: Check OPT
  ansible.builtin.assert: {that: OPT | default(1) > 0}
"""

OFF: Final = False
FLAG: Final = {"type": "boolean"}
CHOICE: Final = {"type": "string", "enum": ["red", "blue"]}
NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": 2}
NAMES: Final = {"type": "array", "items": {"type": "string"}}
MAP: Final = {"type": "object", "additionalProperties": {"type": "string", "enum": ["low", "high"]}}
TEXT: Final = {"type": "string", "pattern": "^[a-z0-9 ]*$"}

_ON: Final = "when: OPT | default(false)"
_SWITCHED: Final = Construct(FLAG, OFF, _written(_words("on"), end=_ON), leaves=True)
_MERGED: Final = Construct(MAP, {"a": "low", "b": "high"}, _written('data: "{{ OPT | default({}) }}"'), (FRESH,))
_EACH: Final = Construct(
    NAMES,
    ["one", "two"],
    _written(_words("{{ item }}"), name="{{ me }}-OPT-{{ item }}", end='loop: "{{ OPT | default([]) }}"'),
    leaves=True,
    has_fixed_name=False,
)
_DIVIDED: Final = Construct(NUMBER, 1, _written(_words("share {{ 12 // (OPT | default(1)) }}")), (VALID,))
_INDEXED: Final = Construct(NUMBER, 1, _written(_words("{{ ['a', 'b'][OPT | default(0)] }}")), (VALID,))
_LOOKED_UP: Final = Construct(CHOICE, "red", _written(_words("{{ {'red': 'warm'}[OPT | default('red')] }}")), (VALID,))
_UNDEFINED: Final = Construct(CHOICE, "red", _written(_words("is {{ OPT }}")), (VALID,))
_STAMPED: Final = Construct(
    FLAG, OFF, _written(_words("{{ now(fmt='at %s.%f') if OPT | default(false) else 'never' }}")), (QUIET,)
)
_NOISY: Final = Construct(
    CHOICE,
    "red",
    _written(_words("{{ OPT | default('none') }} {{ 100000000 | random }}")),
    (QUIET,),
    is_always_noisy=True,
    unpruned=ALL,
)
_CLUSTERED: Final = Construct(
    CHOICE,
    "red",
    _written(
        'rules: [{apiGroups: [""], resources: [pods], verbs: [get], resourceNames: ["one-{{ OPT | default(0) }}"]}]',
        kind="ClusterRole",
    ),
    (DELETE,),
    makes="ClusterRole",
)
_ELSEWHERE: Final = Construct(
    CHOICE,
    "red",
    _written(_words("{{ OPT | default('none') }}"), name="{{ ns }}-{{ me }}-OPT").replace(
        'namespace: "{{ ns }}"', "namespace: default"
    ),
    (DELETE,),
    has_fixed_name=False,
)
_NAMED: Final = Construct(
    NUMBER,
    1,
    _written(_words("same"), name="{{ me }}-OPT-{{ OPT | default('none') }}"),
    leaves=True,
    has_fixed_name=False,
)
_TEMPLATED: Final = Construct(
    TEXT,
    "plain",
    "- name: Write OPT\n  kubernetes.core.k8s: {template: OPT.yml.j2}\n",
    (VALID,),
    template="apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ me }}-OPT\n  namespace: {{ ns }}\n"
    "data:\n  word: {{ OPT | default('none') }}\n",
)
_IMMUTABLE: Final = Construct(
    CHOICE, "red", _written("immutable: true\n" + _words("{{ OPT | default('none') }}")), (FRESH,)
)
_ONCE: Final = Construct(
    CHOICE,
    "red",
    _READ + _written(_words("{{ OPT | default('none') }}"), end="when: not OPT_found.resources"),
    (FRESH,),
)
_SEEN: Final = "(OPT_found.resources | map(attribute='data.word') | first | default('')) == 'seen True'"
_LATCHED: Final = Construct(
    FLAG, OFF, _READ + _written(_words(f"seen {{{{ OPT | default(false) or {_SEEN} }}}}")), (FRESH,)
)
_SHARED: Final = Construct(
    FLAG,
    OFF,
    _written('data: {OPT: "on"}', name="{{ me }}-common", end=_ON),
    (FRESH,),
    has_fixed_name=False,
)
_ENV: Final = "\"{{ dict((OPT | default([])) | zip(OPT | default([]))) | dict2items(key_name='name') }}\""
_WITH_ENV: Final = Construct(
    NAMES,
    ["ONE", "TWO"],
    _written(_DEPLOYMENT.replace("REPLICAS", "1").replace("ENV", _ENV), kind="Deployment"),
    (FRESH,),
    makes="Deployment",
)
_REPLICAS: Final = _DEPLOYMENT.replace("REPLICAS", '"{{ OPT | default(1) }}"').replace("ENV", "[]")

CONSTRUCTS: Final[Mapping[str, Construct]] = {
    # An object that only some specs need.
    "switched": _SWITCHED,
    "switched-secret": _SWITCHED.but(
        "kind: ConfigMap", "kind: Secret", " data:", " stringData:", makes="Secret", leaves=True
    ),
    "switched-account": _SWITCHED.but(
        "kind: ConfigMap",
        "kind: ServiceAccount",
        _words("on"),
        "automountServiceAccountToken: false",
        makes="ServiceAccount",
        leaves=True,
    ),
    "switched-removed": _SWITCHED.but(_ON, f"{_ON}\n{_removed('ConfigMap', when='not OPT | default(false)')}"),
    "switched-by-state": _SWITCHED.but(
        _ON,
        "",
        "    definition:",
        "    state: \"{{ 'present' if OPT | default(false) else 'absent' }}\"\n    definition:",
    ),
    "each": _EACH,
    "each-joined": _EACH.but(
        "-{{ item }}",
        "",
        "{{ item }}",
        "all {{ OPT | default([]) | join(' ') }}",
        'loop: "{{ OPT | default([]) }}"',
        "",
        has_fixed_name=True,
    ),
    "named": _NAMED,
    "named-always": _NAMED.but(
        "-{{ OPT | default('none') }}",
        "",
        _words("same"),
        _words("version {{ OPT | default('none') }}"),
        has_fixed_name=True,
    ),
    "job-of-version": Construct(
        NUMBER,
        1,
        _written(_JOB, kind="Job", name="{{ me }}-OPT-{{ OPT | default('none') }}"),
        makes="Job",
        has_fixed_name=False,
    ),
    # Values that remain in an object.
    "merged": _MERGED,
    "merged-applied": _MERGED.but("    definition:", "    apply: true\n    definition:"),
    "merged-by-server": _MERGED.but(
        "    definition:",
        "    apply: true\n    server_side_apply: {field_manager: random}\n    definition:",
    ),
    "env": _WITH_ENV,
    "env-applied": _WITH_ENV.but("    definition:", "    apply: true\n    definition:"),
    "shared": _SHARED,
    "shared-always": _SHARED.but('"on"', "\"is {{ OPT | default('off') }}\"", _ON, ""),
    "once": _ONCE,
    "once-corrected": _ONCE.but("when: not OPT_found.resources", ""),
    "latched": _LATCHED,
    "latched-corrected": _LATCHED.but(f" or {_SEEN}", ""),
    "immutable": _IMMUTABLE,
    "immutable-in-schema": _IMMUTABLE.but(
        schema={**CHOICE, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}, is_required=True
    ),
    "replicas": Construct(NUMBER, 1, _written(_REPLICAS, kind="Deployment"), makes="Deployment"),
    "status": Construct(CHOICE, "red", _STATUS, makes="", has_fixed_name=False),
    # Specs with which the role fails.
    "divided": _DIVIDED,
    "divided-from-one": _DIVIDED.but(schema={**NUMBER, "minimum": 1}),
    "divided-by-at-least-one": _DIVIDED.but("(OPT | default(1))", "([OPT | default(1), 1] | max)"),
    "indexed": _INDEXED,
    "indexed-to-one": _INDEXED.but(schema={**NUMBER, "maximum": 1}),
    "looked-up": _LOOKED_UP,
    "looked-up-only-red": _LOOKED_UP.but(schema={**CHOICE, "enum": ["red"]}),
    "looked-up-with-default": _LOOKED_UP.but("[OPT | default('red')]", ".get(OPT | default('red'), 'unknown')"),
    "undefined": _UNDEFINED,
    "undefined-with-default": _UNDEFINED.but("{{ OPT }}", "{{ OPT | default('unset') }}"),
    "undefined-in-schema": _UNDEFINED.but(is_required=True),
    "undefined-in-argument-spec": _UNDEFINED.but(argument={"required": True}, is_rejected_late=True),
    "asserted": _DIVIDED.but("- name: Write", f"{_ASSERTED}- name: Write", is_rejected_late=True),
    "templated": _TEMPLATED,
    "templated-as-json": _TEMPLATED.but("OPT | default('none')", "OPT | default('none') | to_json"),
    # Runs that change something each time.
    "stamped": _STAMPED,
    "stamped-at-noon": _STAMPED.but("now(fmt='at %s.%f')", "'noon'"),
    "noisy": _NOISY,
    "noisy-with-seed": _NOISY.but("| random", "| random(seed=me)", is_always_noisy=False, unpruned=frozenset()),
    "reported-as-changed": Construct(
        CHOICE,
        "red",
        "- name: Compute OPT\n  ansible.builtin.set_fact: {OPT_text: \"is {{ OPT | default('unset') }}\"}\n"
        "  changed_when: true\n" + _written(_words("{{ OPT_text }}")),
    ),
    "rescued": Construct(CHOICE, "red", _RESCUED + _written(_words("{{ OPT | default('none') }}")), unpruned=ALL),
    "listed": Construct(
        CHOICE, "red", _written(_words("{{ OPT | default('none') }}")) + _LIST, unpruned=frozenset({"ConfigMap"})
    ),
    # Objects without an owner.
    "clustered": _CLUSTERED,
    "clustered-removed": _CLUSTERED.but(removal=_removed("ClusterRole")),
    "elsewhere": _ELSEWHERE,
    "elsewhere-removed": _ELSEWHERE.but(
        removal=_removed("ConfigMap", name="{{ ns }}-{{ me }}-OPT", namespace="default")
    ),
    "removed-with-division": _CLUSTERED.but(
        schema=NUMBER,
        value=1,
        removal=_removed("ClusterRole", name="{{ me }}-OPT{{ '' if 12 // (OPT | default(1)) else '-' }}"),
        breaks=((Rule.DELETE, "Remove OPT"),),
    ),
}

SHAPES: Final = ("plain", "block", "file", "loop")
NAMES_OF_OPTIONS: Final = ("alpha", "beta", "gamma", "delta", "epsilon")
GATE: Final = "gate"


@dataclass(frozen=True, slots=True)
class RandomRole:
    """A role: the constructs of its options by their names, and their shapes.

    ``gated`` is the option whose tasks run only if the option ``gate`` is on; its objects are removed otherwise if it
    ``removes_gated``. With ``prunes``, the role ends with ``rolecall.util.prune``, and without ``owns``, its objects
    have no owner references.
    """

    constructs: Mapping[str, str]
    shapes: Mapping[str, str]
    gated: str
    removes_gated: bool
    prunes: bool
    owns: bool

    @classmethod
    def of_seed(cls, seed: int) -> "RandomRole":
        """Return the role of a seed."""
        chance = random.Random(seed)  # noqa: S311 - no secret
        names = NAMES_OF_OPTIONS[: chance.randint(3, len(NAMES_OF_OPTIONS))]
        prunes, owns = chance.random() < 0.3, chance.random() < 0.9
        constructs: dict[str, str] = {}
        for name in names:
            fitting = [
                key
                for key, each in CONSTRUCTS.items()
                if not (
                    each.is_always_noisy and any(CONSTRUCTS[other].is_always_noisy for other in constructs.values())
                )
                and (owns or not key.startswith("shared"))
            ]
            constructs[name] = chance.choice(fitting)
        shapes = {name: chance.choice(SHAPES) for name in names}
        gateable = [name for name in names if is_gateable(CONSTRUCTS[constructs[name]])]
        gated = chance.choice(gateable) if gateable and chance.random() < 0.3 else ""
        return cls(constructs, shapes, gated, chance.random() < 0.5, prunes, owns)

    @property
    def options(self) -> dict[str, Construct]:
        """The options with their constructs."""
        return {name: CONSTRUCTS[key] for name, key in self.constructs.items()}

    @property
    def spec(self) -> dict[str, Any]:
        """The first spec."""
        return {name: each.value for name, each in self.options.items()} | ({GATE: True} if self.gated else {})

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the spec in the CRD."""
        gate = {GATE: FLAG} if self.gated else {}
        required = [name for name, each in self.options.items() if each.is_required]
        fields = {name: dict(each.schema) for name, each in self.options.items()}
        return {"type": "object", "properties": fields | gate} | ({"required": required} if required else {})

    @property
    def expected(self) -> set[Breach]:
        """The rules that edits break, each with its task."""
        options = self.options
        is_noisy = any(each.is_always_noisy for each in options.values())
        found = set() if self.owns else {(Rule.DELETE, "Write base")}
        for name, each in options.items():
            breaks = {breach for breach in each.breaks if breach != QUIET or each.is_always_noisy or not is_noisy}
            is_cut_off = name == self.gated and not self.removes_gated
            if (each.leaves or is_cut_off) and not self._prunes(each.makes):
                breaks.add(FRESH)
            if not self.owns and each.makes and each.makes not in KEPT_KINDS and not each.removal:
                breaks.add(DELETE)
            found |= {(rule, task.replace("OPT", name)) for rule, task in breaks}
        return found

    def _prunes(self, kind: str) -> bool:
        unpruned = NEVER_PRUNED.union(*(each.unpruned for each in self.options.values()))
        return self.prunes and self.owns and kind not in unpruned

    def files(self, role: str) -> Iterator[tuple[str, str]]:
        """Yield the paths and texts of the role's files, except for tasks/main.yml."""
        makes, removes = (
            "- name: Write base\n" + _written(_words("base"), name="{{ me }}-common").partition("\n")[2],
            "",
        )
        for name, each in self.options.items():
            tasks = each.tasks.strip("\n").replace("OPT", name) + "\n"
            match self.shapes[name]:
                case "block":
                    tasks = f"- name: Work on {name}\n  block:\n{textwrap.indent(tasks, '    ')}"
                case "file" | "loop" as shape:
                    yield f"roles/{role}/tasks/{name}.yml", tasks
                    tasks = f"- name: Work on {name}\n  ansible.builtin.include_tasks: {name}.yml\n"
                    tasks += "  loop: [1]\n  loop_control: {loop_var: round}\n" if shape == "loop" else ""
            if name == self.gated:
                tasks = (
                    f"- name: Use {name}\n  when: {GATE} | default(true)\n  block:\n{textwrap.indent(tasks, '    ')}"
                )
                if self.removes_gated:
                    removal = _removed(each.makes, when=f"not {GATE} | default(true)").replace("OPT", name)
                    tasks += removal.replace("Remove", "Remove unused")
            if each.template:
                yield f"roles/{role}/templates/{name}.yml.j2", each.template.replace("OPT", name)
            makes, removes = makes + tasks, removes + each.removal.replace("OPT", name)
        makes += "- name: Prune\n  rolecall.util.prune: {mode: delete}\n" if self.prunes else ""
        yield f"roles/{role}/tasks/make.yml", makes
        yield f"roles/{role}/tasks/remove.yml", removes or "[]\n"
        yield (
            f"roles/{role}/meta/argument_specs.yml",
            yaml.safe_dump({"argument_specs": {"main": {"options": self._arguments()}}}),
        )

    def _arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {GATE: {"type": "bool"}} if self.gated else {}
        for name, each in self.options.items():
            schema = each.schema
            choices = {"choices": schema["enum"]} if "enum" in schema else {}
            found[name] = {"type": _TYPES[schema["type"]], "required": each.is_required} | choices | dict(each.argument)
        return found

    @property
    def watch(self) -> str:
        """The keys of the role's entry in watches.yaml, after the role."""
        finalizer = "finalizer: {name: test.rolecall.dev/finalizer, vars: {state: absent}}\n"
        has_finalizer = any(each.removal for each in self.options.values())
        return finalizer if has_finalizer else ""


def is_gateable(construct: Construct) -> bool:
    """Return whether another option may decide if the tasks of a construct run."""
    return construct.has_fixed_name and not construct.unpruned and not construct.is_always_noisy


MAIN: Final = """
- name: Run the tasks
  ansible.builtin.include_tasks:
    file: "{{ 'remove.yml' if state == 'absent' else 'make.yml' }}"
"""


class RandomRoles(Shared):
    """Random roles with a kind for each, whose group is its own; their names are ``seed`` and the number."""

    def gvk(self, name: str) -> GVK:
        """Return the kind of a role."""
        return GVK(f"{name}.rolecall.dev", "v1", name.capitalize())


def shared_roles(seeds: Sequence[int]) -> RandomRoles:
    """Return the roles of seeds."""
    roles, files = dict[str, Role](), dict[str, str]()
    for seed in seeds:
        name, role = f"seed{seed}", RandomRole.of_seed(seed)
        names = '{me: "{{ ansible_operator_meta.name }}", ns: "{{ ansible_operator_meta.namespace }}", state: present, '
        roles[name] = Role(
            MAIN, f"vars: {names}watched: {name.capitalize()}, api_version: {name}.rolecall.dev/v1}}\n{role.watch}"
        )
        files |= dict(role.files(name))
    return RandomRoles(roles, files=files)


def definitions(shared: RandomRoles, seeds: Sequence[int]) -> list[RawObject]:
    """Return the CRDs of the roles of seeds."""
    found = []
    for seed in seeds:
        definition = definition_of(shared.gvk(f"seed{seed}"))
        [version] = definition["spec"]["versions"]
        root = version["schema"]["openAPIV3Schema"]
        spec = RandomRole.of_seed(seed).schema
        version["schema"] = {"openAPIV3Schema": {**root, "properties": {**root["properties"], "spec": spec}}}
        found.append(definition)
    return found
