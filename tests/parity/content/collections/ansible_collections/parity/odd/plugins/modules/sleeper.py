"""Sleeps."""

import time

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule({"seconds": {"type": "int"}})
    time.sleep(module.params["seconds"])
    module.exit_json()


if __name__ == "__main__":
    main()
