"""Finds parts of tasks that ansible-core 2.18 accepts and ansible-core 2.19 rejects, in older roles.

Only certain findings count, because validation runs no role; the migration guide lists the changes that only a run
shows. A condition is reported if its result can't be boolean; a variable may be. This module needs Jinja only, not
ansible-core.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rolecall.runner.config.ansible_config import release_numbers
from rolecall.runner.warm.ansible_patches.patches import TRUSTS_TEMPLATES
from rolecall.workbench.project.expression_types import (
    INTEGER,
    MATCH,
    NUMBER,
    STRING,
    type_of_constant,
    type_other_than_boolean,
    types_of_expression,
    types_of_text,
)

Finding = tuple[object, str]
"""The value with the condition, by which its line is found, and a message."""

_KEYS: Final = ("when", "failed_when", "changed_when", "until")
_ASSERTIONS: Final = ("assert", "ansible.builtin.assert", "ansible.legacy.assert")
_SHOWN: Final = 80
K8S: Final = ("k8s", "kubernetes.core.k8s", "community.kubernetes.k8s", "community.okd.k8s", "redhat.openshift.k8s")
_SET_FACT: Final = ("set_fact", "ansible.builtin.set_fact", "ansible.legacy.set_fact")
_LITERAL: Final = re.compile(r"\s*(\{\s*'[^'{}]*'\s*:|\[\s*'[^'\[\]]*').*[}\]]\s*", re.DOTALL)
"""A text in Python's notation of a dictionary or list, which 2.18 converted; JSON may be meant as text."""


def find_broken_conditions(task: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the conditions of a task, a block, or an entry of ``roles`` whose result can't be boolean."""
    for key in _KEYS:
        for condition in _each(task.get(key)):
            yield from _check(key, condition)
    for key in _ASSERTIONS:
        arguments = task.get(key)
        if isinstance(arguments, dict):
            for condition in _each(arguments.get("that")):
                yield from _check("that", condition)


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _check(key: str, condition: Any) -> Iterator[Finding]:
    found = _result_of_condition(condition)
    if found:
        text = " ".join(str(condition).split())
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        yield condition, f"{key}: the result of {shown!r} can be {found}; {_advice(found)}"


def _advice(found: str) -> str:
    if found in (INTEGER, NUMBER):
        return "compare it, as in '… > 0'"
    if found == MATCH:
        return "use the test 'is search(…)'"
    return "compare it, as in '… | length > 0', or use '… | bool' for text such as 'true'"


def _result_of_condition(condition: Any) -> str | None:
    """Return the type that a condition's result can have and that isn't boolean, None if there is none or unknown."""
    if condition is None:
        return None
    if not isinstance(condition, str):
        return type_other_than_boolean((type_of_constant(condition),))
    text = condition.strip()
    if not (text.startswith("{{") and text.endswith("}}")):
        return type_other_than_boolean(types_of_expression(text))
    # Ansible evaluates a template first, and then its result if that is a string.
    found = type_other_than_boolean(types_of_text(text))
    return None if found in (STRING, MATCH) else found


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
        for name in K8S:
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
