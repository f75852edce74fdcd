#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation of ``rolecall.util.prune``, which is an action plugin without a module."""

DOCUMENTATION = r"""
module: prune
short_description: Delete what the role no longer makes
version_added: "0.1.0"
author: the rolecall authors
description:
  - States that the run has named everything that its object needs, by reading or writing it.
  - Objects that earlier runs named, and that runs with a changed spec or role no longer name, are obsolete. The
    operator deletes them when two runs in a row agree, and O(after) has passed.
  - Use it as the last task of a role. The operator acts only if the whole run succeeds, without ignored or rescued
    failures.
  - Only objects that belong to the object of the run are deleted, never those of others, and never an object with the
    annotation C(rolecall.dev/prune) set to C("false").
  - Without an operator the task has no effect.
options:
  after:
    description:
      - How long an object stays obsolete before it is deleted, a Go duration such as V(90s) or V(5m).
      - The default is five minutes, and one hour for ConfigMaps, because pods of an earlier version may still read
        them.
    type: str
  kinds:
    description:
      - Kinds to delete in addition to Deployment, DaemonSet, Service, Ingress, Route, ConfigMap, ServiceAccount, Role,
        RoleBinding, HorizontalPodAutoscaler, PodDisruptionBudget, NetworkPolicy, and CronJob.
      - PersistentVolumeClaim, Namespace, and CustomResourceDefinition are never deleted.
    type: list
    elements: dict
    default: []
    suboptions:
      group:
        description: The API group, empty for the core group.
        type: str
        default: ""
      kind:
        description: The kind.
        type: str
        required: true
  mode:
    description: With V(report), Events, log, and metrics say what is obsolete, and nothing is deleted.
    type: str
    choices: [delete, report]
    default: delete
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
  action:
    description: Runs in the controller; no module is started.
    support: full
"""

EXAMPLES = r"""
- name: Delete what this Shop no longer needs
  rolecall.util.prune:

- name: Delete finished Jobs of earlier versions too, after an hour
  rolecall.util.prune:
    after: 1h
    kinds:
      - group: batch
        kind: Job
"""

RETURN = r"""
prune:
  description: The options as the operator reads them.
  returned: if an operator runs the role
  type: dict
"""
