"""Roles that prune and name some objects only sometimes, and for each the judgement which deletions are right.

A role makes the parts ``a`` and ``b`` in each complete run. What it makes further is named by its tasks. ``KEEPS`` has
the classes in which nothing, or only what a pattern permits, may be deleted while a story changes specs and gates.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    ``object``, ``ready``, or ``file``. ``moves`` names further moves of a story. ``may_go`` matches the parts that may
    be deleted while the spec doesn't need them.
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


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


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
    "job": Keeps(BASE + _JOB + END, "Jobs are pruned only if the task lists them"),
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
        BASE + EXTRA + "  when: extra | default(true)\n" + END,
        "only what the spec has switched off is obsolete",
        changes=[{"extra": False}, {"extra": True}],
        may_go=re.compile("[xy]"),
        needs=lambda spec: "xy" if spec.get("extra", True) else "",
    ),
    "helm": Keeps(
        BASE + _HELM + END,
        "a release that doesn't change names none of its objects",
    ),
}
