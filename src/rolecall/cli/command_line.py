"""Parses a command line into settings, with Cobra's rules for flags.

``--flag=value`` and ``--flag value`` are the same, whatever the value begins with. A boolean takes its value only after
``=`` and is true without one. Names cannot be abbreviated. If a flag is given twice, the last value wins.
"""

import argparse
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from rolecall.cli.all_flags import GROUPS, all_flags
from rolecall.cli.flag import Flag
from rolecall.cli.flag_values import BOOLEAN

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    S = TypeVar("S", bound=DataclassInstance)


class FlagFormatter(argparse.HelpFormatter):
    """Format a boolean flag as ``--flag[=BOOL]``."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        return super()._format_action_invocation(action).replace(f" {BOOLEAN.metavar}", BOOLEAN.metavar)


def add_flags(parser: argparse.ArgumentParser, *defaults: object, only: Container[str] | None = None) -> None:
    """Add all flags, or ``only`` some; the help shows the values of ``defaults``, the settings, as their defaults."""
    by_type: Mapping[type, object] = {type(settings): settings for settings in defaults}
    # Once for all flags: to find out the number of processors takes reading files.
    usual = {settings_type: settings_type() for settings_type in by_type}
    for group in GROUPS:
        flags = [flag for flag in group.flags if only is None or flag.name in only]
        section = parser.add_argument_group(group.title) if flags else parser
        for flag in flags:
            section.add_argument(
                f"--{flag.name}",
                type=flag.type.parse,
                metavar="|".join(flag.type.choices) or flag.type.metavar,
                help=argparse.SUPPRESS
                if flag.replaced_by
                else _help(flag, by_type[group.settings_type], usual[group.settings_type]),
            )


def join_flag_values(words: Sequence[str]) -> Iterator[str]:
    """Yield the words with each flag joined to its value, so that argparse does not take a value for a flag."""
    flags = {f"--{flag.name}": flag for flag in all_flags()}
    rest = iter(words)
    for word in rest:
        flag = flags.get(word)
        if word == "--":
            yield word
            yield from rest
        elif flag is None:
            yield word
        elif flag.type.is_boolean:
            yield f"{word}=true"
        else:
            value = next(rest, None)
            yield word if value is None else f"{word}={value}"


def given_flags(options: argparse.Namespace) -> Iterator[Flag]:
    """Yield the flags that the command line sets."""
    return (flag for flag in all_flags() if getattr(options, flag.dest, None) is not None)


def apply_flags(defaults: "S", options: argparse.Namespace) -> "S":
    """Return the settings with the values that the command line sets."""
    values: dict[str, Any] = {}
    for group in GROUPS:
        if group.settings_type is type(defaults):
            for flag in group.flags:
                if (value := getattr(options, flag.dest, None)) is not None:
                    values[flag.setting] = value
    return replace(defaults, **values)


def _help(flag: Flag, settings: object, usual: object) -> str:
    default = getattr(settings, flag.setting)
    if flag.default_text and default == getattr(usual, flag.setting):
        shown = flag.default_text
    elif default is None or default == "":
        shown = ""
    else:
        shown = flag.type.show(default)
    text = f"{flag.help} (default: {shown})" if shown else flag.help
    return text.replace("%", "%%")
