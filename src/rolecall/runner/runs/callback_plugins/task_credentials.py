"""Gives each task credentials that name it, so that the record of a run shows which task sent a request.

Ansible calls ``v2_runner_on_start`` right before it forks the process of a task. The task, its modules, and its lookups
inherit the environment that this callback sets then: a kubeconfig whose secret is the run's, with the task's id and
host appended. Between tasks the environment is the run's own. Warm and cold runs work the same way. Ansible
loads this file by its path, and it is disabled unless the operator requests it.
"""

import base64
import os
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_credentials
type: aggregate
short_description: Names the task in the credentials for the operator's proxy
description: Used by rolecall itself.
"""
WANTED_VARIABLE = "ROLECALL_TASK_CREDENTIALS"
_SECRET = "ROLECALL_RUN_SECRET"  # noqa: S105 - a name
_KUBECONFIGS = ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Changes the environment of ansible-playbook before each task, and changes it back afterwards."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_credentials"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self) -> None:
        super().__init__()
        self.wants_implicit_tasks = True  # the one that gathers facts
        self._own = {name: os.environ[name] for name in (_SECRET, *_KUBECONFIGS) if os.environ.get(name)}
        self._files = 0
        self._kubeconfig = ""
        if WANTED_VARIABLE not in os.environ or len(self._own) != 1 + len(_KUBECONFIGS):
            self.disabled = True
            return
        with open(self._own["KUBECONFIG"], encoding="utf-8") as file:  # noqa: PTH123 - as Ansible's own plugins
            self._kubeconfig = file.read()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Name the task that is about to start."""
        name = base64.urlsafe_b64encode(host.get_name().encode()).decode().rstrip("=")
        # A template can't be evaluated here: a task that might be hidden counts as hidden.
        mark = ".hidden" if task.no_log else ""
        secret = f"{self._own[_SECRET]}.{task._uuid}.{name}{mark}"  # noqa: SLF001 - what events call task_uuid
        os.environ.update(dict.fromkeys(_KUBECONFIGS, self._write_kubeconfig(secret)))

    def v2_runner_on_ok(self, *_: object, **__: object) -> None:
        """Forget the task."""
        os.environ.update(self._own)

    v2_runner_on_failed = v2_runner_on_skipped = v2_runner_on_unreachable = v2_runner_on_ok

    def _write_kubeconfig(self, secret: str) -> str:
        """Write the kubeconfig of a task into the directory that Ansible removes at the end of the run."""
        self._files += 1
        path = os.path.join(constants.DEFAULT_LOCAL_TMP, f"kubeconfig-{self._files}")  # noqa: PTH118 - plain text
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self._kubeconfig.replace(self._own[_SECRET], secret))
        return path
