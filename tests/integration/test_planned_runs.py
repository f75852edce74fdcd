"""Planned runs of a real Ansible, cold and warm: what runs, what is withheld, and what ends a plan. No cluster."""

import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rolecall.runner.config.content import PlaybookContent, RoleContent
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.process import ColdStarter, ProcessRunner
from rolecall.runner.runs.run import RunEnvironment
from rolecall.runner.warm.starter import ForkserverStarter
from rolecall.system.processes import reap_children
from rolecall.workbench.plan.reconciles import PlannedRunner, planned_environment, read_notes
from rolecall.workbench.planned.journal import Notes
from tests import CORE
from tests.integration.test_runner import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = """
- name: Ask the machine
  ansible.builtin.command: touch {{ outside }}/touched
  register: asked
"""
GO_ON = """
- name: Go on
  ansible.builtin.set_stats: {data: {went_on: true}}
"""
REGISTERS = ["asked", "{asked: _task.result.rc}"][: 1 if CORE < (2, 21) else 2]
"""The value of ``register`` for this ansible-core: 2.21 evaluates expressions."""

CHANGING_MODULE = """
#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"outside": {}})
open(module.params["outside"] + "/changed", "w").close()
module.exit_json(changed=True)
"""
SWALLOWING_FILTER = """
class FilterModule:
    def filters(self):
        return {"swallow": swallow}
def swallow(name, variables):
    try:
        return str(variables[name]["rc"])
    except BaseException:
        return "swallowed"
"""


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of a planned run."""

    summary: Outcome
    outcome: Notes

    @property
    def ended(self) -> str:
        """The reason why the plan is incomplete; an empty string if it is complete."""
        return self.outcome.ended.message if self.outcome.ended else ""

    @property
    def withheld(self) -> dict[str, str]:
        """Why each task was not run, by its name."""
        return {task.task: task.reason for task in self.outcome.withheld}

    @property
    def stats(self) -> dict[str, Any]:
        """The values that the role has set with set_stats. Fails if the run failed."""
        assert self.summary.is_successful, self.summary.message
        return dict(self.summary.stats)


class Planner:
    """Runs roles and playbooks as plans; they know a directory of the machine as ``outside``."""

    def __init__(self, directory: Path, runner: ProcessRunner) -> None:
        self.bench = Bench(directory, runner)
        self.outside = directory / "outside"
        self.outside.mkdir(parents=True)
        self.directory = directory / "plan"
        self.directory.mkdir()

    async def role(self, tasks: str, *, run_commands: bool = False, **environment: str) -> Planned:
        """Run a role with these tasks."""
        return await self.run(self.bench.role(tasks), run_commands=run_commands, **environment)

    async def run(
        self, content: RoleContent | PlaybookContent, *, run_commands: bool = False, **environment: str
    ) -> Planned:
        """Run a role or a playbook, with more variables in its environment."""
        playbook = content.path if isinstance(content, PlaybookContent) else None
        job = self.bench.job(content, {"outside": str(self.outside)}, playbook=playbook)
        runner = PlannedRunner(self.bench.runner, planned_environment(self.directory, run_commands=run_commands))
        job = replace(job, environment=RunEnvironment(environment))
        summary = await runner.run(job, self.bench.events.append)
        notes = read_notes(self.directory)
        assert notes, "the run withheld nothing"
        return Planned(summary, notes)

    def outside_names(self) -> list[str]:
        """Return the contents of the directory on the machine."""
        return sorted(path.name for path in self.outside.iterdir())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm_runner() -> AsyncIterator[ProcessRunner]:
    """Yield a runner whose server starts with the environment that its runs have."""
    reap_children()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_GATHERING", "explicit")
        patch.delenv("ANSIBLE_INVENTORY", raising=False)
        async with ForkserverStarter() as starter:
            yield ProcessRunner(starter)


@pytest.fixture
def warm(warm_runner: ProcessRunner, tmp_path: Path) -> Planner:
    """Return a planner for the rules that do not depend on how a run starts."""
    return Planner(tmp_path, warm_runner)


@pytest.fixture(params=["cold", "warm"])
def planner(request: pytest.FixtureRequest, warm_runner: ProcessRunner, tmp_path: Path) -> Planner:
    return Planner(tmp_path, warm_runner if request.param == "warm" else ProcessRunner(ColdStarter()))


async def test_a_withheld_task_whose_result_nobody_uses_is_skipped_and_noted(planner: Planner) -> None:
    planned = await planner.role(ASK + GO_ON)
    assert planned.stats["went_on"]
    assert planner.outside_names() == []
    assert planned.ended == ""
    (task,) = planned.outcome.withheld
    assert (task.task, task.action, task.reason) == ("Ask the machine", "ansible.builtin.command", "runs a program")
    assert task.place.endswith("roles/foo/tasks/main.yml:2")
    assert task.task_id in {event.task_id for event in planner.bench.events}


async def test_no_rescue_no_always_and_no_default_hides_that_a_result_was_used(planner: Planner) -> None:
    planned = await planner.role("""
        - name: Try
          ignore_errors: true
          block:
            - name: Ask the machine
              ansible.builtin.command: "touch {{ outside }}/touched"
              register: asked
            - name: Use it
              ansible.builtin.debug: {msg: "{{ asked.stdout | default('unknown') }}"}
            - name: Go on
              ansible.builtin.copy: {content: "", dest: "{{ outside }}/block"}
          rescue:
            - name: Rescue
              ansible.builtin.set_stats: {data: {rescued: true}}
          always:
            - name: Always
              ansible.builtin.set_stats: {data: {always: true}}
    """)
    assert planned.ended == (
        "complete up to task 2: Use it: uses the result of 'Ask the machine', which a plan does not run "
        "(ansible.builtin.command: runs a program); --run-commands runs it"
    )
    assert not planned.summary.is_successful
    assert not {"rescued", "always"} & planned.summary.stats.keys()
    assert planner.outside_names() == []


@pytest.mark.parametrize(
    "use",
    [
        "ansible.builtin.debug: {msg: '{{ asked.stdout }}'}",
        "ansible.builtin.debug: {var: asked}",
        "ansible.builtin.debug: {msg: '{{ (asked | default({})).rc | default(0) }}'}",
        "ansible.builtin.debug: {msg: '{{ hostvars.localhost.asked.rc | default(0) }}'}",
        "ansible.builtin.debug: {msg: \"{{ lookup('vars', 'asked').rc }}\"}",
        "ansible.builtin.debug: {msg: \"{{ vars['asked'].rc | default(0) }}\"}",
        "ansible.builtin.debug: {}\n  when: asked.rc | default(0) == 0",
        "ansible.builtin.debug: {}\n  when: asked is changed",
        "ansible.builtin.debug: {}\n  when: asked is defined",
        "ansible.builtin.debug: {}\n  loop: '{{ asked.stdout_lines | default([]) }}'",
        "ansible.builtin.debug: {}\n  loop: ['{{ asked.stdout }}']",
        "ansible.builtin.debug: {}\n  with_items: '{{ asked.stdout_lines }}'",
        "ansible.builtin.ping:\n  until: asked.rc == 0\n  retries: 1\n  delay: 0",
        "ansible.builtin.set_fact: {copied: '{{ asked }}'}",
        "ansible.builtin.assert: {that: asked.rc == 0}",
        "ansible.builtin.debug: {msg: '{{ one }}'}\n  vars: {one: '{{ two }}', two: '{{ asked.stdout }}'}",
        "ansible.builtin.meta: end_play\n  when: asked is failed",
        "ansible.builtin.include_tasks: '{{ asked.stdout }}.yml'",
        "ansible.builtin.debug: {}\n  failed_when: asked is failed",
        "ansible.builtin.debug: {msg: '{{ asked.stdout }}'}\n  ignore_errors: true",
        "ansible.builtin.copy: {content: '{{ asked.stdout }}', dest: '{{ outside }}/copied'}",
        "ansible.builtin.debug: {}\n  delegate_to: '{{ asked.stdout }}'",
        "ansible.builtin.debug: {msg: \"{{ 'asked' | swallow(vars) }}\"}",
    ],
)
async def test_using_what_a_withheld_task_would_have_given_ends_the_plan(warm: Planner, use: str) -> None:
    role = warm.bench.role(f"{ASK}\n- name: Use it\n  {use}\n{GO_ON}")
    (role.path / "filter_plugins").mkdir()
    (role.path / "filter_plugins" / "swallow.py").write_text(SWALLOWING_FILTER)
    planned = await warm.run(role)
    assert planned.ended.startswith("complete up to task 2: Use it: uses the result of 'Ask the machine'")
    assert not planned.summary.is_successful
    assert "went_on" not in planned.summary.stats


async def test_the_result_of_a_loop_is_not_known_either(warm: Planner) -> None:
    planned = await warm.role("""
        - name: Ask twice
          ansible.builtin.command: "echo {{ item }}"
          loop: [1, 2]
          register: asked
        - name: Count
          ansible.builtin.debug: {msg: "{{ asked.results | length }}"}
    """)
    assert planned.ended.startswith("complete up to task 2: Count: uses the result of 'Ask twice'")


async def test_an_item_that_looks_at_the_one_before_ends_the_plan(warm: Planner) -> None:
    planned = await warm.role("""
        - name: Ask twice
          ansible.builtin.command: "echo {{ item }}"
          loop: [1, 2]
          register: asked
          when: item == 1 or asked.rc | default(0) == 0
    """)
    assert planned.ended.startswith("complete up to task 1: Ask twice: uses the result of 'Ask twice'")


@pytest.mark.parametrize("loop", ["", "  loop: [1, 2]\n"])
@pytest.mark.parametrize("register", REGISTERS)
async def test_whatever_a_withheld_task_registers_is_unknown(warm: Planner, register: str, loop: str) -> None:
    ask = f"- name: Ask\n  ansible.builtin.command: uptime\n  register: {register}\n{loop}"
    planned = await warm.role(f"{ask}- name: Use it\n  ansible.builtin.debug: {{var: asked}}\n")
    assert planned.ended.startswith("complete up to task 2: Use it: uses the result of 'Ask'")


async def test_conditions_on_a_withheld_task_s_own_result_are_left_out(warm: Planner) -> None:
    planned = await warm.role(
        """
        - name: Ask the machine
          ansible.builtin.command: uptime
          register: asked
          until: asked.rc == 0
          changed_when: asked.rc == 1
          failed_when: asked.rc == 2
        - name: Ask in the background
          ansible.builtin.command: sleep 300
          async: 300
          poll: 5
        """
        + GO_ON.replace("\n", "\n" + " " * 8)
    )
    assert planned.stats["went_on"]
    assert list(planned.withheld) == ["Ask the machine", "Ask in the background"]


async def test_a_result_that_another_task_has_replaced_can_be_used(warm: Planner) -> None:
    planned = await warm.role(
        f"{ASK}\n- ansible.builtin.ping:\n  register: asked\n- debug: {{var: asked.ping}}\n{GO_ON}"
    )
    assert planned.stats["went_on"]


async def test_a_handler_that_a_withheld_task_notifies_ends_the_plan(warm: Planner) -> None:
    planned = await warm.role(f"{ASK}  notify: Restart\n{GO_ON}")
    assert planned.ended.startswith("complete up to task 1: Ask the machine: notifies 'Restart' after its action")
    other = Planner(warm.directory.parent / "other", warm.bench.runner)
    assert (await other.role(f"{ASK}  notify: Restart\n  changed_when: false\n{GO_ON}")).stats["went_on"]


@pytest.mark.parametrize("strategy", ["linear", "free"])
async def test_an_end_on_one_host_ends_the_plan_on_all_and_for_later_plays(warm: Planner, strategy: str) -> None:
    playbook = warm.bench.playbook(f"""
        - hosts: localhost
          gather_facts: false
          tasks:
            - {{name: One, ansible.builtin.add_host: {{name: one}}}}
            - {{name: Two, ansible.builtin.add_host: {{name: two}}}}
        - hosts: [one, two]
          gather_facts: false
          strategy: {strategy}
          vars: {{ansible_connection: local}}
          tasks:
            - {{name: Ask, ansible.builtin.command: uptime, register: asked}}
            - name: Use it
              ansible.builtin.debug: {{msg: "{{{{ asked.stdout }}}}"}}
              when: inventory_hostname == 'one'
            - {{name: Wait, ansible.builtin.wait_for: {{path: /never, timeout: 60}}, ignore_errors: true}}
            - {{name: Go on, ansible.builtin.set_stats: {{data: {{went_on: true}}}}}}
        - hosts: localhost
          gather_facts: false
          tasks:
            - {{name: Later, ansible.builtin.set_stats: {{data: {{later: true}}}}}}
    """)
    planned = await warm.run(playbook)
    ended = re.match(r"complete up to task (\d+): Use it: uses the result of 'Ask'", planned.ended)
    assert ended, planned.ended
    assert int(ended[1]) == 4 or strategy == "free"  # then a host may have reached the next task
    assert not {"went_on", "later"} & planned.summary.stats.keys()


async def test_actions_on_other_hosts_are_withheld_and_computing_actions_run(warm: Planner) -> None:
    planned = await warm.role("""
        - {name: Delegated, ansible.builtin.ping: , delegate_to: web1.example.com}
        - {name: By connection, ansible.builtin.ping: , vars: {ansible_connection: ssh}}
        - {name: In a pod, ansible.builtin.ping: , vars: {ansible_connection: kubernetes.core.kubectl}}
        - {name: As root, ansible.builtin.ping: , become: true}
        - {name: Address, ansible.builtin.uri: {url: "http://127.0.0.1:1/"}}
        - {name: Old name, shell: "touch {{ outside }}/old"}
        - {name: Other collection, community.general.timezone: {name: UTC}}
        - {name: Pod, kubernetes.core.k8s_exec: {namespace: a, pod: b, command: ls}}
        - {name: Other cluster, kubernetes.core.k8s_info: {kind: Pod, host: "https://prod:6443"}}
        - {name: Other kubeconfig, k8s_info: {kind: Pod, kubeconfig: /etc/kubeconfig}}
        - {name: By environment, k8s: {kind: Pod, name: a}, environment: {K8S_AUTH_HOST: "https://prod:6443"}}
        - {name: Chart, kubernetes.core.helm: {name: a, release_namespace: b, chart_ref: bitnami/a}}
        - {name: Computes, ansible.builtin.set_fact: {computed: 2}, delegate_to: web1.example.com}
        - {name: Facts, ansible.builtin.setup: {gather_subset: [min]}}
        - name: Tell
          ansible.builtin.set_stats: {data: {computed: "{{ computed }}", home: "{{ lookup('env', 'HOME') != '' }}"}}
    """)
    assert planned.stats == {"computed": 2, "home": True}
    assert planned.withheld == {
        "Delegated": "runs on another host",
        "By connection": "runs on another host",
        "In a pod": "runs on another host",
        "As root": "runs as another user",
        "Address": "reaches another host",
        "Old name": "runs a program",
        "Other collection": "its effect outside Kubernetes is not known",
        "Pod": "runs a program in a pod",
        "Other cluster": "its host leads to another API server",
        "Other kubeconfig": "its kubeconfig leads to another API server",
        "By environment": "its environment sets K8S_AUTH_HOST, which leads to another API server",
        "Chart": "gets a chart from another host, unless its path begins with /, ./ or ../",
    }
    assert warm.outside_names() == []


async def test_defaults_of_modules_are_looked_at_too(warm: Planner) -> None:
    planned = await warm.role(
        """
        - module_defaults:
            ansible.builtin.file: {path: "{{ outside }}/file", state: touch, mode: "0600"}
            group/k8s: {host: "https://prod:6443"}
          block:
            - {name: File, ansible.builtin.file: }
            - {name: Kubernetes, kubernetes.core.k8s: {kind: Pod, name: a}}
        """
    )
    assert planned.withheld == {"Kubernetes": "its host leads to another API server"}
    assert warm.outside_names() == []


async def test_a_kubernetes_task_reaches_the_address_that_the_run_was_given(warm: Planner) -> None:
    arguments = "{kind: Pod, host: \"{{ lookup('env', 'ROLECALL_PROXY_URL') }}\", api_key: key}"
    tasks = f"- {{name: Ask, kubernetes.core.k8s_info: {arguments}}}"
    planned = await warm.role(tasks, ROLECALL_PROXY_URL="http://127.0.0.1:1")
    assert "127.0.0.1" in planned.summary.message
    assert (planned.outcome.withheld, planned.outcome.ended) == ((), None)


@pytest.mark.parametrize(
    ("use", "lookup"),
    [
        ("debug: {msg: \"{{ lookup('pipe', 'touch ' + outside + '/x', errors='ignore') | default(1) }}\"}", "pipe"),
        ("debug: {msg: x}\n  with_lines: touch {{ outside }}/x", "lines"),
        ("debug: {msg: \"{{ query('url', 'http://127.0.0.1:1') }}\"}\n  ignore_errors: true", "url"),
    ],
)
async def test_a_lookup_that_runs_programs_or_reaches_hosts_ends_the_plan(warm: Planner, use: str, lookup: str) -> None:
    planned = await warm.role(f"- name: Look up\n  ansible.builtin.{use}\n{GO_ON}")
    assert planned.ended.startswith(f"complete up to task 1: Look up: uses the lookup ansible.builtin.{lookup}, which")
    assert warm.outside_names() == []


async def test_a_role_cannot_bring_a_module_under_a_known_name(warm: Planner) -> None:
    role = warm.bench.role(
        """
        - {name: By its name, copy: {outside: "{{ outside }}"}}
        - {name: Own, own: {outside: "{{ outside }}"}}
        - {name: Through an action, ansible.builtin.copy: {content: "", dest: "{{ outside }}/x"}}
        """,
        copy=CHANGING_MODULE,
        own=CHANGING_MODULE,
    )
    planned = await warm.run(role)
    assert planned.ended.startswith("complete up to task 3: Through an action: starts the module ansible.legacy.copy")
    assert set(planned.withheld.values()) == {"a module or action plugin of the role"}
    assert warm.outside_names() == []


FILES = """
- {name: Directory, ansible.builtin.file: {path: "{{ outside }}/dir", state: directory, mode: "0755"}}
- {name: Write, ansible.builtin.copy: {content: hello, dest: "{{ outside }}/dir/x", mode: "0600"}, register: written}
- {name: Read, ansible.builtin.slurp: {src: "{{ outside }}/dir/x"}, register: read}
- {name: Change, ansible.builtin.lineinfile: {path: "{{ outside }}/there", line: two}}
- {name: Remove, ansible.builtin.file: {path: "{{ outside }}/gone", state: absent}, register: removal}
- {name: Look, ansible.builtin.stat: {path: "{{ outside }}/gone"}, register: gone}
- {name: Template, ansible.builtin.template: {src: t.j2, dest: "{{ outside }}/dir/t", mode: "0600"}}
- {name: Temporary, ansible.builtin.tempfile: {state: directory}, register: temporary}
- name: Copy
  ansible.builtin.copy: {src: "{{ outside }}/dir/t", dest: "{{ temporary.path }}/t", remote_src: true, mode: "0600"}
- {name: Link, ansible.builtin.file: {src: "{{ outside }}/there", dest: "{{ outside }}/link", state: link}}
- {name: Change through the link, ansible.builtin.lineinfile: {path: "{{ outside }}/link", line: three}}
- {name: Find, ansible.builtin.find: {paths: "{{ outside }}", recurse: true}, register: found}
- {name: Assemble, ansible.builtin.assemble: {src: "{{ outside }}/parts", dest: "{{ outside }}/whole", mode: "0600"}}
- {name: All below, ansible.builtin.file: {path: "{{ outside }}/parts", state: directory, recurse: true, mode: "0700"}}
- {name: Variables, ansible.builtin.copy: {content: "included: 7", dest: "{{ outside }}/v.yml", mode: "0600"}}
- {name: Include, ansible.builtin.include_vars: {file: "{{ outside }}/v.yml"}}
- name: Check
  ansible.builtin.copy: {content: x, dest: "{{ outside }}/v", validate: "touch {{ outside }}/program %s", mode: "0600"}
- name: Into no directory
  ansible.builtin.copy: {content: x, dest: "{{ outside }}/no/x", mode: "0600"}
  ignore_errors: true
  register: nowhere
- name: Tell
  ansible.builtin.set_stats:
    data:
      written: "{{ written.dest == outside + '/dir/x' }}"
      read: "{{ read.content | b64decode }}"
      there: "{{ lookup('file', outside + '/there') }}"
      gone: "{{ removal.changed and not gone.stat.exists }}"
      template: "{{ lookup('file', temporary.path + '/t') }}"
      temporary: "{{ temporary.path | dirname }}"
      found: "{{ found.files | map(attribute='path') | map('relpath', outside) | sort }}"
      glob: "{{ query('fileglob', outside + '/dir/*') | map('relpath', outside) | sort }}"
      whole: "{{ lookup('file', outside + '/whole') }}"
      included: "{{ included }}"
      nowhere: "{{ nowhere.msg }}"
      password: "{{ lookup('password', outside + '/dir/pw') == lookup('password', outside + '/dir/pw') }}"
"""


async def test_modules_for_files_work_in_a_directory_of_the_plan(planner: Planner) -> None:
    outside = planner.outside
    for name in ("there", "gone", "parts/one"):
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_text(f"{name}\n")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in outside.rglob("*")}
    role = planner.bench.role(FILES)
    (role.path / "templates").mkdir()
    (role.path / "templates" / "t.j2").write_text("{{ 1 + 1 }}\n")
    planned = await planner.run(role)
    assert planned.stats == {
        "written": True,
        "read": "hello",
        "there": "there\ntwo\nthree",
        "gone": True,
        "template": "2",
        "temporary": "/tmp",  # noqa: S108 - what a real run would say
        "found": ["dir/t", "dir/x", "parts/one", "there"],
        "glob": ["dir/t", "dir/x"],
        "whole": "parts/one",
        "included": 7,
        "nowhere": f"Destination directory {outside}/no does not exist",
        "password": True,
    }
    assert planned.withheld == {"Check": "runs a program"}
    assert {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in outside.rglob("*")} == before


async def test_with_commands_everything_runs_for_real_but_for_other_clusters(planner: Planner) -> None:
    planned = await planner.role(
        """
        - {name: Write, ansible.builtin.copy: {content: hello, dest: "{{ outside }}/x", mode: "0600"}}
        - {name: Directory, ansible.builtin.file: {path: "{{ outside }}/dir", state: directory, mode: "0700"}}
        - name: Run
          ansible.builtin.shell: "cat {{ outside }}/x > {{ outside }}/dir/y; touch {{ outside }}/real; echo {{ path }}"
          vars: {path: "{{ outside }}/x"}
          register: said
        - {name: Elsewhere, kubernetes.core.k8s_info: {kind: Pod, host: "https://prod:6443"}}
        - name: Tell
          ansible.builtin.set_stats:
            data:
              said: "{{ said.stdout == outside + '/x' }}"
              read: "{{ lookup('file', outside + '/dir/y') }}"
              piped: "{{ lookup('pipe', 'echo piped') }}"
        """,
        run_commands=True,
    )
    assert planned.stats == {"said": True, "read": "hello", "piped": "piped"}
    assert planner.outside_names() == ["real"]
    assert list(planned.withheld) == ["Elsewhere"]


async def test_waits_are_short(warm: Planner) -> None:
    start = time.monotonic()
    planned = await warm.role("""
        - {name: Pause, ansible.builtin.pause: {minutes: 2}}
        - {name: Let time pass, ansible.builtin.wait_for: {timeout: 120}}
        - name: Try again
          ansible.builtin.ping:
          register: tried
          until: tried.attempts > 5
          retries: 2
          delay: 60
        - {name: Loop, ansible.builtin.ping: , loop: [1, 2], loop_control: {pause: 120}}
        - {name: Background, ansible.builtin.ping: , async: 300, poll: 120}
        - {name: Later, ansible.builtin.ping: , async: 300, poll: 0, register: job}
        - name: Done
          ansible.builtin.async_status: {jid: "{{ job.ansible_job_id }}"}
          register: done
          until: done is finished
          delay: 60
        - {name: Tell, ansible.builtin.set_stats: {data: {answer: "{{ done.ping }}"}}}
    """)
    assert planned.stats == {"answer": "pong"}
    assert planned.withheld == {}
    assert time.monotonic() - start < 50


async def test_a_plan_that_cannot_withhold_does_not_run(planner: Planner) -> None:
    planner.directory.rmdir()
    job = planner.bench.job(planner.bench.role(ASK), {"outside": str(planner.outside)})
    runner = PlannedRunner(planner.bench.runner, planned_environment(planner.directory))
    summary = await runner.run(job, planner.bench.events.append)
    assert not summary.is_successful
    assert planner.outside_names() == []


async def test_a_run_that_is_no_plan_runs_everything(warm: Planner) -> None:
    outside = {"outside": str(warm.outside)}
    assert (await warm.bench.run(warm.bench.role(ASK), outside)).is_successful
    assert warm.outside_names() == ["touched"]
