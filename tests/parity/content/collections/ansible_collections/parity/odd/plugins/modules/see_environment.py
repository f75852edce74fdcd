"""Reports variables of its environment, and may set one."""

import os

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule({"names": {"type": "list", "elements": "str"}, "set": {"type": "str"}})
    seen = {name: os.environ.get(name) for name in module.params["names"] if name != "PYTHONPATH"}
    if "PYTHONPATH" in module.params["names"]:
        try:
            import only_in_files  # type: ignore[import-not-found]  # noqa: PLC0415

            seen["found"] = only_in_files.WORD
        except ImportError as error:
            seen["found"] = str(error)
    if module.params["set"]:
        os.environ[module.params["set"]] = "set by the module"
    module.exit_json(seen=seen)


if __name__ == "__main__":
    main()
