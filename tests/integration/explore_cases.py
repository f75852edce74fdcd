"""Roles with planted faults that only an edited spec reveals, each with its corrected twin, by the names of the cases.

All names of a case start with ``me``, the name of the object.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.workbench.explore.rules import Rule


@dataclass(frozen=True, slots=True)
class Case:
    """The tasks of a faulty role, the texts to replace in its correction, the task that is found, and the first spec.

    ``finding`` is a part of the text, ``remedy`` of the remedy.
    """

    tasks: str
    corrections: Mapping[str, str]
    task: str
    rule: Rule
    spec: Mapping[str, Any] = field(default_factory=dict)
    finding: str = ""
    remedy: str = ""
    is_final: bool = False
    """Whether the kind has a finalizer."""

    @property
    def corrected(self) -> str:
        """The tasks of the twin."""
        tasks = self.tasks
        for text, correction in self.corrections.items():
            assert tasks.count(text) == 1, text
            tasks = tasks.replace(text, correction)
        return tasks


def _config_map(name: str, data: str, *, end: str = "") -> str:
    return f"""
- name: Write {name}
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {{name: "{{{{ me }}}}-{name}", namespace: "{{{{ ns }}}}"}}
      data: {data}
{end}"""


_BASE: Final = _config_map("base", '{size: "size {{ size | default(1) }}"}')
_CLUSTER_ROLE: Final = """
- name: Write the role
  kubernetes.core.k8s:
    state: "{{ state | default('present') }}"
    definition: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "{{ me }}-reader"}}
"""
_REMOVE_TLS: Final = """
- name: Remove tls
  kubernetes.core.k8s: {state: absent, kind: ConfigMap, name: "{{ me }}-tls", namespace: "{{ ns }}"}
  when: not tls | default(false)
"""
_TLS: Final = _config_map("tls", "{key: secret}", end="  when: tls | default(false)\n")

CASES: Final[Mapping[str, Case]] = {
    "leftover": Case(
        f"{_BASE}{_TLS}",
        {_TLS: _TLS + _REMOVE_TLS},
        "Write tls",
        Rule.FRESH,
        {"tls": False},
        finding="-tls remains",
        remedy="state: absent",
    ),
    "touched": Case(
        f"""{_BASE}{_TLS}
- name: Touch tls
  kubernetes.core.k8s:
    state: patched
    kind: ConfigMap
    name: "{{{{ me }}}}-tls"
    namespace: "{{{{ ns }}}}"
    definition: {{data: {{touched: 'yes'}}}}
  when: tls | default(false)
""",
        {_TLS: _TLS + _REMOVE_TLS},
        "Write tls",
        Rule.FRESH,
        {"tls": False},
        finding="-tls remains",
    ),
    "merged": Case(
        _config_map("settings", '"{{ settings | default({}) }}"'),
        {"  kubernetes.core.k8s:\n": "  kubernetes.core.k8s:\n    apply: true\n"},
        "Write settings",
        Rule.FRESH,
        {"settings": {"first": "1", "second": "2"}},
        finding="keeps",
        remedy="apply: true",
    ),
    "shared": Case(
        _config_map("settings", "{extra: 'on'}", end="  when: extra | default(false)\n")
        + _config_map("settings", '{size: "size {{ size | default(1) }}"}').replace("Write settings", "Write the size"),
        {
            "{extra: 'on'}": '{extra: "extra {{ extra | default(false) }}"}',
            "  when: extra | default(false)\n": "",
        },
        "Write settings",
        Rule.FRESH,
        {"extra": False, "size": 3},
        finding="data.extra keeps on",
    ),
    "once": Case(
        """
- name: Look for the settings
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-settings", namespace: "{{ ns }}"}
  register: settings
"""
        + _config_map("settings", '{size: "size {{ size | default(1) }}"}', end="  when: not settings.resources\n"),
        {"  when: not settings.resources\n": ""},
        "Write settings",
        Rule.FRESH,
        {"size": 3},
        finding="data.size is size 3, not",
    ),
    "immutable": Case(
        """
- name: Write settings
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      immutable: true
      metadata: {name: "{{ me }}-settings", namespace: "{{ ns }}"}
      data: {size: "size {{ size | default(1) }}"}
""",
        {"      immutable: true\n": ""},
        "Write settings",
        Rule.FRESH,
        {"size": 3},
        finding="a fresh object doesn't",
        remedy="self == oldSelf",
    ),
    "latched": Case(
        """
- name: Look for the settings
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-settings", namespace: "{{ ns }}"}
  register: settings
"""
        + _config_map(
            "settings",
            "{tls: \"seen {{ tls | default(false) or (settings.resources | map(attribute='data.tls') | first"
            " | default('')) == 'seen True' }}\"}",
        ),
        {
            " or (settings.resources | map(attribute='data.tls') | first | default('')) == 'seen True'": "",
        },
        "Write settings",
        Rule.RETURN,
        {"tls": False},
        finding="data.tls is seen True, not seen False",
    ),
    "noisy": Case(
        _config_map("settings", "{time: \"at {{ now(fmt='%s.%f') }}\"}"),
        {"{{ now(fmt='%s.%f') }}": "noon"},
        "Write settings",
        Rule.QUIET,
        {"size": 3},
        remedy="idempotent",
    ),
    "noisy-debug": Case(
        _BASE + _config_map("log", "{time: \"at {{ now(fmt='%s.%f') if debug | default(false) else 'never' }}\"}"),
        {"now(fmt='%s.%f')": "'always'"},
        "Write log",
        Rule.QUIET,
        {"debug": False},
    ),
    "noisy-empty": Case(
        _config_map("list", "{all: \"all {{ hosts | default([]) | join(',') or now(fmt='%s.%f') }}\"}"),
        {"now(fmt='%s.%f')": "'none'"},
        "Write list",
        Rule.QUIET,
        {"hosts": ["a", "b"]},
    ),
    "divided": Case(
        _config_map("share", '{share: "share {{ 12 // size | default(1) }}"}'),
        {"12 // size | default(1)": "12 // ([size | default(1), 1] | max)"},
        "Write share",
        Rule.VALID,
        {"size": 3},
        finding="ivision",
        remedy="minimum: 1",
    ),
    "first": Case(
        _config_map("leader", '{leader: "the {{ members[0] }}"}'),
        {"members[0]": "members | default([]) | first | default('none')"},
        "Write leader",
        Rule.VALID,
        {"members": ["one", "two"]},
        remedy="members",
    ),
    "undefined": Case(
        _config_map("level", '{level: "the {{ level }}"}'),
        {"{{ level }}": "{{ level | default('info') }}"},
        "Write level",
        Rule.VALID,
        {"level": "debug"},
        remedy="required: true",
    ),
    "reader": Case(
        f"{_BASE}{_CLUSTER_ROLE}",
        {_CLUSTER_ROLE: ""},
        "Write the role",
        Rule.DELETE,
        {"size": 3},
        finding="-reader remains",
        remedy="finalizer",
    ),
    "reader-kept": Case(
        _BASE + _CLUSTER_ROLE.replace("{{ state | default('present') }}", "present"),
        {'state: "present"': "state: \"{{ state | default('present') }}\""},
        "Write the role",
        Rule.DELETE,
        {"size": 3},
        is_final=True,
    ),
    "divided-at-the-end": Case(
        _BASE
        + _config_map("goodbye", '{share: "share {{ 12 // size | default(1) }}"}', end="  when: state == 'absent'\n"),
        {"12 // size | default(1)": "12 // ([size | default(1), 1] | max)"},
        "Write goodbye",
        Rule.DELETE,
        {"size": 3},
        finding="isn't deleted",
        is_final=True,
    ),
}
