"""Roles that prune and name some objects only sometimes, and for each the judgement which deletions are right.

A role makes the parts ``a`` and ``b`` in each complete run. What it makes further is named by its tasks. ``KEEPS`` has
the classes in which nothing, or only what a pattern permits, may be deleted while a story changes specs and gates.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecall.kube.references import GVK
from tests.support.world import CONFIG_MAP

BASE = """
- name: Make the base
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-{{ item }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data: {size: "{{ size | string }}"}
  loop: [a, b]
  register: base
"""
EXTRA = BASE.replace("Make the base", "Make more").replace("loop: [a, b]\n  register: base", "loop: [x, y]")
END = """
- name: Delete what is no longer needed
  rolecall.util.prune:
    after: 1s
    mode: delete
"""
GATE = """
- name: Look for the gate
  kubernetes.core.k8s_info:
    api_version: {VERSION}
    kind: {KIND}
    name: "{{ ansible_operator_meta.name }}-gate"
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: gate
"""


@dataclass(frozen=True, slots=True)
class Keeps:
    """A class of roles; ``because`` is the judgement why what it names only sometimes must stay.

    ``changes`` are changes of the spec among which a story picks. ``gate`` is what a story opens and closes:
    ``object``, ``ready``, ``phase``, ``file``, or ``label`` (of the primary). ``moves`` names further moves of a story.
    ``may_go`` matches the parts that may be deleted while the spec doesn't need them.
    """

    tasks: str
    because: str
    changes: Sequence[Mapping[str, Any]] = ()
    gate: str = ""
    changes_while_closed: bool = False
    moves: Sequence[str] = ()
    may_go: re.Pattern[str] = re.compile("(?!)")
    needs: Callable[[Mapping[str, Any]], Collection[str]] = lambda _spec: ()
    handlers: str = ""
    playbook: str = ""
    release: str = ""
    """The tasks of another version of the role, which the move ``release`` switches to and back."""

    is_pruned: bool = False
    """Whether, at the end of a story, a part that the spec switches off must be deleted."""

    part: GVK = CONFIG_MAP
    """The kind of the parts x and y."""


_OBJECT_GATE = GATE.replace("{VERSION}", "v1").replace("{KIND}", "ConfigMap")
_READY_GATE = GATE.replace("{VERSION}", "test.rolecall.dev/v1").replace("{KIND}", "Thing")
_FILE_GATE = """
- name: Ask an external system
  ansible.builtin.stat: {path: "{{ gates }}/{{ ansible_operator_meta.name }}"}
  register: gate
"""
_END_HOST = """
- ansible.builtin.meta: end_play
  when: ends | default('') == 'play'
- ansible.builtin.meta: end_host
  when: ends | default('') == 'host'
- ansible.builtin.meta: end_role
  when: ends | default('') == 'role'
"""
_HELM = """
- name: Look at the release
  ansible.builtin.command: >-
    helm get values {{ ansible_operator_meta.name }} --namespace {{ ansible_operator_meta.namespace }} --output json
  register: values
  failed_when: values.rc != 0 and 'not found' not in values.stderr
  changed_when: false

- name: Install a chart
  ansible.builtin.command: >-
    helm upgrade --install {{ ansible_operator_meta.name }} {{ charts }}
    --namespace {{ ansible_operator_meta.namespace }} --history-max 100 --set size={{ size }}
  when: values.rc != 0 or (values.stdout | from_json).size | default(0) | int != size | int
  changed_when: true
"""
_HASHED = EXTRA.replace("loop: [x, y]", 'loop: ["config-{{ size }}"]')
_JOB = """
- name: Migrate to a version
  kubernetes.core.k8s:
    definition:
      apiVersion: batch/v1
      kind: Job
      metadata:
        name: "{{ ansible_operator_meta.name }}-migrate-{{ size }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      spec:
        template:
          spec: {restartPolicy: Never, containers: [{name: migrate, image: migrate}]}
"""
_COPIES = """
- name: Look at all that have the label
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    namespace: "{{ ansible_operator_meta.namespace }}"
    label_selectors: ["copy-of={{ ansible_operator_meta.name }}"]
  when: looks | default(true)
"""
_ADOPTED = """
- name: Adopt an object
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-theirs"
        namespace: "{{ ansible_operator_meta.namespace }}"
        annotations: {rolecall.dev/adopt: "true"}
  when: adopts | default(true)
"""
_SHARED = """
- name: Make a shared object
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ shared }}", namespace: "{{ ansible_operator_meta.namespace }}"}
  when: shares | default(true)
"""
_BOOTSTRAP = """
- name: Look for the mark of the first run
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: "{{ ansible_operator_meta.name }}-marked"
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: marked
"""
_MARK = EXTRA.replace("[x, y]", "[marked]").replace("Make more", "Mark the first run")
_DELEGATED = """
---
- name: Know a second host
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Add the host
      ansible.builtin.add_host:
        name: second
        ansible_connection: "{{ 'local' if reachable | default(true) else 'ssh' }}"
        ansible_host: 127.0.0.1
        ansible_port: 1
        ansible_python_interpreter: "{{ ansible_playbook_python }}"
        ansible_operator_meta: "{{ ansible_operator_meta }}"
      changed_when: false

- name: Make a part on the second host
  hosts: second
  gather_facts: false
  ignore_unreachable: true
  tasks:
    - name: Make more
      kubernetes.core.k8s:
        definition:
          apiVersion: v1
          kind: ConfigMap
          metadata:
            name: "{{ ansible_operator_meta.name }}-x"
            namespace: "{{ ansible_operator_meta.namespace }}"

- name: Make the rest
  hosts: localhost
  gather_facts: false
  roles: [delegated]
"""
_DELEGATE = EXTRA.replace("[x, y]", "[y]") + "  delegate_to: second\n  ignore_unreachable: true\n"
_CHECKED = """
- name: All of it
  check_mode: "{{ dry | default(false) }}"
  block:
"""


_GATED = EXTRA + "  when: gate.stat.exists\n"
_REQUEUE = """
- name: Run again later
  rolecall.util.requeue_after: {time: 1h}
  when: not gate.stat.exists
"""
_BACKGROUND = """
- name: Make more in the background
  ansible.builtin.command: {argv: [sleep, "20"]}
  async: 60
  poll: 0
  changed_when: false
  when: not gate.stat.exists
"""
_ELSEHOW = """
- name: Make more with other credentials
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: "{{ ansible_operator_meta.name }}-{{ item }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    kubeconfig: "{{ administrator }}"
  loop: [x, y]
  when: not gate.stat.exists
"""
_TRIED = """
- name: Show what would change
  ansible.builtin.command: >-
    kubectl --namespace {{ ansible_operator_meta.namespace }} label --dry-run=server --overwrite
    configmap {{ ansible_operator_meta.name }}-x {{ ansible_operator_meta.name }}-y size={{ size }}
  changed_when: false
  when: not gate.stat.exists
"""
_LABELLED = """
- name: Make more unless a label of the primary says otherwise
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-{{ item }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data: {size: "{{ size | string }}"}
  loop: [x, y]
  vars: {primary: "{{ lookup('vars', '_test_rolecall_dev_keeplabelled') }}"}
  when: (primary.metadata.labels | default({})).gate | default('') != 'closed'
"""
_SWITCHED = EXTRA + "  when: extra | default(true)\n"
_ROLE_PARTS = """
- name: Put more
  vars:
    place: "/apis/rbac.authorization.k8s.io/v1/namespaces/{{ ansible_operator_meta.namespace }}/roles"
    name: "{{ ansible_operator_meta.name }}-{{ item }}"
    metadata: {name: "{{ name }}", labels: {size: "s{{ size }}"}}
    body: {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: "{{ metadata }}", rules: []}
  ansible.builtin.command:
    argv: [kubectl, replace, --raw, "{{ place }}/{{ name }}", -f, "-"]
    stdin: "{{ body | to_json }}"
  loop: [x, y]
  changed_when: false
  when: extra | default(true)
"""
_APPLIED = _SWITCHED.replace(
    "    definition:",
    "    apply: true\n    server_side_apply: {field_manager: role, force_conflicts: true}\n    definition:",
)
_KUBECTL = """
- name: Apply more with kubectl
  vars:
    body:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-{{ item }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data: {size: "{{ size | string }}"}
  ansible.builtin.command:
    argv: [kubectl, apply, --server-side, --force-conflicts, -f, "-"]
    stdin: "{{ body | to_json }}"
  loop: [x, y]
  changed_when: false
  when: extra | default(true)
"""
_CLONES = """
- name: Make the parts that the spec names
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ item }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "{{ size | string }}"}
  loop: "{{ clones | default([], true) }}"
"""
_SWITCHES: Sequence[Mapping[str, Any]] = [{"extra": False}, {"extra": True}]
_EXTRAS = re.compile("[xy]")


def _needs_extras(spec: Mapping[str, Any]) -> Collection[str]:
    return "xy" if spec.get("extra", True) else ""


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


def _gated_by_file(tasks: str, why: str) -> Keeps:
    """Return a class whose role makes less while a file is missing, and shows that with these tasks."""
    return Keeps(_FILE_GATE + BASE + _GATED + tasks + END, why, gate="file", changes_while_closed=True)


KEEPS: Mapping[str, Keeps] = {
    "ready": Keeps(
        _READY_GATE
        + BASE
        + EXTRA
        + "  when: gate.resources | map(attribute='status.conditions.0.status') | first | default('') == 'True'\n"
        + END,
        "while an object that the run has seen isn't ready, the role may do less, also with a new spec",
        gate="ready",
        changes_while_closed=True,
    ),
    "object": Keeps(
        _OBJECT_GATE + BASE + EXTRA + "  when: gate.resources | length > 0\n" + END,
        "with equal inputs, the role names the parts only sometimes",
        gate="object",
    ),
    "lookup": Keeps(
        _FILE_GATE + BASE + EXTRA + "  when: gate.stat.exists\n" + END,
        "with equal inputs, the role names the parts only sometimes",
        gate="file",
    ),
    "outage": Keeps(
        _FILE_GATE + BASE + EXTRA + "  when: gate.stat.exists\n" + END.replace("1s", "1h"),
        "an external system that is back within the time of the task is named again, also with a new spec",
        gate="file",
        changes_while_closed=True,
    ),
    "ends": Keeps(
        BASE + _END_HOST + EXTRA + END,
        "a run that ends early doesn't reach the task",
        changes=[{"ends": "play"}, {"ends": "host"}, {"ends": "role"}, {"ends": None}, {"ends": None}],
    ),
    "changed": Keeps(
        BASE.rstrip() + "\n  notify: Tell\n" + EXTRA + "  when: base.changed\n" + END,
        "the parts exist because something changed; that a later run changes nothing doesn't end their purpose",
        handlers=EXTRA.replace("Make more", "Tell").replace("[x, y]", "[told]"),
        moves=["tamper", "tamper"],
    ),
    "hashed": Keeps(
        BASE + _HASHED + END,
        "only hashed names of earlier specs are obsolete",
        may_go=re.compile(r"config-\d+"),
        needs=lambda spec: [f"config-{spec['size']}"],
    ),
    "job": Keeps(BASE + _JOB + END, "Jobs are pruned only if their definitions permit it"),
    "copies": Keeps(
        BASE + _COPIES + END,
        "the role has only looked at the copies, which another controller has made",
        changes=[{"looks": False}, {"looks": True}],
        moves=["copy", "copy"],
    ),
    "adopted": Keeps(
        BASE + _ADOPTED + END,
        "an adopted object existed without the role",
        changes=[{"adopts": False}, {"adopts": True}],
        moves=["adopt"],
    ),
    "shared": Keeps(
        BASE + _SHARED + END,
        "the role of another object names it too",
        changes=[{"shares": False}, {"shares": True}],
        moves=["share"],
    ),
    "recreated": Keeps(
        BASE + EXTRA + "  when: extra | default(true)\n" + END,
        "what a deleted object of the same name has left isn't the new one's",
        moves=["orphan", "recreate"],
    ),
    "elsewhere": Keeps(
        BASE
        + EXTRA.replace('namespace: "{{ ansible_operator_meta.namespace }}"', "namespace: default")
        + "  when: extra | default(true)\n"
        + END,
        "an inventory doesn't outlive its object, although the annotations of parts elsewhere name the new one too",
        moves=["orphan", "recreate"],
    ),
    "checked": Keeps(
        _CHECKED + _indented(BASE + EXTRA + "  when: not dry | default(false)\n" + END),
        "a run in check mode makes nothing",
        changes=[{"dry": True}, {"dry": False}],
    ),
    "tagged": Keeps(
        BASE + EXTRA + END + "  tags: [prune]\n",
        "a run with tags leaves out tasks",
        moves=["tags"],
    ),
    "delegated": Keeps(
        BASE + _DELEGATE + END,
        "a host that isn't reached makes nothing",
        changes=[{"reachable": False}, {"reachable": True}],
        playbook=_DELEGATED,
    ),
    "bootstrap": Keeps(
        _BOOTSTRAP + BASE + EXTRA + "  when: marked.resources | length == 0\n" + _MARK + END,
        "the first run makes what later ones need but don't name",
        moves=["new", "new"],
    ),
    "switched": Keeps(
        BASE + _SWITCHED + END,
        "only what the spec has switched off is obsolete",
        changes=_SWITCHES,
        may_go=_EXTRAS,
        needs=_needs_extras,
        is_pruned=True,
    ),
    "put": Keeps(
        BASE + _ROLE_PARTS + END,
        "only what the spec has switched off is obsolete",
        changes=_SWITCHES,
        may_go=_EXTRAS,
        needs=_needs_extras,
        is_pruned=True,
        part=GVK("rbac.authorization.k8s.io", "v1", "Role"),
    ),
    "applied": Keeps(
        BASE + _APPLIED + END,
        "only what the spec has switched off is obsolete",
        changes=_SWITCHES,
        may_go=_EXTRAS,
        needs=_needs_extras,
        is_pruned=True,
    ),
    "kubectl": Keeps(
        BASE + _KUBECTL + END,
        "only what the spec has switched off is obsolete",
        changes=_SWITCHES,
        may_go=_EXTRAS,
        needs=_needs_extras,
        is_pruned=True,
    ),
    "opted": Keeps(
        BASE + _SWITCHED.replace("    definition:", '    apply: "{{ size | int % 2 == 0 }}"\n    definition:') + END,
        "a user has said that x stays, by an annotation or by removing the mark",
        changes=_SWITCHES,
        moves=["keep", "keep", ""],
        may_go=_EXTRAS,
        needs=_needs_extras,
    ),
    "replaced": Keeps(
        BASE + _SWITCHED.replace("    definition:", "    force: true\n    definition:") + END,
        "a user has said that x stays, by an annotation or by removing the mark",
        changes=_SWITCHES,
        moves=["keep", "keep", ""],
        may_go=_EXTRAS,
        needs=_needs_extras,
    ),
    "used": Keeps(
        BASE + _SWITCHED + END.replace("1s", "6s"),
        "what somebody has changed since it became obsolete is used",
        moves=["use"],
        may_go=_EXTRAS,
        needs=_needs_extras,
    ),
    "restored": Keeps(
        BASE + _SWITCHED + END,
        "no run has created what was restored from a backup",
        changes=_SWITCHES,
        moves=["restore", ""],
        may_go=_EXTRAS,
        needs=_needs_extras,
    ),
    "cloned": Keeps(
        BASE + _CLONES + END,
        "a clone has the mark of another object, and existed before the role named it",
        moves=["clone"],
    ),
    "forged": Keeps(
        BASE + END,
        "an entry of an inventory is no authority",
        moves=["forge"],
    ),
    "reporting": Keeps(
        BASE + _SWITCHED + END.replace("    mode: delete\n", ""),
        "nobody has confirmed what is proposed now",
        changes=_SWITCHES,
        moves=["confirm"],
    ),
    "confirmed": Keeps(
        BASE + _SWITCHED + END.replace("    mode: delete\n", ""),
        "a person has confirmed only what the spec doesn't need",
        changes=_SWITCHES,
        moves=["permit"],
        may_go=_EXTRAS,
        needs=_needs_extras,
    ),
    "released": Keeps(
        BASE + EXTRA + END,
        "what another version of the role leaves out is proposed",
        moves=["release", "release", ""],
        release=BASE + END,
    ),
    "phase": Keeps(
        _READY_GATE
        + BASE
        + EXTRA
        + "  when: gate.resources | map(attribute='status.phase') | first | default('') == 'Ready'\n"
        + END,
        "while an object that the run has seen isn't final, the role may do less, also with a new spec",
        gate="phase",
        changes_while_closed=True,
    ),
    "labelled": Keeps(
        BASE + _LABELLED + END,
        "labels of the primary are no inputs, so the role names the parts only sometimes",
        gate="label",
    ),
    "requeued": _gated_by_file(_REQUEUE, "a role that requests another run hasn't finished, also with a new spec"),
    "background": _gated_by_file(_BACKGROUND, "a job in the background may still make something, also with a new spec"),
    "credentials": _gated_by_file(_ELSEHOW, "what is named with other credentials isn't seen, also with a new spec"),
    "tried": _gated_by_file(_TRIED, "a dry run names, also with a new spec"),
    "helm": Keeps(
        BASE + _HELM + END,
        "a release that doesn't change names none of its objects",
    ),
}
