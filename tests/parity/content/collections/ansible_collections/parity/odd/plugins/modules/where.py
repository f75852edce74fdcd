"""Says which interpreter runs it and whether a package can be imported."""

import importlib.util
import sys

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule({"package": {"type": "str", "default": "json"}})
    found = importlib.util.find_spec(module.params["package"]) is not None
    module.exit_json(prefix=sys.prefix, executable=sys.executable, found=found)


if __name__ == "__main__":
    main()
