"""From the words of a command line to settings, by the rules that Cobra has for flags.

``--flag=value`` and ``--flag value`` are the same, whatever the value begins with; a boolean takes its value only
after ``=`` and is true without one; names are never shortened; of a flag that is given twice the last one counts.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from rolecall.cli.flags.all_flags import GROUPS, all_flags
from rolecall.cli.flags.flag import Flag, FlagGroup
from rolecall.cli.flags.values import BOOLEAN

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    S = TypeVar("S", bound=DataclassInstance)


class FlagFormatter(argparse.HelpFormatter):
    """Writes a boolean flag as it is given: ``--flag[=BOOL]``."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        return super()._format_action_invocation(action).replace(f" {BOOLEAN.metavar}", BOOLEAN.metavar)


def add_flags(parser: argparse.ArgumentParser, *defaults: object) -> None:
    """Add all flags; ``defaults`` are the settings whose values the help shows."""
    by_type: Mapping[type, object] = {type(settings): settings for settings in defaults}
    for group in GROUPS:
        section = parser.add_argument_group(group.title)
        for flag in group.flags:
            section.add_argument(
                f"--{flag.name}",
                type=flag.type.parse,
                metavar="|".join(flag.type.choices) or flag.type.metavar,
                help=argparse.SUPPRESS if flag.replaced_by else _help(flag, group, by_type[group.settings_type]),
            )


def join_flag_values(words: Sequence[str]) -> Iterator[str]:
    """Yield the words with each flag and its value in one, as argparse cannot misunderstand them."""
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
    """Yield the flags that the command line has."""
    return (flag for flag in all_flags() if getattr(options, flag.dest) is not None)


def apply_flags(defaults: "S", options: argparse.Namespace) -> "S":
    """Return the settings with what the command line says."""
    values: dict[str, Any] = {}
    for group in GROUPS:
        if group.settings_type is type(defaults):
            for flag in group.flags:
                if (value := getattr(options, flag.dest)) is not None:
                    values[flag.setting] = value
    return replace(defaults, **values)


def _help(flag: Flag, group: FlagGroup, settings: object) -> str:
    default = getattr(settings, flag.setting)
    is_usual = default == getattr(group.settings_type(), flag.setting)
    if flag.default_text and is_usual:
        shown = flag.default_text
    elif default is None or default == "":
        shown = ""
    else:
        shown = flag.type.show(default)
    text = f"{flag.help} (default: {shown})" if shown else flag.help
    return text.replace("%", "%%")
