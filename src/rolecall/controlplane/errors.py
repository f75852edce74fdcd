"""What can go wrong with the embedded control plane, in words for the person who started it.

Every failure that this package expects is a ControlPlaneError with a message that can be shown as it is: what was
found, where, and what was expected. A component that ended on its own carries its name and the last lines of its log.
Everything else is a defect of ours and stays a traceback. The command line, in rolecall.cli.cluster, turns these
errors into one message and exit code 1.
"""

from collections.abc import Sequence


class ControlPlaneError(Exception):
    """The embedded control plane could not do what it was asked to do."""


class BinariesUnavailableError(ControlPlaneError):
    """No way of getting the control plane's programs led to the end."""


class ComponentFailedError(ControlPlaneError):
    """A component ended on its own, or never became ready; says which one, why and what it logged last."""

    def __init__(self, component: str, reason: str, log_lines: Sequence[str]) -> None:
        self.component = component
        self.log_lines = tuple(log_lines)
        tail = "\n".join(f"  {line}" for line in log_lines) or "  (its log is empty)"
        super().__init__(f"{component} {reason}; the last lines of its log:\n{tail}")
