"""An action that runs a module of Ansible's and changes its result."""

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        first = self._execute_module("ansible.legacy.command", module_args=arguments, task_vars=task_vars)
        second = self._execute_module("ansible.builtin.ping", module_args={"data": "again"}, task_vars=task_vars)
        low_level = self._low_level_execute_command("echo low; exit 3")
        return result | {
            "first": first["stdout"],
            "second": second["ping"],
            "low_level": [low_level["rc"], low_level["stdout"]],
            "exists": self._remote_file_exists("/etc/passwd"),
            "changed": False,
        }
