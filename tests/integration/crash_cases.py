"""Roles with planted faults that an interruption reveals, each with its corrected twin, by the names of the cases.

All names of a case start with ``me``, the name of the object. A case without setup starts with nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from rolecall.kube.references import RawObject
from rolecall.workbench.crashtest.results import Verdict


@dataclass(frozen=True, slots=True)
class Case:
    """The tasks of a faulty role, the texts to replace in its correction, and the first task whose trial is bad.

    ``finding`` is a part of the first difference or of the message.
    """

    tasks: str
    corrections: Mapping[str, str]
    task: str
    verdict: Verdict = Verdict.DIFFERS
    finding: str = ""
    setup: str = ""

    def others(self, name: str) -> list[RawObject]:
        """Return the objects that exist before that with this name."""
        return list(yaml.safe_load_all(self.setup.replace("ME", name))) if self.setup else []

    @property
    def corrected(self) -> str:
        """The tasks of the twin."""
        tasks = self.tasks
        for text, correction in self.corrections.items():
            assert tasks.count(text) == 1, text
            tasks = tasks.replace(text, correction)
        return tasks


_READ_OLD: Final = """
- name: Read the old one
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-old", namespace: "{{ ns }}"}
  register: old
"""
_OLD: Final = "{apiVersion: v1, kind: ConfigMap, metadata: {name: ME-old}, data: {version: first}}"
_REMOVE_OLD: Final = """
- name: Remove the old one
  kubernetes.core.k8s: {state: absent, kind: ConfigMap, name: "{{ me }}-old", namespace: "{{ ns }}"}
  when: old.resources | length > 0
"""
_CREATE_NEW: Final = """
- name: Create the new one
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-new", namespace: "{{ ns }}"}
      data: "{{ old.resources[0].data }}"
  when: old.resources | length > 0
"""
_REMOVE_LEDGER: Final = """
- name: Remove the ledger
  kubernetes.core.k8s: {state: absent, kind: ConfigMap, name: "{{ me }}-ledger", namespace: "{{ ns }}"}
  when: state == 'absent'
"""
_REMOVE_LISTED: Final = """
- name: Remove what it lists
  kubernetes.core.k8s: {state: absent, kind: ConfigMap, name: "{{ item }}", namespace: "{{ ns }}"}
  loop: "{{ (ledger.resources | first | default({'data': {'names': ''}})).data.names.split() }}"
  when: state == 'absent'
"""

CASES: Final[Mapping[str, Case]] = {
    "generated": Case(
        """
- name: Read the record
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-record", namespace: "{{ ns }}"}
  register: record
- name: Look for a worker
  kubernetes.core.k8s_info: {kind: ConfigMap, namespace: "{{ ns }}", label_selectors: ["worker={{ me }}"]}
  register: workers
- name: Create the worker
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {generateName: "{{ me }}-worker-", namespace: "{{ ns }}", labels: {worker: "{{ me }}"}}
  register: worker
  when: not record.resources
- name: Record the worker
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-record", namespace: "{{ ns }}"}
      data: {worker: "the worker is {{ worker.result.metadata.name }}"}
  when: not record.resources
""",
        {
            "  register: worker\n  when: not record.resources": "  register: worker\n  when: not workers.resources",
            "{{ worker.result.metadata.name }}": "{{ (workers.resources or [worker.result])[0].metadata.name }}",
        },
        "Create the worker",
        finding="additional",
    ),
    "moved": Case(
        f"{_READ_OLD}{_REMOVE_OLD}{_CREATE_NEW}",
        {f"{_REMOVE_OLD}{_CREATE_NEW}": f"{_CREATE_NEW}{_REMOVE_OLD}"},
        "Remove the old one",
        finding="missing",
        setup=_OLD,
    ),
    "password": Case(
        """
- name: Read the password of the database
  kubernetes.core.k8s_info: {kind: Secret, name: "{{ me }}-database", namespace: "{{ ns }}"}
  register: database
- name: Choose a password
  ansible.builtin.set_fact:
    password: "{{ lookup('ansible.builtin.password', '/dev/null', length=20) }}"
- name: Create the database's password
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ me }}-database", namespace: "{{ ns }}"}
      stringData: {password: "{{ password }}"}
  when: not database.resources
- name: Read the application's configuration
  kubernetes.core.k8s_info: {kind: Secret, name: "{{ me }}-application", namespace: "{{ ns }}"}
  register: application
- name: Configure the application
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ me }}-application", namespace: "{{ ns }}"}
      stringData: {url: "db://user:{{ password }}@host"}
  when: not application.resources
""",
        {
            """
    password: "{{ lookup('ansible.builtin.password', '/dev/null', length=20) }}"
""": """
    password: "{{ (database.resources[0].data.password | b64decode) if database.resources
      else lookup('ansible.builtin.password', '/dev/null', length=20) }}"
"""
        },
        "Create the database's password",
        finding="another value",
    ),
    "counted": Case(
        """
- name: Read the count
  kubernetes.core.k8s_info: {api_version: test.rolecall.dev/v1, kind: KIND, name: "{{ me }}", namespace: "{{ ns }}"}
  register: own
- name: Count the run
  operator_sdk.util.k8s_status:
    api_version: test.rolecall.dev/v1
    kind: KIND
    name: "{{ me }}"
    namespace: "{{ ns }}"
    status: {count: "{{ own.resources[0].status.count | default(0) | int + 1 }}"}
""",
        {"{{ own.resources[0].status.count | default(0) | int + 1 }}": "{{ own.resources | length }}"},
        "Count the run",
        finding="status.count",
    ),
    "replaced": Case(
        f"""{_READ_OLD}
- name: Remove the outdated one
  kubernetes.core.k8s: {{state: absent, kind: ConfigMap, name: "{{{{ me }}}}-old", namespace: "{{{{ ns }}}}"}}
  when: old.resources | length > 0 and old.resources[0].data.version != 'second'
  register: removed
- name: Create it again
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {{name: "{{{{ me }}}}-old", namespace: "{{{{ ns }}}}"}}
      data: {{version: second}}
  when: removed is changed
""",
        {"  when: removed is changed\n": ""},
        "Remove the outdated one",
        finding="missing",
        setup=_OLD,
    ),
    "first": Case(
        """
- name: Create the configuration
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-configuration", namespace: "{{ ns }}"}
  register: configuration
- name: Initialize the database
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-initialized", namespace: "{{ ns }}"}
  when: configuration is changed
""",
        {"  when: configuration is changed\n": ""},
        "Create the configuration",
        finding="missing",
    ),
    "event": Case(
        """
- name: Read the result
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-result", namespace: "{{ ns }}"}
  register: result
- name: Start the work
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-work", namespace: "{{ ns }}"}}
  register: work
- name: Send the signal
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-signal", namespace: "{{ ns }}"}}
  when: work is changed
- name: Wait for the signal
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-signal", namespace: "{{ ns }}"}
  register: signal
  until: signal.resources | length > 0
  retries: 3
  delay: 1
  when: not result.resources
- name: Consume the signal
  kubernetes.core.k8s: {state: absent, kind: ConfigMap, name: "{{ me }}-signal", namespace: "{{ ns }}"}
- name: Write the result
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-result", namespace: "{{ ns }}"}}
""",
        {"  when: work is changed": "  when: not result.resources"},
        "Start the work",
        Verdict.STUCK,
        "Wait for the signal",
    ),
    "locked": Case(
        """
- name: Read the lock
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-lock", namespace: "{{ ns }}"}
  register: found
- name: Check the lock
  ansible.builtin.set_fact:
    lock: "{{ (found.resources + [{}])[0].data | default({}) }}"
- name: See whether somebody else has it
  ansible.builtin.set_fact:
    is_taken: "{{ lock.holder is defined }}"
- name: Wait for the other run
  kubernetes.core.k8s:
    state: patched
    kind: ConfigMap
    name: "{{ me }}-lock"
    namespace: "{{ ns }}"
    definition: {data: {waits: "{{ lock.waits | default('') }}x"}}
  when: is_taken
- name: Come back later
  operator_sdk.util.requeue_after: {time: 1ms}
  when: is_taken
- name: Take the lock
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-lock", namespace: "{{ ns }}"}
      data: {holder: "{{ me }}"}
  when: not is_taken
- name: Release the lock
  kubernetes.core.k8s:
    state: patched
    kind: ConfigMap
    name: "{{ me }}-lock"
    namespace: "{{ ns }}"
    definition: {data: {holder: null}}
  when: not is_taken
""",
        {"{{ lock.holder is defined }}": "{{ lock.holder | default(me) != me }}"},
        "Take the lock",
        Verdict.ENDLESS,
        "still changes",
    ),
}
"""Cases of objects that are created; the object of a case exists nowhere before."""

LEDGER: Final = Case(
    f"""
- name: Create an object outside
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{{{ me }}}}-outside"
        namespace: "{{{{ ns }}}}"
        annotations: {{rolecall.dev/adopt: "false"}}
  when: state == 'present'
- name: List it in the ledger
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {{name: "{{{{ me }}}}-ledger", namespace: "{{{{ ns }}}}"}}
      data: {{names: "{{{{ me }}}}-outside"}}
  when: state == 'present'
- name: Read the ledger
  kubernetes.core.k8s_info: {{kind: ConfigMap, name: "{{{{ me }}}}-ledger", namespace: "{{{{ ns }}}}"}}
  register: ledger
{_REMOVE_LEDGER}{_REMOVE_LISTED}""",
    {f"{_REMOVE_LEDGER}{_REMOVE_LISTED}": f"{_REMOVE_LISTED}{_REMOVE_LEDGER}"},
    "Remove the ledger",
    finding="additional",
)
"""A case whose object is deleted, and whose role has the variable ``state``."""

_RECORD_SIZE: Final = """
- name: Record the size
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-record", namespace: "{{ ns }}"}
      data: {size: "size {{ size | default('none') }}"}
"""
_RESIZE: Final = """
- name: Resize the disk
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-disk", namespace: "{{ ns }}"}
      data: {size: "size {{ size | default('none') }}"}
  when: recorded != 'size ' ~ size | default('none')
"""
RESIZED: Final = Case(
    f"""
- name: Read the record
  kubernetes.core.k8s_info: {{kind: ConfigMap, name: "{{{{ me }}}}-record", namespace: "{{{{ ns }}}}"}}
  register: record
- name: Remember the recorded size
  ansible.builtin.set_fact:
    recorded: "{{{{ record.resources[0].data.size if record.resources else '' }}}}"
{_RECORD_SIZE}{_RESIZE}""",
    {f"{_RECORD_SIZE}{_RESIZE}": f"{_RESIZE}{_RECORD_SIZE}"},
    "Record the size",
    finding="size",
)
"""A case whose object gets another ``size``."""

OUTSIDE: Final = """
- name: Create the first one
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-first", namespace: "{{ ns }}"}}

- name: Ask another system
  ansible.builtin.command: hostname
  register: answer

- name: Create the one with the answer
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-second", namespace: "{{ ns }}"}
      data: {answer: "{{ answer.stdout }}"}
"""
"""A role that can be tested only up to the task that uses the result of a command."""

CORRECT: Final = Case(
    """
- name: Deploy the application
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "{{ me }}", namespace: "{{ ns }}"}
      spec:
        replicas: 1
        selector: {matchLabels: {app: "{{ me }}"}}
        template:
          metadata: {labels: {app: "{{ me }}"}}
          spec: {containers: [{name: web, image: "web:1"}]}

- name: Wait for its pod
  kubernetes.core.k8s_info:
    api_version: apps/v1
    kind: Deployment
    name: "{{ me }}"
    namespace: "{{ ns }}"
    wait: true
    wait_condition: {type: Available}
    wait_timeout: 60

- name: Announce the application
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-announced", namespace: "{{ ns }}"}}
""",
    {},
    task="",
    verdict=Verdict.SAME,
)
"""A role without a fault that waits for controllers."""
