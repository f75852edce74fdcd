"""Has hooks, a thread, and a child that work after the result is printed."""

import atexit
import os
import sys
import threading
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def write(name: str) -> None:
    (Path(os.environ["PARITY_SCRATCH"]) / name).write_text(name)


def main() -> None:
    module = AnsibleModule({})
    atexit.register(write, "by_exit_hook")
    threading.Thread(target=write, args=("by_thread",)).start()
    child = os.fork()
    if child == 0:
        write("by_child")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    module.add_cleanup_file(str(Path(os.environ["PARITY_SCRATCH"]) / "by_child"))
    module.exit_json(status=status, temporary=Path(module.tmpdir).is_dir(), interpreter=Path(sys.executable).name)


if __name__ == "__main__":
    main()
