"""What a flag is: a name, a type, a help text, and the setting that it sets.

The default of a flag is the default of its setting, so it is declared once, and the two names of the program can have
different defaults.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rolecall.runner.config.settings import Settings


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of value: its name in the usage, how it is parsed from the command line and shown as a default.

    ``parse`` raises ``argparse.ArgumentTypeError`` with what was expected and what was found.
    """

    metavar: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    is_boolean: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag ``--name`` that sets ``setting``; a deprecated flag names its replacement in ``replaced_by``.

    ``default_text`` describes the default of ``rolecall run`` if its value does not, or if it depends on the machine.
    """

    name: str
    setting: str
    type: ValueType
    help: str
    replaced_by: str = ""
    default_text: str = ""

    @property
    def dest(self) -> str:
        """The attribute of the parsed options that has the value."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class FlagGroup:
    """Flags that belong together, and the dataclass whose fields they set."""

    title: str
    flags: tuple[Flag, ...]
    settings_type: type = Settings
