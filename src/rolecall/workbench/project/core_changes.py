"""Finds what ansible-core 2.18 accepts in a task and ansible-core 2.19 doesn't: the hurdles of older roles.

Only certain findings count, because roles can't be run here: see the migration guide for changes that only a run shows.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rolecall.runner.config.ansible_core import release_numbers
from rolecall.runner.warm.ansible_patches.patches import TRUSTS_TEMPLATES
from rolecall.workbench.project.conditions import Finding, find_broken_conditions

_K8S: Final = ("k8s", "kubernetes.core.k8s", "community.kubernetes.k8s", "community.okd.k8s", "redhat.openshift.k8s")
_SET_FACT: Final = ("set_fact", "ansible.builtin.set_fact", "ansible.legacy.set_fact")
_LITERAL: Final = re.compile(r"\s*(\{\s*'[^'{}]*'\s*:|\[\s*'[^'\[\]]*').*[}\]]\s*", re.DOTALL)
"""A text in Python's notation of a dictionary or list, which 2.18 converted; JSON may be meant as text."""


@dataclass(frozen=True, slots=True)
class CoreChanges:
    """What an ansible-core from 2.19 on does with tasks.

    ``core`` is its release. ``kubernetes_core`` is the release of the collection; it has no number if it is unknown or
    not installed. ``allows_broken_conditions`` is the value of the setting ``ALLOW_BROKEN_CONDITIONALS``.
    """

    core: str
    kubernetes_core: str = ""
    allows_broken_conditions: bool = False

    def check(self, task: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield a task's value and a message for each change that the task meets."""
        for condition, message in find_broken_conditions(task):
            yield condition, f"{message}. {self._consequence}"
        yield from self._check_template(task)
        yield from self._check_literals(task)

    @property
    def _consequence(self) -> str:
        if self.allows_broken_conditions:
            return (
                f"ansible-core {self.core} accepts this because of ALLOW_BROKEN_CONDITIONALS, which ends with 2.23: "
                "there, conditions must be boolean"
            )
        return (
            f"With ansible-core {self.core}, conditions must be boolean, unless "
            "ANSIBLE_ALLOW_BROKEN_CONDITIONALS=true is set, which 'ansible-operator' does, until 2.22"
        )

    def _check_template(self, task: Mapping[str, Any]) -> Iterator[Finding]:
        if not (found := release_numbers(self.kubernetes_core)) or found >= TRUSTS_TEMPLATES:
            return
        for name in _K8S:
            arguments = task.get(name)
            if isinstance(arguments, dict) and "template" in arguments:
                message = (
                    f"{name}: with ansible-core {self.core}, kubernetes.core {self.kubernetes_core} renders 'template' "
                    "only in warm runs: install kubernetes.core 5.3.0 or newer"
                )
                yield arguments["template"], message

    def _check_literals(self, task: Mapping[str, Any]) -> Iterator[Finding]:
        mappings = (task.get(name) for name in ("vars", *_SET_FACT))
        values = [item for mapping in mappings if isinstance(mapping, dict) for item in mapping.items()]
        for name, value in values:
            if isinstance(value, str) and "{{" in value and _LITERAL.fullmatch(value):
                message = (
                    f"{name}: ansible-core {self.core} keeps this text as a string and no longer makes a dictionary or "
                    "list of it: write it in YAML, or as one expression, as in \"{{ {'key': value} }}\""
                )
                yield value, message
