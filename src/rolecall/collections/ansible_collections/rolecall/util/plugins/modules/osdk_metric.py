#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""A module that creates and changes Prometheus metrics of a role.

The operator stores the metrics and serves them together with its own. The operator also validates the request; its
error message becomes the message of the failed task.
"""

DOCUMENTATION = r"""
module: osdk_metric
short_description: Create or change a Prometheus metric
version_added: "0.1.0"
author: the rolecall authors
description:
  - Creates or changes a metric in the operator that runs the role.
  - The operator serves it together with its own metrics, under its plain name and without labels.
  - Exactly one of O(counter), O(gauge), O(histogram) and O(summary) is required; the first use of a name sets the type.
  - Values are lost when the operator stops, and only the replica that runs the role has them.
options:
  name:
    description: The name of the metric.
    type: str
    required: true
  description:
    description: The help text of the metric.
    type: str
    required: true
  address:
    description:
      - The URL of the operator's endpoint for metrics of roles.
      - The default is E(ROLECALL_METRICS_URL), which rolecall sets for its runs, then V(http://localhost:5050/metrics).
    type: str
  counter:
    description: A number that only increases. Without options the metric is created or stays unchanged.
    type: dict
    suboptions:
      increment:
        description: Adds 1.
        type: bool
      add:
        description: Adds this value.
        type: float
  gauge:
    description:
      - A number that can go up and down. Without options the metric is created or stays unchanged.
      - Only the first option in this order is applied; 0 and V(false) count as omitted.
    type: dict
    suboptions:
      increment:
        description: Adds 1.
        type: bool
      decrement:
        description: Subtracts 1.
        type: bool
      add:
        description: Adds this value.
        type: float
      subtract:
        description: Subtracts this value.
        type: float
      set:
        description: Sets the gauge to this value.
        type: float
      set_to_current_time:
        description: Sets the gauge to the current time, in seconds since the epoch.
        type: bool
  histogram:
    description: Counts observations in buckets.
    type: dict
    suboptions:
      observe:
        description: The observed value.
        type: float
  summary:
    description: Counts observations and sums them up.
    type: dict
    suboptions:
      observe:
        description: The observed value.
        type: float
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
"""

EXAMPLES = r"""
- name: Count a backup
  rolecall.util.osdk_metric:
    name: database_backups_total
    description: Backups that were made
    counter:
      increment: true

- name: Set the size of the last backup
  rolecall.util.osdk_metric:
    name: database_backup_bytes
    description: Size of the last backup
    gauge:
      set: "{{ backup.stat.size }}"
"""

RETURN = r"""
status_code:
  description: The HTTP status with which the operator rejected the request.
  returned: when it was rejected
  type: int
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.urls import fetch_url

DEFAULT_ADDRESS = "http://localhost:5050/metrics"
TIMEOUT_SECONDS = 10
OK = 200

_NUMBER = {"type": "float"}
_SWITCH = {"type": "bool"}
_OBSERVED = {"type": "dict", "options": {"observe": _NUMBER}}
KINDS = {
    "counter": {"type": "dict", "options": {"increment": _SWITCH, "add": _NUMBER}},
    "gauge": {
        "type": "dict",
        "options": {
            "increment": _SWITCH,
            "decrement": _SWITCH,
            "add": _NUMBER,
            "subtract": _NUMBER,
            "set": _NUMBER,
            "set_to_current_time": _SWITCH,
        },
    },
    "histogram": _OBSERVED,
    "summary": _OBSERVED,
}
ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "description": {"type": "str", "required": True},
    "address": {"type": "str"},
    **KINDS,
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    parameters = module.params
    if module.check_mode:
        module.exit_json(changed=True)
    address = parameters["address"] or os.environ.get("ROLECALL_METRICS_URL") or DEFAULT_ADDRESS
    request = {name: parameters[name] for name in ("name", "description", *KINDS) if parameters[name] is not None}
    headers = {"Content-Type": "application/json"}
    # A proxy in the environment is for external hosts, not for the operator on this host.
    response, info = fetch_url(
        module, address, json.dumps(request), headers, "POST", use_proxy=False, timeout=TIMEOUT_SECONDS
    )
    status = info["status"]
    if status != OK:
        rejection = info.get("body") or (response.read() if response else b"") or info["msg"]
        message = to_text(rejection).strip()
        module.fail_json(
            msg=f"Cannot send the metric {parameters['name']!r} to {address}: {message}", status_code=status
        )
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
