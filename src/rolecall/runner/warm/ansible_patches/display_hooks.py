"""Messages of ansible-playbook before its callbacks are loaded stay plain lines, as in a cold run.

When ansible-runner's callback is imported, it wraps the methods of Ansible's display, so that each message becomes an
event. A cold run imports it after it has read the playbook; what it prints before, for example a syntax error, is plain
text, and ansible-runner makes an event of each line. The server has imported the callback already, so a forked
ansible-playbook removes the wrappers until its callbacks are loaded.
"""

import sys
from typing import Any

_CALLBACK = "ansible.plugins.callback.awx_display"


def defer_display_events() -> None:
    """Remove the callback's wrappers from the display until ansible-playbook loads its callbacks."""
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
    """Return whether a method was wrapped by a function of this module."""
    return getattr(method, "__globals__", None) is vars(module) and hasattr(method, "__wrapped__")
