#!/usr/bin/python
"""Gives a duration back as the period in which the operator shall run the play again."""

import re

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={"time": {"type": "str", "required": True}})
    if not re.match("^[hms0-9]*$", module.params["time"]):
        module.fail_json(msg="invalid time input")
    module.exit_json(period=module.params["time"])


if __name__ == "__main__":
    main()
