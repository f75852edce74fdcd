"""The errors of the embedded control plane.

Every expected failure is a ``ControlPlaneError`` whose message states what was found, where, and what was expected. The
error for a failed component has the last lines of its log. Every other exception is a bug and stays a traceback.
``rolecall.cli.cluster`` turns these errors into one message and exit code 1.
"""

from collections.abc import Sequence


class ControlPlaneError(Exception):
    """The base class of the errors of the embedded control plane."""


class BinariesUnavailableError(ControlPlaneError):
    """The programs of the control plane can neither be found, downloaded nor built."""


class ComponentFailedError(ControlPlaneError):
    """A component exited or did not become ready; the message has its name, the reason and its last log lines."""

    def __init__(self, component: str, reason: str, log_lines: Sequence[str]) -> None:
        self.component = component
        self.log_lines = tuple(log_lines)
        tail = "\n".join(f"  {line}" for line in log_lines) or "  (its log is empty)"
        super().__init__(f"{component} {reason}; the last lines of its log:\n{tail}")
