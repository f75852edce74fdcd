"""Variables of a role that lose against extra vars, and extra vars that lose against Ansible, as in real runs."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.vars.reserved import get_reserved_names

from rolecall.runner.runs.variables import is_reserved
from rolecall.workbench.project.lost_variables import IGNORED, find_lost_variables

SHOW = {"ansible.builtin.debug": {"msg": "SHOW {{ inner | default(case) }} {{ x }} {{ item | default('') }}"}}
INCLUDE_TASKS = {"ansible.builtin.include_tasks": "show.yml"}
INCLUDE_ROLE = {"ansible.builtin.include_role": {"name": "thing", "tasks_from": "show"}}
OWN = "OWN"
CASES: dict[str, dict[str, Any]] = {
    "register": {"ansible.builtin.command": "echo OWN", "register": "x"},
    "set_fact": {"ansible.builtin.set_fact": {"x": OWN, "cacheable": True}},
    "set_fact_of_words": {"ansible.builtin.set_fact": "x=OWN cacheable=true"},
    "vars_of_task": {**SHOW, "vars": {"x": OWN}},
    "vars_of_block": {"block": [SHOW], "vars": {"x": OWN}},
    "include_vars_name": {"ansible.builtin.include_vars": {"file": "own.yml", "name": "x"}},
    "loop_var": {**SHOW, "loop": [OWN], "loop_control": {"loop_var": "x"}},
    "index_var": {**SHOW, "loop": [OWN], "loop_control": {"index_var": "x"}},
    "vars_of_include_tasks": {**INCLUDE_TASKS, "vars": {"x": OWN}},
    "vars_of_include_role": {**INCLUDE_ROLE, "vars": {"x": OWN}},
    "loop_var_of_include_tasks": {**INCLUDE_TASKS, "loop": [OWN], "loop_control": {"loop_var": "x"}},
    "loop_var_of_include_role": {**INCLUDE_ROLE, "with_items": [OWN], "loop_control": {"loop_var": "x"}},
    "index_var_of_include": {**INCLUDE_TASKS, "loop": [OWN], "loop_control": {"index_var": "x"}},
}


def run_role(directory: Path, tasks: list[Any], variables: dict[str, Any]) -> str:
    """Return the output of a role with these tasks and extra vars."""
    for name in ("tasks", "vars"):
        (directory / "roles/thing" / name).mkdir(parents=True)
    (directory / "roles/thing/tasks/main.yml").write_text(yaml.safe_dump(tasks, sort_keys=False))
    (directory / "roles/thing/tasks/show.yml").write_text(yaml.safe_dump([SHOW]))
    (directory / "roles/thing/vars/own.yml").write_text("key: OWN\n")
    (directory / "play.yml").write_text("- hosts: localhost\n  gather_facts: false\n  roles: [thing]\n")
    (directory / "vars.json").write_text(json.dumps(variables))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "play.yml", "-e", "@vars.json"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_variable_is_reported_exactly_if_ansible_loses_it(tmp_path: Path) -> None:
    tasks = []
    for name, task in CASES.items():
        tasks.append({**task, "vars": {**task.get("vars", {}), "case": name}})
        if not any(key in task for key in ("block", *SHOW, *INCLUDE_TASKS, *INCLUDE_ROLE)):
            tasks.append({**SHOW, "vars": {"case": name}})
    shown = dict(re.findall(r"SHOW (\w+) (\w+)", run_role(tmp_path, tasks, {"x": "EXTRA"})))
    assert shown.keys() == CASES.keys()
    reported = {name for name, task in CASES.items() if list(find_lost_variables(task, {"x": "the field spec.x"}))}
    assert reported == {name for name, value in shown.items() if value == "EXTRA"}
    assert len(reported) == len(CASES) - 2


def test_item_of_an_include_is_lost_and_item_of_a_task_is_not(tmp_path: Path) -> None:
    tasks: list[dict[str, Any]] = [{**INCLUDE_TASKS, "loop": [OWN]}, {**SHOW, "loop": [OWN]}]
    shown = re.findall(r"SHOW \w+ \w+ (\w+)", run_role(tmp_path, tasks, {"item": "EXTRA", "x": "", "case": ""}))
    assert shown in ([], ["EXTRA", OWN])
    assert [len(list(find_lost_variables(task, {"item": "the field spec.item"}))) for task in tasks] == [1, 0]


@pytest.mark.parametrize(
    "task",
    [
        {"set_fact": {"x": "{{ x | default('a') }}"}},
        {"set_fact": {"x": "a"}, "when": "x is not defined"},
        {"set_fact": {"x": "a"}, "when": ["y", "not x"]},
        {"set_fact": {"image_url": "a"}, "when": "found.spec.imageUrl is not defined"},
        {"include_vars": "own.yml"},
        {"include_vars": {"file": "own.yml"}},
        {"set_fact": {"y": "{{ x }}", "cacheable": True}},
        {"debug": {}, "register": "result"},
    ],
)
def test_a_default_is_not_reported(task: dict[str, Any]) -> None:
    origins = {name: f"the field spec.{name}" for name in ("x", "image_url", "cacheable")}
    assert list(find_lost_variables(task, origins)) == []


def test_another_variable_with_the_same_end_is_no_default() -> None:
    [(_, text)] = find_lost_variables({"set_fact": {"x": "{{ spec.x | default(1) }}"}}, {"x": "the field spec.x of A"})
    assert text.startswith("set_fact: x is lost if it is set by the field spec.x of A: extra vars win")


def test_ignored_names_are_those_that_ansible_overrides(tmp_path: Path) -> None:
    more = {"item", "loop", "self", "omit", "true", "none", "None", "True", "False", "false", "facts", "inventory_dir"}
    no_names = {"with_", "not", "and", "or", "if", "in", "is", "else"}
    names = sorted({*get_reserved_names(), *IGNORED, *more, "group_names", "inventory_hostname"} - no_names)
    tasks = [
        {"ansible.builtin.debug": {"msg": f"SHOW {name} {{{{ {name} is defined and {name} == 'EXTRA' }}}}"}}
        for name in names
    ]
    shown = dict(re.findall(r"SHOW (\w+) (True|False)", run_role(tmp_path, tasks, dict.fromkeys(names, "EXTRA"))))
    assert shown.keys() == set(names)
    assert {name for name, kept in shown.items() if kept == "False" and not is_reserved(name)} == IGNORED
