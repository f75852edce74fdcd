"""Roles whose plans are compared with their runs: each is a file of tasks, and an object names one of them.

All names of a case start with ``me``, the name of the object, so that concurrent cases don't affect each other.
"""

from collections.abc import Mapping
from typing import Final

CASES: Final[Mapping[str, str]] = {
    "present": """
- name: Count
  ansible.builtin.set_fact: {numbers: "{{ range(3) | list }}"}
- name: Make one for each number
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-{{ item }}", namespace: "{{ ns }}"}
      data: {number: "number {{ item }}", at: "{{ now(utc=true).isoformat() }}Z"}
  loop: "{{ numbers }}"
  when: item != 1
- name: Look at the first
  kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ me }}-0", namespace: "{{ ns }}"}
  register: first
- name: Copy it
  kubernetes.core.k8s:
    template: copy.j2
""",
    "patched": """
- name: Merge
  kubernetes.core.k8s: {state: patched, kind: ConfigMap, name: "{{ me }}-old", namespace: "{{ ns }}",
    definition: {data: {merged: "yes", gone: null}}}
- name: Merge by the rules of the kind
  kubernetes.core.k8s:
    state: present
    merge_type: strategic-merge
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "{{ me }}-web", namespace: "{{ ns }}"}
      spec: {template: {spec: {containers: [{name: side, image: "side:1"}]}}}
- name: Patch by operations
  kubernetes.core.k8s_json_patch:
    kind: ConfigMap
    name: "{{ me }}-old"
    namespace: "{{ ns }}"
    patch: [{op: test, path: /data/merged, value: "yes"}, {op: add, path: /data/added, value: "1"}]
- name: Look at the result
  kubernetes.core.k8s_info: {api_version: apps/v1, kind: Deployment, name: "{{ me }}-web", namespace: "{{ ns }}"}
  register: web
- name: Write down what came of it
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-seen", namespace: "{{ ns }}"}
      data: {containers: "{{ web.resources[0].spec.template.spec.containers | map(attribute='name') | join(' ') }}"}
""",
    "applied": """
- name: Apply
  kubernetes.core.k8s:
    apply: true
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-old", namespace: "{{ ns }}"}, data: {a: b}}
- name: Apply on the server what belongs to another manager
  kubernetes.core.k8s:
    apply: true
    server_side_apply: {field_manager: proof}
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-owned", namespace: "{{ ns }}"}
      data: {x: z}
  register: refused
  ignore_errors: true
- name: Write down what was refused
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-seen", namespace: "{{ ns }}"}
      data: {status: "status {{ refused.status | default('none') }}", failed: "failed: {{ refused is failed }}"}
""",
    "invalid": """
- name: Make something
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-fine", namespace: "{{ ns }}"}}
- name: Create an invalid Service
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Service
      metadata: {name: "{{ me }}-bad", namespace: "{{ ns }}"}
      spec: {ports: []}
- name: Never come here
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-never", namespace: "{{ ns }}"}}
""",
    "conflict": """
- name: Replace what somebody has changed since
  kubernetes.core.k8s:
    state: present
    force: true
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-old", namespace: "{{ ns }}", resourceVersion: "1"}
      data: {late: "yes"}
""",
    "generated": """
- name: Make two with names of the server
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {generateName: "{{ me }}-part-", namespace: "{{ ns }}"}}
  loop: [1, 2]
  register: made
- name: Refer to them
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-index", namespace: "{{ ns }}"}
      data:
        first: "{{ made.results[0].result.metadata.name }}"
        second: "{{ made.results[1].result.metadata.name }} {{ made.results[1].result.metadata.uid }}"
""",
    "collection": """
- name: Remove all with a label
  kubernetes.core.k8s:
    state: absent
    api_version: v1
    kind: ConfigMap
    namespace: "{{ ns }}"
    label_selectors: ["collection={{ me }}"]
    delete_all: true
- name: Remove one that is there, and one that is not
  kubernetes.core.k8s: {state: absent, kind: ConfigMap, name: "{{ me }}-{{ item }}", namespace: "{{ ns }}"}
  loop: [single, nothing]
""",
    "status": """
- name: Make another object
  kubernetes.core.k8s:
    definition:
      apiVersion: test.rolecall.dev/v1
      kind: Thing
      metadata: {name: "{{ me }}-other", namespace: "{{ ns }}"}
- name: Write its status
  operator_sdk.util.k8s_status:
    api_version: test.rolecall.dev/v1
    kind: Thing
    name: "{{ me }}-other"
    namespace: "{{ ns }}"
    status: {small: 3}
""",
    "scale": """
- name: Scale it
  kubernetes.core.k8s_scale:
    {api_version: apps/v1, kind: Deployment, name: "{{ me }}-web", namespace: "{{ ns }}", replicas: 2, wait_timeout: 60}
""",
    "waits": """
- name: Make it and wait
  kubernetes.core.k8s:
    wait: true
    wait_timeout: 90
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "{{ me }}-web", namespace: "{{ ns }}"}
      spec:
        replicas: 1
        selector: {matchLabels: {app: "{{ me }}"}}
        template: {metadata: {labels: {app: "{{ me }}"}}, spec: {containers: [{name: web, image: "web:1"}]}}
  register: web
- name: Write down what is ready
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-seen", namespace: "{{ ns }}"}
      data: {ready: "ready: {{ web.result.status.availableReplicas }}"}
""",
    "secret": """
- name: Read the password
  kubernetes.core.k8s_info: {kind: Secret, name: "{{ me }}-given", namespace: "{{ ns }}"}
  register: given
- name: Pass it on
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ me }}-passed", namespace: "{{ ns }}"}
      stringData: {url: "db://user:{{ given.resources[0].data.password | b64decode }}@host"}
- name: Write it where it does not belong
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ me }}-leak", namespace: "{{ ns }}"}
      data: {text: "it is {{ given.resources[0].data.password | b64decode }}"}
""",
    "unchanged": """
- name: Leave it as it is
  kubernetes.core.k8s:
    state: patched
    kind: ConfigMap
    name: "{{ me }}-old"
    namespace: "{{ ns }}"
    definition: {data: {a: b}}
""",
    "definition": """
- name: Define a kind
  kubernetes.core.k8s:
    wait: true
    wait_condition: {type: Established, status: "True"}
    definition:
      apiVersion: apiextensions.k8s.io/v1
      kind: CustomResourceDefinition
      metadata:
        name: gadgets.{{ ns }}.rolecall.dev
        annotations: {rolecall.dev/adopt: "false"}
      spec:
        group: "{{ ns }}.rolecall.dev"
        scope: Namespaced
        names: {kind: Gadget, plural: gadgets, singular: gadget}
        versions:
          - name: v1
            served: true
            storage: true
            schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
- name: Make one of it
  kubernetes.core.k8s:
    definition:
      apiVersion: "{{ ns }}.rolecall.dev/v1"
      kind: Gadget
      metadata: {name: "{{ me }}", namespace: "{{ ns }}"}
  register: gadget
  until: gadget is succeeded
  retries: 20
  delay: 1
""",
}
"""The tasks of each case."""

FINALIZING: Final = """
- name: Say what was cleaned up
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ me }}-{{ state | default('alive') }}"
        namespace: "{{ ns }}"
        annotations: {rolecall.dev/adopt: "false"}
"""

COPY: Final = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ me }}-copy, namespace: {{ ns }}}
data: {{ first.resources[0].data | to_json }}
---
apiVersion: v1
kind: Service
metadata: {name: {{ me }}-copy, namespace: {{ ns }}}
spec: {ports: [{port: 80}], selector: {app: {{ me }}}}
"""
"""A template with two objects."""

_WEB: Final = """
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME-web}
spec:
  replicas: 1
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: web, image: "web:1"}]}
"""
SETUP: Final = (
    """
apiVersion: v1
kind: ConfigMap
metadata: {name: patched-old}
data: {gone: soon, kept: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: applied-old}
data: {old: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: applied-owned}
data: {x: y}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conflict-old}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: collection-one, labels: {collection: collection}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: collection-two, labels: {collection: collection}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: collection-single}
---
apiVersion: v1
kind: Secret
metadata: {name: secret-given}
stringData: {password: hunter-of-secrets}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: unchanged-old}
data: {a: b}
"""
    + _WEB.replace("NAME", "patched")
    + _WEB.replace("NAME", "scale")
)
"""The existing objects: each belongs to the case that its name starts with."""

DEPLOYMENTS: Final = ("patched-web", "scale-web")
"""The Deployments of ``SETUP``."""

PASSWORD: Final = "hunter-of-secrets"  # noqa: S105 - must be in no plan
