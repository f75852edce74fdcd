"""Planned runs of a real Ansible, cold and warm: what runs, what is withheld, and what ends a plan. No cluster."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from rolecall.process_tree import reap_children
from rolecall.runs.events import RunSummary
from rolecall.runs.forkserver.starter import ForkserverStarter
from rolecall.runs.planned_run import PlannedOutcome, PlannedRun
from rolecall.runs.process_runner import ProcessRunner
from rolecall.runs.subprocess_starter import SubprocessStarter
from rolecall.runs.workspace import Inputs
from tests.integration.test_runner import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

REGISTER = """
- name: Ask the machine
  ansible.builtin.command: touch {{ outside }}/touched
  register: asked
"""
GO_ON = """
- name: Go on
  ansible.builtin.set_stats: {data: {went_on: true}}
"""


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of a planned run; ``outside`` is a folder of the machine that it knows."""

    summary: RunSummary
    outcome: PlannedOutcome
    outside: Path

    @property
    def ended(self) -> str:
        return self.outcome.ended.message if self.outcome.ended else ""

    @property
    def withheld(self) -> list[str]:
        return [task.task for task in self.outcome.withheld]


class Planner:
    """Runs roles as plans."""

    def __init__(self, folder: Path, runner: ProcessRunner) -> None:
        self.bench = Bench(folder, runner)
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.directory = folder / "plan"
        self.directory.mkdir()

    async def role(self, tasks: str, *, run_commands: bool = False, handlers: str = "", **environment: str) -> Planned:
        """Run a role with these tasks."""
        role = self.bench.role(tasks)
        if handlers:
            (role.path / "handlers").mkdir()
            (role.path / "handlers" / "main.yml").write_text(handlers)
        return await self._run(role, run_commands, environment)

    async def playbook(self, text: str) -> Planned:
        """Run a playbook."""
        return await self._run(self.bench.playbook(text), False, {})

    async def _run(self, content: object, run_commands: bool, environment: dict[str, str]) -> Planned:
        planned = PlannedRun(self.directory, run_commands)
        playbook = (
            getattr(content, "path") if not hasattr(content, "tasks") and str(content.path).endswith("yml") else None
        )
        job = self.bench.job(content, Inputs({"outside": str(self.outside)}, playbook=playbook))
        job = replace(job, environment=planned.environment() | environment)
        summary = await self.bench.runner.run(job, self.bench.events.append)
        return Planned(summary, planned.outcome(), self.outside)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["cold", "warm"])
async def runner(request: pytest.FixtureRequest) -> AsyncIterator[ProcessRunner]:
    """Give a runner of each kind."""
    reap_children()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_GATHERING", "explicit")
        patch.delenv("ANSIBLE_INVENTORY", raising=False)
        if request.param == "cold":
            yield ProcessRunner(SubprocessStarter())
            return
        async with ForkserverStarter() as starter:
            yield ProcessRunner(starter)


@pytest.fixture
def planner(runner: ProcessRunner, tmp_path: Path) -> Planner:
    return Planner(tmp_path, runner)


async def test_a_withheld_task_whose_result_nobody_uses_is_skipped_and_noted(planner: Planner) -> None:
    planned = await planner.role(REGISTER + GO_ON)
    assert planned.summary.is_successful, planned.summary
    assert planned.summary.stats["went_on"]
    assert list(planned.outside.iterdir()) == []
    assert planned.ended == ""
    (task,) = planned.outcome.withheld
    assert (task.task, task.action, task.reason) == ("Ask the machine", "ansible.builtin.command", "runs a program")
    assert task.place.endswith("roles/foo/tasks/main.yml:2")
    assert task.task_id in {event.task_id for event in planner.bench.events}


@pytest.mark.parametrize(
    "use",
    [
        "ansible.builtin.debug: {msg: '{{ asked.stdout }}'}",
        "ansible.builtin.debug: {var: asked}",
        "ansible.builtin.debug: {msg: \"{{ asked.stdout | default('unknown') }}\"}",
        'ansible.builtin.debug: {msg: "{{ (asked | default({})).rc | default(0) }}"}',
        'ansible.builtin.debug: {msg: "{{ hostvars.localhost.asked.rc | default(0) }}"}',
        "ansible.builtin.debug: {msg: \"{{ lookup('vars', 'asked').rc }}\"}",
        "ansible.builtin.debug: {msg: \"{{ vars['asked'].rc | default(0) }}\"}",
        "ansible.builtin.debug: {}\n  when: asked.rc | default(0) == 0",
        "ansible.builtin.debug: {}\n  when: asked is changed",
        "ansible.builtin.debug: {}\n  loop: '{{ asked.stdout_lines | default([]) }}'",
        "ansible.builtin.debug: {}\n  loop: ['{{ asked.stdout }}']",
        "ansible.builtin.debug: {}\n  with_items: '{{ asked.stdout_lines }}'",
        "ansible.builtin.ping:\n  until: asked.rc == 0\n  retries: 1\n  delay: 0",
        "ansible.builtin.set_fact: {copied: '{{ asked }}'}",
        "ansible.builtin.assert: {that: asked.rc == 0}",
        "ansible.builtin.debug: {msg: '{{ through }}'}\n  vars: {through: '{{ deeper }}', deeper: '{{ asked.stdout }}'}",
        "ansible.builtin.meta: end_play\n  when: asked is failed",
        "ansible.builtin.include_tasks: '{{ asked.stdout }}.yml'",
        "ansible.builtin.debug: {}\n  failed_when: asked is failed",
        'ansible.builtin.debug: {msg: "{{ asked.stdout }}"}\n  ignore_errors: true',
        'ansible.builtin.copy: {content: "{{ asked.stdout }}", dest: /tmp/never}',
        "ansible.builtin.debug: {}\n  delegate_to: '{{ asked.stdout }}'",
    ],
)
async def test_using_what_a_withheld_task_would_have_given_ends_the_plan(planner: Planner, use: str) -> None:
    planned = await planner.role(f"{REGISTER}\n- name: Use it\n  {use}\n{GO_ON}")
    assert planned.ended.startswith("complete up to task 2: Use it: uses the result of 'Ask the machine'"), use
    assert not planned.summary.is_successful
    assert "went_on" not in planned.summary.stats
