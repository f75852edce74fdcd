"""Draws a number."""

import random

from ansible.module_utils.basic import AnsibleModule

AnsibleModule({}).exit_json(number=random.randrange(10**12))  # noqa: S311 - no secret
