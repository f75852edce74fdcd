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
  - Objects that runs of the object have created, and that runs with an edited spec no longer name, are obsolete. With
    O(mode=delete), the operator deletes them when two runs in a row agree, and O(after) has passed. With
    O(mode=report), and after a change of the role or its variables, an Event proposes this, and a person confirms it.
  - Use it as the last task of a role. The operator acts only if the whole run succeeds, without ignored or rescued
    failures.
  - Only objects that a run has created for the object of the run are deleted, never those of others, and never an
    object with the annotation C(rolecall.dev/prune) set to C("false").
  - Deployment, DaemonSet, Service, Ingress, Route, ConfigMap, ServiceAccount, Role, RoleBinding,
    HorizontalPodAutoscaler, PodDisruptionBudget, NetworkPolicy, and CronJob are deleted, and objects of other kinds
    with the annotation C(rolecall.dev/prune) set to C("true"). PersistentVolumeClaim, Namespace, and
    CustomResourceDefinition are never deleted.
  - Without an operator the task has no effect.
options:
  after:
    description:
      - How long an object stays obsolete before it is deleted, a Go duration such as V(90s) or V(5m).
      - The default is five minutes, and one hour for ConfigMaps, because pods of an earlier version may still read
        them.
    type: str
  mode:
    description:
      - With V(report), an Event proposes what to delete, and the annotation that it names permits exactly this.
      - With V(delete), what an edit of the spec makes obsolete is deleted without asking.
    type: str
    choices: [report, delete]
    default: report
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
  action:
    description: Runs in the controller; no module is started.
    support: full
"""

EXAMPLES = r"""
- name: Propose to delete what this Shop no longer needs
  rolecall.util.prune:

- name: Delete what this Shop no longer needs, an hour after an edit
  rolecall.util.prune:
    mode: delete
    after: 1h
"""

RETURN = r"""
prune:
  description: The options as the operator reads them.
  returned: if an operator runs the role
  type: dict
"""
