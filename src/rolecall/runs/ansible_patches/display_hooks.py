"""What a play prints before its callbacks are loaded, printed as plain lines.

When ansible-runner's callback is imported it wraps the methods of Ansible's display, so that each message becomes an
event of its kind. A play of its own process imports it only when it has read the playbook; what it prints until then,
an error of syntax for example, are plain lines, of which ansible-runner makes one event each. The server has imported
the callback long before, so a forked play takes the wrappers off again until its callbacks are loaded.
"""

import sys
from typing import Any

_CALLBACK = "ansible.plugins.callback.awx_display"


def print_plain_lines_first() -> None:
    """Take the callback's wrappers off the display, and put them on again when the play loads its callbacks."""
    from ansible.executor.task_queue_manager import TaskQueueManager  # noqa: PLC0415 - only the server has Ansible
    from ansible.utils.display import Display  # noqa: PLC0415 - as above

    callback = sys.modules.get(_CALLBACK)
    if callback is None:
        return
    wrappers = {name: each for name, each in vars(Display).items() if _is_of(callback, each)}
    for name, wrapper in wrappers.items():
        setattr(Display, name, wrapper.__wrapped__)
    load = TaskQueueManager.load_callbacks

    def load_callbacks(manager: Any) -> None:
        for name, wrapper in wrappers.items():
            setattr(Display, name, wrapper)
        load(manager)

    TaskQueueManager.load_callbacks = load_callbacks


def _is_of(module: object, method: object) -> bool:
    """Tell whether a method was wrapped by a function of this module."""
    return getattr(method, "__globals__", None) is vars(module) and hasattr(method, "__wrapped__")
