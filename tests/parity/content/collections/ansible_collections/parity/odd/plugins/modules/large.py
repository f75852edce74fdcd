"""Returns much."""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule({"size": {"type": "int", "required": True}, "aside": {"type": "bool", "default": False}})
    size = module.params["size"]
    if module.params["aside"]:
        import sys  # noqa: PLC0415 - only here

        sys.stderr.write("x" * size)
    module.exit_json(text="y" * size, lines=[f"line {number}" for number in range(size // 1000)])


if __name__ == "__main__":
    main()
