"""Parsing of the command line into settings.

Flags follow Cobra's rules: ``--flag=value`` and ``--flag value`` are the same for any value, a boolean takes its value
only after ``=`` and is true without one, and the last value of a repeated flag wins. Flags can't be abbreviated: a new
flag must not make an existing command line ambiguous. An error about an unknown command or flag names the nearest known
one. A command line without a command prints the help.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from rolecall.cli.flags import BOOLEAN, GROUPS, LOG_EVENTS, Flag, all_flags, parse_boolean
from rolecall.runner.config.settings import Settings, parse_integer
from rolecall.system.logs import get_logger

USAGE_EXIT_CODE = 2
OTHER_USAGE_EXIT_CODE = os.EX_USAGE
"""For commands whose exit code 2 means that something differs."""


class Parser(argparse.ArgumentParser):
    """A parser that uses the same class for its subcommands. Every command without subcommands sets ``handler``.

    A command with another meaning of exit code 2 sets ``usage_exit_code``.
    """

    usage_exit_code = USAGE_EXIT_CODE

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self.set_defaults(parser=self)

    def parse_command(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the parsed options, with the ``handler`` of the command. Exit with 2 if the words are invalid."""
        options, others = self.parse_known_args(words)
        parser: Parser = options.parser
        if others:
            parser.reject(others[0])
        if "handler" not in options:
            parser.exit(USAGE_EXIT_CODE, parser.format_help())
        return options

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit."""
        self.print_usage(sys.stderr)
        self.exit(self.usage_exit_code, f"{self.prog}: error: {message}\n")

    def reject(self, word: str) -> NoReturn:
        """Exit because of an unexpected word."""
        flag = word.partition("=")[0]
        if flag.startswith("-"):
            takes_command = " -- " in (self.usage or "")
            hint = "; put the command's flags after --" if takes_command else _hint(flag, self._option_string_actions)
            self.error(f"unknown flag: {flag}{hint}")
        self.error(f"unexpected argument: {word!r}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:  # noqa: SLF001 - no other name
            hint = _hint(value, action.choices) or f"; expected one of {', '.join(action.choices)}"
            self.error(f"unknown command: {value!r}{hint}")
        super()._check_value(action, value)


def _hint(word: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


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
    # Once for all flags: determining the number of CPUs reads files.
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
    """Yield the words with each flag joined to its value, so that argparse doesn't mistake a value for a flag."""
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


logger = get_logger("cmd")


def settings_of(options: argparse.Namespace, defaults: Settings, environment: Mapping[str, str]) -> Settings:
    """Return the settings from a command line and the environment."""
    settings = apply_flags(defaults, options)
    if settings.log_events not in LOG_EVENTS:
        logger.error("unrecognized log level", flag="--ansible-log-events", value=settings.log_events)
        settings = replace(settings, log_events=defaults.log_events)
    return replace(
        settings,
        namespaces=watch_namespaces(environment),
        output_verbosity=parse_integer(environment.get("ANSIBLE_VERBOSITY", "")) or 0,
        debug_logs=ansible_debug_logs(environment),
        leader_election_id=settings.leader_election_id or leader_election_id(environment),
    )


def watch_namespaces(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the namespaces in WATCH_NAMESPACE, which are separated by commas; unset or blank means all."""
    return tuple(name for part in environment.get("WATCH_NAMESPACE", "").split(",") if (name := part.strip()))


def ansible_debug_logs(environment: Mapping[str, str]) -> bool:
    """Return whether ANSIBLE_DEBUG_LOGS enables the whole output of runs; log an invalid boolean."""
    text = environment.get("ANSIBLE_DEBUG_LOGS")
    if text is None:
        return False
    try:
        return parse_boolean(text)
    except ValueError as error:
        logger.info("Invalid environment variable; ignoring it", envVar="ANSIBLE_DEBUG_LOGS", error=str(error))
        return False


def leader_election_id(environment: Mapping[str, str]) -> str:
    """Return the name of the Lease from the deprecated variable OPERATOR_NAME, or an empty string."""
    name = environment.get("OPERATOR_NAME", "")
    if "OPERATOR_NAME" in environment:
        flag = "--leader-election-id"
        logger.warning("Deprecated environment variable", envVar="OPERATOR_NAME", replacedBy=flag)
    return name
