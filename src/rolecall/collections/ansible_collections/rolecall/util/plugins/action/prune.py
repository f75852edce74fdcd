"""An action with which a role states that it has named all objects that it needs.

It deletes nothing. It returns its options, and the operator that runs the role reads them from the task's result after
the run. Options of the play by which tasks don't run, such as tags, are a part of the result, because then the run may
have left out objects. The module of the same name has the documentation of the options.
"""

import os
import re
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|h|m|s))+|0", re.ASCII)
NEVER = {("", "Namespace"), ("", "PersistentVolumeClaim"), ("apiextensions.k8s.io", "CustomResourceDefinition")}

OPERATOR_VARIABLE = "ROLECALL_PRUNES"
"""Set in runs of an operator, which knows earlier runs."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """Return the options as the task's result."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate the options and return them as ``prune``."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        kind = {"group": {"type": "str", "default": ""}, "kind": {"type": "str", "required": True}}
        _, arguments = self.validate_argument_spec(
            argument_spec={
                "after": {"type": "str"},
                "kinds": {"type": "list", "elements": "dict", "options": kind, "default": []},
                "mode": {"type": "str", "choices": ["delete", "report"], "default": "delete"},
            }
        )
        if arguments["after"] is not None and not DURATION.fullmatch(arguments["after"]):
            raise AnsibleActionFail(
                f"after: expected a duration such as '90s', '5m' or '1h30m', found {arguments['after']!r}"
            )
        kinds = sorted({(each["group"], each["kind"]) for each in arguments["kinds"]})
        if forbidden := [name for group, name in kinds if (group, name) in NEVER]:
            raise AnsibleActionFail(f"kinds: {', '.join(forbidden)} can't be pruned: delete such objects in tasks")
        if OPERATOR_VARIABLE not in os.environ:
            return {**result, "changed": False, "msg": "Nothing was deleted: only an operator knows earlier runs"}
        skips = _ways_to_skip_tasks(check_mode=self._task.check_mode)
        options = {"after": arguments["after"], "kinds": kinds, "mode": arguments["mode"], "skips": skips}
        return {**result, "changed": False, "prune": options}


def _ways_to_skip_tasks(*, check_mode: bool) -> list[str]:
    """Return the options of the play by which it leaves out tasks, hosts, or changes."""
    given = context.CLIARGS
    found = {
        "check mode": check_mode or given.get("check"),
        "--tags": set(given.get("tags") or ["all"]) != {"all"},
        "--skip-tags": given.get("skip_tags"),
        "--limit": given.get("subset"),
        "--start-at-task": given.get("start_at_task"),
        "--step": given.get("step"),
    }
    return [name for name, is_given in found.items() if is_given]
