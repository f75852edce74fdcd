"""A parser of command lines that helps somebody who has mistyped one.

A command or flag that is not there is answered with the nearest one that is, by the command that it was meant for; a
command line that ends too early gets the help. Flags are never shortened: what works today must not become ambiguous
with a new flag.
"""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

USAGE_EXIT_CODE = 2


class Parser(argparse.ArgumentParser):
    """A parser whose commands are parsed by the same class.

    A command that does something sets the default ``handler``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self.set_defaults(parser=self)

    def parse_command(self, words: Sequence[str]) -> argparse.Namespace:
        """Return what the words say, with the ``handler`` of their command; else end the program with exit code 2."""
        options, others = self.parse_known_args(words)
        parser: Parser = options.parser
        if others:
            parser.refuse(others[0])
        if "handler" not in options:
            parser.exit(USAGE_EXIT_CODE, parser.format_help())
        return options

    def refuse(self, word: str) -> NoReturn:
        """End the program because of a word that is not expected."""
        flag = word.partition("=")[0]
        if flag.startswith("-"):
            after_dashes = " -- " in (self.usage or "")
            hint = "; flags of the command come after --" if after_dashes else _hint(flag, self._option_string_actions)
            self.error(f"there is no flag {flag}{hint}")
        self.error(f"there is one argument too many: {word!r}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:  # noqa: SLF001 - no other name
            hint = _hint(value, action.choices) or f"; there are {', '.join(action.choices)}"
            self.error(f"there is no command {value!r}{hint}")
        super()._check_value(action, value)


def _hint(word: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
