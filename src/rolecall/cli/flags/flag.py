"""What a flag is: a name, the setting that it fills, the kind of its value.

The default of a flag is that of its setting, so it stands in one place, and the two names of the program can have
different ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rolecall.config.settings import Settings


@dataclass(frozen=True, slots=True)
class ValueType:
    """A kind of value: how it is shown in the usage, read from the command line and written as a default.

    ``parse`` raises argparse.ArgumentTypeError with what was expected and what was found.
    """

    metavar: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    is_boolean: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag ``--name`` that fills ``setting``; one that has been replaced names its successor in ``instead``.

    ``default_text`` say what the default of ``rolecall run`` means where its value does not, or is another on each
    machine.
    """

    name: str
    setting: str
    type: ValueType
    help: str
    replaced_by: str = ""
    default_text: str = ""

    @property
    def dest(self) -> str:
        """The name of the value among the parsed ones."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class FlagGroup:
    """Flags that belong together, and the dataclass whose fields they fill."""

    title: str
    flags: tuple[Flag, ...]
    settings_type: type = Settings
