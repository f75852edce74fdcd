"""The output of --help is complete and consistent."""

import argparse

import pytest
from tools.docs.commands import parsers

COMMANDS = parsers()


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
