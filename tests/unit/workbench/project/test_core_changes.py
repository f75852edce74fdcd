"""Reported conditions, compared with the behavior of ansible-core itself."""

import json
import os
import subprocess
import sys

import pytest

from rolecall.workbench.project.core_changes import find_broken_conditions
from tests.unit.workbench.project.projects import since_2_19

EVALUATE = """
import json, sys
from ansible.errors import AnsibleError
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template

init_plugin_loader([])
variables, conditions = json.load(sys.stdin)
results = {}
for condition in conditions:
    try:
        results[condition] = Templar(variables=variables).evaluate_conditional(trust_as_template(condition))
    except AnsibleError as error:
        results[condition] = str(error)
print(json.dumps(results))
"""
VARIABLES = {
    "names": ["a"],
    "empty": [],
    "text": "yes",
    "flag": True,
    "off": False,
    "result": {"rc": 0, "stdout": "done\n", "resources": [{"kind": "Pod"}]},
}
BROKEN = [
    "names | length",
    "empty | count",
    "names|default([])|length",
    "flag and names | length",
    "empty | length and flag",
    "off or names | length",
    "names | length if flag else false",
    "lookup('env', 'HOME')",
    "lookup('ansible.builtin.env', 'HOME')",
    "lookup('pipe', 'echo 1')",
    "query('env', 'HOME')",
    "lookup('env', 'HOME', wantlist=true)",
    "result.stdout | trim",
    "result.stdout.split()",
    "result.stdout.find('o')",
    "result.resources | selectattr('kind', 'equalto', 'Pod') | list",
    "result.resources | map(attribute='kind')",
    "names | union(empty)",
    "text | regex_search('e.')",
    "flag | ternary('a', 'b')",
    "names | length | default(0)",
    "text ~ 'x'",
    "1 + 1",
    "names[:1]",
    "'text'",
    "3",
    "[]",
    "{}",
    "'{{ names | length }}'",
    "{{ names | length }}",
]
FINE = [
    "names | length > 0",
    "not names | length",
    "flag",
    "flag and not off",
    "flag and names | length == 1",
    "text is defined and text | bool",
    "text | default(false) | bool",
    "flag | default('')",
    "flag | default(names | length)",
    "result is defined",
    "result.rc == 0 or 'done' in result.stdout",
    "result.stdout.startswith('d')",
    "names | length | bool",
    "names | length is truthy",
    "lookup('vars', 'flag')",
    "lookup('env', 'NO_SUCH_VARIABLE', default=true)",
    "flag if text else off",
    "names is subset(['a'])",
    "true",
    "{{ flag }}",
    "flag | ternary(true, false)",
    "text | regex_search('e.') is not none",
    "names | map('length') is any",
]


@pytest.fixture(scope="module")
def results() -> dict[str, bool | str]:
    """Return the result or the error of each condition in ansible-core."""
    asked = json.dumps([VARIABLES, [*BROKEN, *FINE]])
    environment = {name: value for name, value in os.environ.items() if name != "ANSIBLE_ALLOW_BROKEN_CONDITIONALS"}
    command = [sys.executable, "-c", EVALUATE]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, bool | str] = json.loads(done.stdout)
    return found


@since_2_19
@pytest.mark.parametrize("condition", BROKEN)
def test_a_condition_that_ansible_core_rejects_is_reported(results: dict[str, bool | str], condition: str) -> None:
    assert "Conditionals must have a boolean result" in str(results[condition])
    [(culprit, message)] = find_broken_conditions({"when": condition})
    assert culprit == condition
    assert message.startswith("when: the result of ")


@since_2_19
@pytest.mark.parametrize("condition", FINE)
def test_a_condition_that_ansible_core_accepts_is_not_reported(results: dict[str, bool | str], condition: str) -> None:
    assert isinstance(results[condition], bool), results[condition]
    assert list(find_broken_conditions({"when": condition})) == []


@pytest.mark.parametrize(
    "condition", [True, False, None, "", "unknown", "unknown.stdout", "no(t", "x | own_filter", []]
)
def test_a_condition_of_unknown_type_or_syntax_is_not_reported(condition: object) -> None:
    assert list(find_broken_conditions({"when": condition})) == []


def test_conditions_are_found_under_every_key_that_has_them() -> None:
    task = {
        **dict.fromkeys(("when", "failed_when", "changed_when", "until"), "x | length"),
        "ansible.builtin.assert": {"that": ["x is defined", "y | length"]},
        "name": "z | length",
    }
    keys = [message.partition(":")[0] for _, message in find_broken_conditions(task)]
    assert keys == ["when", "failed_when", "changed_when", "until", "that"]


def test_each_condition_of_a_list_is_reported_separately() -> None:
    found = [culprit for culprit, _ in find_broken_conditions({"when": ["a | length", "b", "c | length"]})]
    assert found == ["a | length", "c | length"]


def test_a_long_condition_is_cut_in_the_message() -> None:
    [(_, message)] = find_broken_conditions({"when": f"{'x' * 200} | length"})
    assert len(message) < 160
