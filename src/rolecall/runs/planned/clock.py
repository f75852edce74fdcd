"""The clock of a run that is done again later: it shows the time of the first run, because roles compare times.

Python's clock is set back in the process of ansible-playbook and whatever is forked from it. A module in a process of
its own sees the real time.
"""

import time
from collections.abc import Mapping
from typing import Final

BEHIND_VARIABLE: Final = "ROLECALL_PLAN_SECONDS_BEHIND"
"""By how many seconds the clock of a planned run is behind."""


def environment(seconds_behind: float) -> dict[str, str]:
    """Return the variables that set the clock of a planned run back."""
    return {BEHIND_VARIABLE: str(seconds_behind)}


def install(variables: Mapping[str, str]) -> None:
    """Set the clock of this process back as far as its environment says."""
    if behind := variables.get(BEHIND_VARIABLE):
        import time_machine  # noqa: PLC0415 - it changes functions of the interpreter, so only who needs it loads it

        time_machine.travel(time.time() - float(behind), tick=True).start()
