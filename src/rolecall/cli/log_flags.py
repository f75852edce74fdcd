"""Flags for the log. Their names begin with zap, the Go runner's logging library, because manifests use them."""

import argparse

from rolecall.cli.flag import Flag, FlagGroup, ValueType
from rolecall.cli.flag_values import BOOLEAN, choice
from rolecall.system.logs import ENCODERS, LEVELS, TIME_ENCODINGS, LogSettings


def _level(text: str) -> str:
    """Return the name of a level. A number above 0 means a more verbose level than info; the only one is debug."""
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
        Flag(
            "zap-devel",
            "development",
            BOOLEAN,
            "use the console encoder, level debug, and stack traces from level warning",
        ),
        Flag(
            "zap-encoder",
            "encoder",
            choice(*ENCODERS),
            "the log format; auto means console on a terminal and json otherwise",
        ),
        Flag(
            "zap-log-level",
            "level",
            ValueType("LEVEL", _level, choices=(*LEVELS, "NUMBER")),
            "the lowest level that is logged; a number means debug",
        ),
        Flag(
            "zap-stacktrace-level",
            "stacktrace_level",
            choice(*LEVELS),
            "the lowest level at which exceptions are logged with a stack trace",
        ),
        Flag("zap-time-encoding", "time_encoding", choice(*TIME_ENCODINGS), "the format of times in the log"),
    ),
    settings_type=LogSettings,
)
