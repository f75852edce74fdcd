"""What --help says is complete, and reads alike everywhere."""

import argparse
import re

import pytest
from tools.docs.commands import arguments_of, parsers

COMMANDS = parsers()


@pytest.mark.parametrize("parser", COMMANDS.values(), ids=COMMANDS)
def test_every_argument_says_what_it_means_in_the_form_of_the_others(parser: argparse.ArgumentParser) -> None:
    meanings = {argument.spellings[-1]: argument.meaning for argument in arguments_of(parser)}
    wrong = {
        name: text
        for name, text in meanings.items()
        if not re.fullmatch(r"[a-z0-9].*[^.\s]", text) or "default:" in text
    }
    assert wrong == {}


@pytest.mark.parametrize("parser", COMMANDS.values(), ids=COMMANDS)
def test_every_command_says_what_it_does_in_sentences(parser: argparse.ArgumentParser) -> None:
    assert re.fullmatch(r"[A-Z].*\.", parser.description or "", re.DOTALL)


@pytest.mark.parametrize("parser", COMMANDS.values(), ids=COMMANDS)
def test_every_default_is_told(parser: argparse.ArgumentParser) -> None:
    silent = [
        action.option_strings[-1]
        for action in parser._actions
        if action.option_strings
        and action.default not in (None, False, argparse.SUPPRESS)
        and "default: " not in (action.help or "")
    ]
    assert silent == []
