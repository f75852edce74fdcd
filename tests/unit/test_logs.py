import json
import subprocess
import sys

import pytest

PROGRAM = """
import logging, structlog
from rolecall.logs import get_logger, set_up
early = get_logger("early")
set_up({level!r}, {form!r})
structlog.contextvars.bind_contextvars(kind="Foo", job="7")
early.debug("Detail")
early.info("Watch restarted", reason=ValueError("x"))
logging.getLogger("library").warning("Slow %s", "answer")
logging.getLogger("library").info("Chatter")
try:
    1 / 0
except ZeroDivisionError:
    early.exception("Crashed")
"""


def lines(level: str = "info", form: str = "json") -> list[str]:
    """Run a program that logs, and return its lines."""
    program = PROGRAM.format(level=level, form=form)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_each_line_is_json_with_message_keys_and_context() -> None:
    restarted, slow, crashed = map(json.loads, lines())
    assert (restarted["msg"], restarted["level"], restarted["logger"]) == ("Watch restarted", "info", "early")
    assert (restarted["kind"], restarted["job"], restarted["reason"]) == ("Foo", "7", "x")
    assert restarted["ts"].endswith("Z")
    assert (slow["msg"], slow["level"], slow["job"]) == ("Slow answer", "warning", "7")
    assert crashed["exception"][0]["exc_type"] == "ZeroDivisionError"


def test_without_a_terminal_lines_are_json() -> None:
    assert json.loads(lines(form="auto")[0])["msg"] == "Watch restarted"


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_a_level_is_the_least_that_is_logged_and_libraries_stay_at_warnings(level: str, count: int) -> None:
    assert len(lines(level)) == count


def test_for_people_there_are_no_colours_without_a_terminal() -> None:
    text = "\n".join(lines(form="console"))
    assert "Watch restarted" in text
    assert "\x1b[" not in text
