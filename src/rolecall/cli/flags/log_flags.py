"""Flags of the log. Their names begin with zap, the Go runner's logging library, because manifests use them."""

import argparse

from rolecall.cli.flags.flag import Flag, FlagGroup, ValueType
from rolecall.cli.flags.values import BOOLEAN, choice
from rolecall.logs import ENCODERS, LEVELS, TIME_ENCODINGS, LogSettings


def _level(text: str) -> str:
    """Return the name of a level; a number above 0 is how much more than info, of which debug is all there is."""
    if text.isdecimal() and int(text) > 0:
        return "debug"
    if text.lower() not in LEVELS:
        raise argparse.ArgumentTypeError(
            f"expected one of {', '.join(LEVELS)} or a whole number above 0, found {text!r}"
        )
    return text.lower()


LOGS = FlagGroup(
    "logs",
    (
        Flag("zap-devel", "development", BOOLEAN, "console form, level debug, stack traces from warnings on"),
        Flag(
            "zap-encoder",
            "encoder",
            choice(*ENCODERS),
            "json for machines, console for people; auto is console on a terminal, else json",
        ),
        Flag(
            "zap-log-level",
            "level",
            ValueType("LEVEL", _level, choices=(*LEVELS, "NUMBER")),
            "the least level that is logged; a number means debug",
        ),
        Flag(
            "zap-stacktrace-level",
            "stacktrace_level",
            choice(*LEVELS),
            "the least level whose exceptions are logged with a stack trace",
        ),
        Flag("zap-time-encoding", "time_encoding", choice(*TIME_ENCODINGS), "how times are written"),
    ),
    settings_type=LogSettings,
)
