import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import pytest

from rolecall.system.logs import LogSettings, encoded_time

PROGRAM = """
import logging, structlog
from rolecall.system.logs import LogSettings, get_logger, configure
early = get_logger("early")
configure(LogSettings({settings}))
structlog.contextvars.bind_contextvars(kind="Foo", job="7")
early.debug("Detail")
early.info("Watch restarted", reason=ValueError("x"))
logging.getLogger("library").warning("Slow %s", "answer")
logging.getLogger("library").info("Chatter")
try:
    secret = "s3cret"
    1 / 0
except ZeroDivisionError:
    early.exception("Crashed")
"""


def lines(**settings: Any) -> list[str]:
    """Return the lines of a program that logs, which runs once for the same settings."""
    return _lines(replace(LogSettings(encoder="json"), **settings))


@cache
def _lines(settings: LogSettings) -> list[str]:
    program = PROGRAM.format(settings=f"**{asdict(settings)}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_line_is_json_with_message_keys_and_context() -> None:
    restarted, slow, crashed = map(json.loads, lines())
    assert (restarted["msg"], restarted["level"], restarted["logger"]) == ("Watch restarted", "info", "early")
    assert (restarted["kind"], restarted["job"], restarted["reason"]) == ("Foo", "7", "x")
    assert restarted["ts"].endswith("Z")
    assert (slow["msg"], slow["level"], slow["job"], slow["logger"]) == ("Slow answer", "warning", "7", "library")
    assert crashed["error"] == "ZeroDivisionError: division by zero"
    assert crashed["stacktrace"].startswith("Traceback (most recent call last):")


def test_lines_without_terminal_are_json() -> None:
    assert json.loads(lines(encoder="auto")[0])["msg"] == "Watch restarted"


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1), ("panic", 0)])
def test_lowest_level_is_warning_for_libraries(level: str, count: int) -> None:
    assert len(lines(level=level)) == count


def test_console_has_no_colors_without_terminal() -> None:
    text = "\n".join(lines(encoder="console"))
    assert "Watch restarted" in text
    assert "\x1b[" not in text


@pytest.mark.parametrize("encoder", ["json", "console"])
def test_values_of_local_variables_are_never_logged(encoder: str) -> None:
    text = "\n".join(lines(encoder=encoder))
    assert "ZeroDivisionError" in text
    assert "s3cret" not in text


def test_exception_below_stacktrace_level_has_no_stacktrace() -> None:
    crashed = json.loads(lines(stacktrace_level="panic")[-1])
    assert crashed["error"] == "ZeroDivisionError: division by zero"
    assert "stacktrace" not in crashed


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("epoch", 1700000000.123456789),
        ("millis", 1700000000123.456789),
        ("nano", 1700000000123456789),
        ("nanos", 1700000000123456789),
        ("iso8601", "2023-11-14T22:13:20.123Z"),
        ("rfc3339", "2023-11-14T22:13:20Z"),
        ("rfc3339nano", "2023-11-14T22:13:20.123456789Z"),
    ],
)
def test_time_has_requested_encoding(encoding: str, shown: object) -> None:
    assert encoded_time(1700000000123456789, encoding) == shown


def test_time_of_line_is_current() -> None:
    before = time.time()
    assert before <= json.loads(lines(time_encoding="epoch")[0])["ts"] <= time.time()


def test_lines_are_searchable_as_text() -> None:
    line = lines()[0]
    assert line.startswith('{"level":"info","ts":"')
    assert '","logger":"early","msg":"Watch restarted","reason":"x",' in line
    assert line.endswith(('"kind":"Foo","job":"7"}', '"job":"7","kind":"Foo"}'))


def test_control_characters_are_escaped_on_the_console() -> None:
    """Authors of objects and roles choose some values, and others read the log."""
    program = (
        "from rolecall.system.logs import *; configure(LogSettings(encoder='console'));"
        "get_logger('run').error('Task failed', task='a\\x1b]0;b\\x07\\rc\\u202ed', items=['\\x1b[2J'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Task failed" in done.stderr
    assert [each for each in done.stderr if not each.isprintable() and each not in "\n\t"] == []
