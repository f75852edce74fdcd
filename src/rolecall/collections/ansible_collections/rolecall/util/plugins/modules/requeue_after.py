#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation of rolecall.util.requeue_after, which is an action and starts no module."""

DOCUMENTATION = r"""
module: requeue_after
short_description: Ask the operator to run the role again
version_added: "0.1.0"
author: the rolecall authors
description:
  - Tells the operator that runs the role when it shall run again for the same object.
  - The rest of the play goes on, and the status is written as usual.
  - The wish counts for a run that succeeds; one that fails is repeated with the operator's back-off.
  - Without an operator the task does nothing.
options:
  time:
    description:
      - How long after the end of this run the next one shall start.
      - A Go duration such as V(1h30m), V(10s) or V(500ms).
      - Exactly one of O(time) and O(at) is needed.
    type: str
  at:
    description:
      - When the next run shall start, in milliseconds since the epoch. A time that has passed means at once.
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
- name: Come back in ten seconds
  rolecall.util.requeue_after:
    time: 10s

- name: Come back at a given time
  rolecall.util.requeue_after:
    at: "{{ (now().timestamp() * 1000) | int + 250 }}"
"""

RETURN = r"""
period:
  description: The duration that was asked for.
  returned: when O(time) is given
  type: str
at:
  description: The time that was asked for, in milliseconds since the epoch.
  returned: when O(at) is given
  type: int
"""
