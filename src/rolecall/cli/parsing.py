"""An argument parser that suggests corrections.

An unknown command or flag is an error that names the nearest known one. A command line without a command prints the
help. Flags cannot be abbreviated: a new flag must not make an existing command line ambiguous.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

USAGE_EXIT_CODE = 2
OTHER_USAGE_EXIT_CODE = os.EX_USAGE
"""For commands whose exit code 2 means that something differs."""


class Parser(argparse.ArgumentParser):
    """A parser that uses the same class for its subcommands. Every command without subcommands sets ``handler``.

    A command whose exit code 2 has a meaning of its own sets ``usage_exit_code``.
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
            parser.refuse(others[0])
        if "handler" not in options:
            parser.exit(USAGE_EXIT_CODE, parser.format_help())
        return options

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit."""
        self.print_usage(sys.stderr)
        self.exit(self.usage_exit_code, f"{self.prog}: error: {message}\n")

    def refuse(self, word: str) -> NoReturn:
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
