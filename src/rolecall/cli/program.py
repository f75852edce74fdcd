"""The two names of the program, and what is different under each: the defaults, and how strict the command line is.

``rolecall run`` is for people: free ports, private folders, a command line that cannot be meant is exit code 2.
``ansible-operator run`` is for images and manifests that were made for the Go runner: its ports, paths and times, its
exit codes, JSON always.
"""

from dataclasses import dataclass

from rolecall.config.settings import Settings, ansible_operator_settings
from rolecall.logs import LogSettings


@dataclass(frozen=True, slots=True)
class Program:
    """One name of the program."""

    name: str
    settings: Settings
    logs: LogSettings
    usage_exit_code: int = 2
    is_drop_in: bool = False
    """Whether a call that the Go runner accepts must be accepted here."""


def rolecall_program() -> Program:
    """Return what ``rolecall run`` is."""
    return Program("rolecall run", Settings(), LogSettings())


def ansible_operator_program() -> Program:
    """Return what ``ansible-operator run`` is."""
    return Program(
        "ansible-operator run",
        ansible_operator_settings(),
        LogSettings(encoder="json", time_encoding="rfc3339"),
        usage_exit_code=1,
        is_drop_in=True,
    )
