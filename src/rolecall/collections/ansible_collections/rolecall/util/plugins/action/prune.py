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

OPERATOR_VARIABLE = "ROLECALL_PRUNES"
"""Set in runs of an operator, which knows earlier runs."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """Return the options as the task's result."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate the options and return them as ``prune``."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        if "kinds" in self._task.args:
            raise AnsibleActionFail(
                "kinds: the option was removed; to prune an object of another kind, write the annotation "
                'rolecall.dev/prune: "true" into its definition'
            )
        _, arguments = self.validate_argument_spec(
            argument_spec={
                "after": {"type": "str"},
                "mode": {"type": "str", "choices": ["report", "delete"], "default": "report"},
            }
        )
        if arguments["after"] is not None and not DURATION.fullmatch(arguments["after"]):
            raise AnsibleActionFail(
                f"after: expected a duration such as '90s', '5m' or '1h30m', found {arguments['after']!r}"
            )
        if OPERATOR_VARIABLE not in os.environ:
            return {**result, "changed": False, "msg": "Nothing was deleted: only an operator knows earlier runs"}
        skips = _ways_to_skip_tasks(check_mode=self._task.check_mode)
        options = {"after": arguments["after"], "mode": arguments["mode"], "skips": skips}
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
