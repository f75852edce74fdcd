"""Says more than its result."""

import os
import subprocess
import sys

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule({"where": {"type": "str", "required": True}})
    where = module.params["where"]
    if where == "before":
        print("rubbish before the result\n[also in brackets")
    if where == "descriptor":
        os.write(1, b"written to the descriptor\n")
    if where == "child":
        subprocess.run(["/bin/echo", "said by a child"], check=True)
    if where == "aside":
        sys.stderr.write("a word aside\n")
        sys.stderr.flush()
    if where == "bytes":
        sys.stdout.buffer.write(b"\xff\xfe no text\n")
        sys.stdout.flush()
    if where == "after":
        print('{"changed": true, "said": "first"}')
        print("rubbish after the result")
        return
    if where == "twice":
        print('{"changed": true, "said": "first"}')
    if where == "colours":
        print("\x1b[31mred\x1b[0m")
    module.exit_json(where=where)


if __name__ == "__main__":
    main()
