"""A module with arguments of every kind, a warning, a deprecation, a difference and check mode."""

from ansible.module_utils.basic import AnsibleModule

ARGUMENTS = {
    "name": {"type": "str", "required": True, "aliases": ["colour"]},
    "depth": {"type": "int", "default": 3},
    "kind": {"type": "str", "choices": ["warm", "cold"]},
    "parts": {"type": "list", "elements": "dict", "options": {"share": {"type": "float", "required": True}}},
    "password": {"type": "str", "no_log": True},
    "path": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True, required_together=[("parts", "kind")])
    module.warn("paint is wet")
    module.deprecate("colours are old", version="9.9", collection_name="acme.paint")
    module.log("painted")
    module.exit_json(
        changed=not module.check_mode,
        params=module.params,
        said=f"the password is {module.params['password']}",
        diff={"before": "white\n", "after": f"{module.params['name']}\n"},
        ansible_facts={"painted": module.params["name"]},
    )


if __name__ == "__main__":
    main()
