#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module by which a role makes and changes Prometheus metrics of its own.

The operator keeps the metrics and serves them together with its own. What the request asks for is judged there; the
text of a refusal is the message of the failed task.
"""

DOCUMENTATION = r"""
module: osdk_metric
short_description: Make or change a Prometheus metric
version_added: "0.1.0"
author: the rolecall authors
description:
  - Makes a metric, or changes one that was made before, in the operator that runs the role.
  - The operator serves it together with its own metrics, under its plain name and without labels.
  - Exactly one of O(counter), O(gauge), O(histogram) and O(summary) is needed; the first use of a name fixes its type.
  - Values are lost when the operator ends, and only the replica that runs the role has them.
options:
  name:
    description: The name of the metric.
    type: str
    required: true
  description:
    description: What the metric means, for people.
    type: str
    required: true
  address:
    description:
      - Where the operator takes metrics.
      - Without it E(ROLECALL_METRICS_URL), which rolecall sets for its runs, then V(http://localhost:5050/metrics).
    type: str
  counter:
    description: A number that only grows. Without options it is made and stays as it is.
    type: dict
    suboptions:
      increment:
        description: Adds 1.
        type: bool
      add:
        description: Adds this.
        type: float
  gauge:
    description:
      - A number that goes up and down. Without options it is made and stays as it is.
      - Only the first option in this order is done; 0 and V(false) mean that the option is not given.
    type: dict
    suboptions:
      increment:
        description: Adds 1.
        type: bool
      decrement:
        description: Takes 1 away.
        type: bool
      add:
        description: Adds this.
        type: float
      subtract:
        description: Takes this away.
        type: float
      set:
        description: Becomes this.
        type: float
      set_to_current_time:
        description: Becomes the time, in seconds since the epoch.
        type: bool
  histogram:
    description: Counts observations by their size.
    type: dict
    suboptions:
      observe:
        description: What was observed.
        type: float
  summary:
    description: Counts observations and adds them up.
    type: dict
    suboptions:
      observe:
        description: What was observed.
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

- name: Say how large it is
  rolecall.util.osdk_metric:
    name: database_backup_bytes
    description: Size of the last backup
    gauge:
      set: "{{ backup.stat.size }}"
"""

RETURN = r"""
status_code:
  description: The HTTP status with which the operator refused the metric.
  returned: when it was refused
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
    # A proxy of the environment is for the world outside, not for the operator beside the run.
    answer, info = fetch_url(
        module, address, json.dumps(request), headers, "POST", use_proxy=False, timeout=TIMEOUT_SECONDS
    )
    status = info["status"]
    if status != OK:
        refusal = info.get("body") or (answer.read() if answer else b"") or info["msg"]
        message = to_text(refusal).strip()
        module.fail_json(
            msg=f"the metric {parameters['name']!r} was not taken at {address}: {message}", status_code=status
        )
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
