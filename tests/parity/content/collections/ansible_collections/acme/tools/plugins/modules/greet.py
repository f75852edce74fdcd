"""Greets, with the helper of its collection."""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.acme.tools.plugins.module_utils.deep.deeper import DEEP
from ansible_collections.acme.tools.plugins.module_utils.words import greeting


def main() -> None:
    module = AnsibleModule({"name": {"type": "str"}}, supports_check_mode=True)
    module.exit_json(greeting=greeting(module.params["name"]), deep=DEEP)


if __name__ == "__main__":
    main()
