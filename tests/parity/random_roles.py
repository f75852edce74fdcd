"""Random roles: common tasks with common keywords in unexpected orders.

The same seed gives the same role. Every task has a result that tells what was done before it, above all the lines of
one file, so that a task that is left out, done twice or given another's result is seen.
"""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

Task = dict[str, Any]
TASKS = 25
LINES = "{{ scratch }}/lines"
SEEN = "{{ lookup('file', scratch ~ '/lines') | replace('\\n', ';') }}"
TRACES = '''"""A filter that leaves a trace in the process that calls it."""

CALLS = []


def count(value):
    CALLS.append(value)
    return len(CALLS)


class FilterModule:
    def filters(self):
        return {"count_calls": count}
'''


def write_role(seed: int, project: Path) -> str:
    """Write a playbook with one role into a directory; return the role's tasks as text."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    tasks = _text(_tasks(chance))
    files = {
        "site.yml": _text([{"hosts": "localhost", "gather_facts": False, "roles": ["by_chance"]}]),
        "roles/by_chance/tasks/main.yml": tasks,
        "roles/by_chance/tasks/more.yml": _text(_included(chance)),
        "roles/by_chance/handlers/main.yml": _text(_handlers()),
        "roles/by_chance/filter_plugins/traces.py": TRACES,
        "roles/by_chance/templates/words.j2": "{{ fact | default('none') }} {{ 'z' | count_calls }}\n",
        "roles/by_chance/vars/words.yml": "fact: of a file\n",
        "roles/other/defaults/main.yml": "given: nothing\n",
        "roles/other/tasks/main.yml": _text(_of_the_other_role()),
    }
    for name, text in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tasks


class _Dumper(yaml.SafeDumper):
    """Writes what is the same twice as often as it is there, as people do."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - for all of it
        return True


def _text(tasks: list[Task]) -> str:
    return yaml.dump(tasks, Dumper=_Dumper, sort_keys=False, width=200)


def _tasks(chance: random.Random) -> list[Task]:
    first = {"name": "Begin", "parity.odd.append_line": {"path": LINES, "line": "begin"}, "register": "last"}
    made = [_task_or_block(chance, number) for number in range(TASKS)]
    last = {"name": "Tell which lines there are", "ansible.builtin.debug": {"msg": SEEN}}
    return [first, *made, last]


def _included(chance: random.Random) -> list[Task]:
    return [_task(chance, f"included {number}") for number in range(3)]


def _handlers() -> list[Task]:
    return [{"name": "Note it", "parity.odd.append_line": {"path": LINES, "line": "handled"}}]


def _of_the_other_role() -> list[Task]:
    line = {"path": LINES, "line": "other {{ given }}"}
    return [
        {"name": "Note what was given", "parity.odd.append_line": line, "register": "last"},
        {"name": "Flush", "ansible.builtin.meta": "flush_handlers"},
        {"name": "Say it", "ansible.builtin.debug": {"msg": "{{ given }} {{ last.count }}"}},
    ]


def _task_or_block(chance: random.Random, number: int) -> Task:
    if chance.random() > 0.15:
        task = _task(chance, str(number))
        return (
            task
            if "ansible.builtin.include_tasks" in task or chance.random() < 0.02
            else task | {"ignore_errors": True}
        )
    block: Task = {"name": f"Block {number}", "block": [_task(chance, f"{number} in block {i}") for i in range(2)]}
    if chance.random() < 0.6:
        block["block"].append({"name": f"Fail in block {number}", "ansible.builtin.fail": {"msg": "on purpose"}})
        block["rescue"] = [_task(chance, f"{number} in rescue")]
    if chance.random() < 0.5:
        block["always"] = [_task(chance, f"{number} in always")]
    return block | _some(chance, _BLOCK_KEYWORDS, most=1)


def _task(chance: random.Random, title: str) -> Task:
    kinds = _KINDS if "included" not in title else _KINDS[:-1]
    task: Task = {"name": f"Task {title}", **chance.choice(kinds)(title)}
    if task.keys() & _INCLUDES:
        return task | _some(chance, _INCLUDE_KEYWORDS, most=1)
    keywords = _some(chance, _KEYWORDS, most=3)
    if "loop" in keywords:
        keywords.pop("with_dict", None)
    if "register" in keywords and keywords.keys() & {"loop", "with_dict"}:
        keywords["register"] = "of_a_loop"
    if "until" in keywords:
        keywords["register"] = "tried"
    return keywords | task


def _some(chance: random.Random, keywords: tuple[Mapping[str, Any], ...], *, most: int) -> Task:
    chosen = chance.sample(keywords, chance.randint(0, most))
    return {name: value for each in chosen for name, value in each.items()}


def _item(title: str) -> str:
    return f"{title} {{{{ item | default('-') }}}}"


_KINDS: tuple[Callable[[str], Task], ...] = (
    lambda title: {"parity.odd.append_line": {"path": LINES, "line": _item(title)}},
    lambda title: {"parity.odd.append_line": {"path": LINES, "line": _item(title)}},
    lambda title: {"parity.odd.append_line": {"path": LINES, "line": title + " {{ 'x' | count_calls }}"}},
    lambda title: {"ansible.builtin.debug": {"msg": f"{title} {{{{ last.count | default('none') }}}}"}},
    lambda title: {"ansible.builtin.debug": {"msg": f"{_item(title)} {{{{ 'x' | count_calls }}}}"}},
    lambda title: {
        "ansible.builtin.set_fact": {"fact": title, "facts": "{{ (facts | default([])) + [fact | default(0)] }}"}
    },
    lambda _: {"ansible.builtin.set_fact": {"seen": SEEN}},
    lambda _: {"ansible.builtin.slurp": {"src": LINES}},
    lambda _: {"ansible.builtin.command": "wc -l {{ scratch }}/lines"},
    lambda title: {"ansible.builtin.copy": {"dest": "{{ scratch }}/copied", "content": title, "mode": "0600"}},
    lambda title: {"ansible.builtin.lineinfile": {"path": LINES, "line": f"line {title}"}},
    lambda _: {
        "ansible.builtin.assert": {"that": ["last.count | default(1) > 0", "facts is undefined or facts is sequence"]}
    },
    lambda title: {"ansible.builtin.set_stats": {"data": {"stat": title}}},
    lambda title: {"ansible.builtin.debug": {"var": "fact"}, "vars": {"fact": f"var of {title}"}},
    lambda title: {"ansible.builtin.shell": f"echo {title} >>{LINES}"},
    lambda _: {"ansible.builtin.template": {"src": "words.j2", "dest": "{{ scratch }}/words", "mode": "0600"}},
    lambda _: {"ansible.builtin.include_vars": {"file": "words.yml"}},
    lambda _: {"ansible.builtin.file": {"path": "{{ scratch }}/{{ item | default('x') }}.d", "state": "directory"}},
    lambda title: {"ansible.builtin.add_host": {"name": f"host {title}".replace(" ", "-"), "groups": ["made"]}},
    lambda _: {"ansible.builtin.include_role": {"name": "other"}, "vars": {"given": "{{ fact | default('no fact') }}"}},
    lambda _: {"ansible.builtin.fail": {"msg": "{{ nothing_of_that_name }}"}, "ignore_errors": True},
    lambda _: {"ansible.builtin.include_tasks": "more.yml"},
)
_INCLUDES = {"ansible.builtin.include_tasks", "ansible.builtin.include_role"}
_INCLUDE_KEYWORDS: tuple[Task, ...] = (
    {"when": "last.count | default(2) > 1"},
    {"when": "1 > 2"},
    {"vars": {"fact": "of the block"}},
    {"tags": ["tagged"]},
)
_BLOCK_KEYWORDS = (*_INCLUDE_KEYWORDS, {"environment": {"OF_A_BLOCK": "{{ fact | default('none') }}"}})
_KEYWORDS: tuple[Task, ...] = (
    {"loop": ["a", "b"]},
    {"loop": "{{ ['c', 'd', fact | default('e')] }}"},
    {"loop": "{{ [] }}"},
    {"loop": [1, 2], "loop_control": {"label": "number {{ item }}", "index_var": "index"}},
    {"with_dict": {"key": "value"}},
    {"register": "last"},
    {"register": "last"},
    {"register": "tried", "until": "tried.attempts > 1", "retries": 2, "delay": 0},
    {"when": "fact is defined"},
    {"when": "last is skipped or last is changed or last is not changed"},
    {"when": ["1 > 0", "'x' | count_calls > 0"]},
    {"vars": {"fact": "of the task", "item": "of the vars"}},
    {"environment": {"OF_A_TASK": "{{ fact | default('none') }}"}},
    {"changed_when": "1 > 2"},
    {"changed_when": "'y' | count_calls > 0", "notify": "Note it"},
    {"failed_when": "1 > 2"},
    {"notify": "Note it"},
    {"ignore_errors": True},
    {"no_log": True},
    {"check_mode": True},
    {"diff": True},
    {"delegate_to": "localhost"},
    {"run_once": True},
    {"timeout": 60},
    {"throttle": 1},
    {"any_errors_fatal": False},
    {"tags": ["tagged"]},
)
