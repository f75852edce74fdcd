"""The two names of the program and what differs between them: the defaults, and how strict the command line is.

``rolecall run`` is for interactive use: it takes free ports and private directories, and an invalid command line exits
with 2. ``ansible-operator run`` is for images and manifests made for the Go runner: it has the Go runner's ports,
paths, durations and exit codes, and always logs JSON.
"""

from dataclasses import dataclass

from rolecall.runner.config.settings import Settings, ansible_operator_settings
from rolecall.system.logs import LogSettings


@dataclass(frozen=True, slots=True)
class Program:
    """The defaults and the strictness of one name of the program."""

    name: str
    settings: Settings
    logs: LogSettings
    usage_exit_code: int = 2
    is_drop_in: bool = False
    """Whether every command line that the Go runner accepts must be accepted."""


def rolecall_program() -> Program:
    """Return the program ``rolecall run``."""
    return Program("rolecall run", Settings(), LogSettings())


def ansible_operator_program() -> Program:
    """Return the program ``ansible-operator run``."""
    return Program(
        "ansible-operator run",
        ansible_operator_settings(),
        LogSettings(encoder="json", time_encoding="rfc3339"),
        usage_exit_code=1,
        is_drop_in=True,
    )
