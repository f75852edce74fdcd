"""Says its password in every way it can."""

import sys

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule({"password": {"type": "str", "no_log": True}, "fail": {"type": "bool", "default": False}})
    password = module.params["password"]
    sys.stderr.write(f"said aside: {password}\n")
    if module.params["fail"]:
        module.fail_json(msg=f"cannot use {password}", nested={"list": [password, f"x{password}y"]})
    module.exit_json(msg=f"used {password}", nested={password: password})


if __name__ == "__main__":
    main()
