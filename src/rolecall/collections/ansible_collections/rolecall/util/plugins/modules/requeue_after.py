#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation of ``rolecall.util.requeue_after``, which is an action plugin without a module."""

DOCUMENTATION = r"""
module: requeue_after
short_description: Request another run of the role
version_added: "0.1.0"
author: the rolecall authors
description:
  - Requests another run of the role from its operator, for the same object.
  - The play continues, and the operator writes the status as usual.
  - The request applies to a run that succeeds; a run that fails is retried with the operator's backoff.
  - Without an operator the task has no effect.
options:
  time:
    description:
      - How long after the end of this run the next run starts.
      - A Go duration such as V(1h30m), V(10s) or V(1500ms), at least a second.
      - Exactly one of O(time) and O(at) is required.
    type: str
  at:
    description:
      - When the next run starts, in milliseconds since the epoch. A time in the past means in a second.
    type: int
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
  action:
    description: Runs in the controller; no module is started.
    support: full
"""

EXAMPLES = r"""
- name: Run again in ten seconds
  rolecall.util.requeue_after:
    time: 10s

- name: Run again at a given time
  rolecall.util.requeue_after:
    at: "{{ (now().timestamp() * 1000) | int + 250 }}"
"""

RETURN = r"""
period:
  description: The requested duration.
  returned: when O(time) is given
  type: str
at:
  description: The requested time, in milliseconds since the epoch.
  returned: when O(at) is given
  type: int
"""
