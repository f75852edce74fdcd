"""Ends in every bad way that a module can."""

import os
import signal
import sys
from collections.abc import Callable

from ansible.module_utils.basic import AnsibleModule


def crash(how: str) -> None:
    """Raise the error from a function of its own, so that a traceback has something to show."""
    if how == "exception":
        raise LookupError("crashed on purpose")
    if how == "chained":
        try:
            crash("exception")
        except LookupError as error:
            raise RuntimeError("crashed because of a crash") from error
    if how == "recursion":
        crash(how)
    if how == "memory":
        raise MemoryError
    if how == "interrupt":
        raise KeyboardInterrupt


def leave(how: str) -> None:
    if how == "exit_3":
        sys.exit(3)
    if how == "exit_text":
        sys.exit("ended with a text")
    if how == "os_exit":
        print('{"changed": false, "said": "before the end"}', flush=True)
        os._exit(5)


def fail_with_exception(module: AnsibleModule) -> None:
    try:
        crash("exception")
    except LookupError as error:
        module.fail_json(msg="failed with a cause", exception=error)


ENDINGS: dict[str, Callable[[AnsibleModule], None]] = {
    "fail_json": lambda module: module.fail_json(msg="failed on purpose", rc=7, changed=True, more={"a": [1]}),
    "fail_with_exception": fail_with_exception,
    "exit_json_with_rc": lambda module: module.exit_json(rc=9, failed=False),
    "failed_by_result": lambda module: module.exit_json(failed=True, msg="says so itself"),
    "nothing": lambda _module: None,
}


def main() -> None:
    module = AnsibleModule({"how": {"type": "str", "required": True}})
    how = module.params["how"]
    crash(how)
    leave(how)
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
    if how in ENDINGS:
        ENDINGS[how](module)
    if how != "nothing":
        module.exit_json(how=how)


if __name__ == "__main__":
    main()
