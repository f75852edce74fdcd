"""Waits of a planned run: the shadow is ready in about a second, so what is waited for is asked for more often.

Time limits stay as they are: an ``until`` with ten tries and a delay of six seconds may take a minute, in tries of
0.2 seconds. A task that only lets time pass takes next to none.
"""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsiblePromptNoninteractive
from ansible.executor import task_executor

POLL_SECONDS = 0.2
_DEFAULT_RETRIES = 3
_WAITER = "ansible_collections.kubernetes.core.plugins.module_utils.k8s.waiter"
_WAITING_MODULES = frozenset(
    f"kubernetes.core.{name}" for name in ("k8s", "k8s_info", "k8s_json_patch", "k8s_rollback", "k8s_scale")
) | {"community.okd.k8s", "redhat.openshift.k8s"}


class QuickTime:
    """Stands in for the module ``time`` in a module of Ansible: sleeps are short."""

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the module has."""
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        """Sleep for a moment."""
        time.sleep(min(seconds, POLL_SECONDS))


class _NobodyThere:
    """Stands in for the display of ``pause``: nobody answers."""

    def __init__(self, display: Any) -> None:
        self._display = display

    def __getattr__(self, name: str) -> Any:
        return getattr(self._display, name)

    def prompt_until(self, *_: object, **__: object) -> None:
        raise AnsiblePromptNoninteractive("a planned run asks nobody")


def install() -> None:
    """Shorten the sleeps of this process, its workers and the modules that are forked from them."""
    task_executor.time = QuickTime()
    if waiter := sys.modules.get(_WAITER):
        waiter.time = QuickTime()  # type: ignore[attr-defined]


def hurry_task(task: Any) -> None:
    """Let a task that is about to start try more often, within the time that it would have taken."""
    if task.poll and task.poll > POLL_SECONDS:
        task.poll = POLL_SECONDS
    if task.delay <= POLL_SECONDS or not (task.until or task.retries):
        return
    retries = _DEFAULT_RETRIES if task.retries is None else task.retries
    task.retries = math.ceil(retries * task.delay / POLL_SECONDS)
    task.delay = POLL_SECONDS


def hurry_pause(action: Any) -> None:
    """Let the action ``pause``, which is about to run, neither sleep nor ask anybody: a run has a terminal."""
    module = sys.modules[type(action).__module__]
    module.time = QuickTime()  # type: ignore[attr-defined]
    module.display = _NobodyThere(module.display)  # type: ignore[attr-defined]


def hurried(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with which a module waits less: it takes whole seconds."""
    if name in _WAITING_MODULES and (arguments.get("wait") or "wait_sleep" in arguments):
        return {**arguments, "wait_sleep": 1}
    if name != "ansible.builtin.wait_for":
        return dict(arguments)
    only_time = {"timeout": 0} if "path" not in arguments else {}
    return {**arguments, **only_time, "delay": 0}
