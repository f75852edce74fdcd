"""An action with which a role requests the next run for its object.

It only returns the request: the operator that runs the role reads it from the task's result; without an operator it has
no effect. It does not wait and starts no module process, so it takes almost no time. The module of the same name has
the documentation of the options.
"""

import re
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|h|m|s))+|0", re.ASCII)


class ActionModule(ActionBase):  # type: ignore[misc]
    """Return the requested time as the task's result."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate the options and return ``period`` or ``at``."""
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
