"""The task by which a role says when its object wants to be looked at again.

It only writes down a wish: the operator that runs the role reads it from the task's result, and a run that has no
operator simply goes on. Nothing is waited for and no module process is started, so it costs a run next to nothing.
The documentation of the options is in the module of the same name.
"""

import re
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|h|m|s))+|0")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Give the requested time back as the task's result."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check the options and return `period` or `at`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            argument_spec={"time": {"type": "str"}, "at": {"type": "int"}},
            mutually_exclusive=[["time", "at"]],
            required_one_of=[["time", "at"]],
        )
        if arguments["time"] is None:
            return {**result, "changed": False, "at": arguments["at"]}
        if not DURATION.fullmatch(arguments["time"]):
            raise AnsibleActionFail(
                f"time: expected a duration such as '1h30m', '10s', '1.5s' or '500ms', found {arguments['time']!r}"
            )
        return {**result, "changed": False, "period": arguments["time"]}
