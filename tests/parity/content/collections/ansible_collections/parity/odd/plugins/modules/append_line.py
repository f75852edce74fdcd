"""Writes one more line into a file, each time that it runs."""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule({"path": {"type": "path", "required": True}, "line": {"type": "str", "required": True}})
    path = Path(module.params["path"])
    with path.open("a") as file:
        file.write(module.params["line"] + "\n")
    module.exit_json(changed=True, count=len(path.read_text().splitlines()))


if __name__ == "__main__":
    main()
