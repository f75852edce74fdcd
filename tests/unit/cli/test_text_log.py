"""The log for people: its lines, their width, and when they are written."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from rolecall.cli.text_log import TextLog

TEAM: dict[str, Any] = {"kind": "Team", "name": "checkout", "group": "example.com", "version": "v1", "job": "7"}
SITE = TEAM | {"kind": "Website", "namespace": "web-sample", "name": "example"}
VALIDATION = "Validating arguments against arg spec 'main' - Sets up a team."
PROGRAM = """
from rolecall.cli.run import Program, _configure_logs, {program}
from rolecall.system.logs import get_logger
program = {program}()
_configure_logs(program.logs, program)
get_logger("run").info("Task ended", kind="Team", name="checkout", task="Limit it", result="changed", duration="95ms")
"""


def lines(event: str, width: int = 80, log: TextLog | None = None, **fields: Any) -> list[str]:
    """Return the lines of an event, each without its time."""
    text = (log or TextLog(width=lambda: width))(None, "info", {"event": event, "level": "info", **fields})
    first, *others = text.splitlines()
    assert re.match(r"\d\d:\d\d:\d\d ", first)
    return [first[9:], *others]


@pytest.mark.parametrize(
    ("event", "fields", "line"),
    [
        ("Task ended", {"task": "Limit", "result": "ok", "duration": "95ms"}, "TASK Limit … ok 95ms"),
        ("Task ended", {"task": VALIDATION, "result": "ok", "duration": "1s"}, "TASK Validate the arguments … ok 1s"),
        ("Task message", {"task": "Say", "message": "hello"}, "MSG  Say  hello"),
        ("Reconcile started", {"causes": ["Team checkout created"]}, "RUN  created"),
        ("Reconcile started", {"causes": ["Team checkout: spec.cpu", "period"]}, "RUN  changed: spec.cpu and 1 more"),
        ("Reconcile started", {"causes": ["Pod a/b deleted"]}, "RUN  Pod a/b deleted"),
        ("Reconcile succeeded", {"duration": "2s", "requeue_after_seconds": 300.0}, "OK   in 2s, next run in 5m"),
        ("Reconcile succeeded", {"duration": "2s", "requeue_after_seconds": None}, "OK   in 2s"),
        ("Reconcile failed", {"error": "no quota"}, "FAILED  no quota"),
        ("Object was deleted", {}, "DELETED"),
        ("Write failed, retrying", {"error": "409"}, "Write failed, retrying  error=409"),
    ],
)
def test_events_of_an_object_are_one_line(event: str, fields: dict[str, Any], line: str) -> None:
    assert lines(event, **TEAM, **fields) == [f"Team/checkout  {line}"]


def test_other_events_keep_their_words_and_keys() -> None:
    assert lines("Watching resource", gvk="/v1, Kind=Pod", content=str(Path("roles/pods").resolve())) == [
        "Watching Pod (v1)  with roles/pods"
    ]
    assert lines("Ignoring", level="warning", found=["a", "b"]) == ["WARNING Ignoring  found=a, b"]


def test_namespace_is_shown_if_there_is_room() -> None:
    assert lines("Object was deleted", **SITE) == ["Website/web-sample/example  DELETED"]
    assert lines("Object was deleted", 60, **SITE) == ["Website/example  DELETED"]


def test_long_names_are_cut_and_the_result_stays() -> None:
    [line] = lines("Task ended", task="word " * 40, result="changed", duration="95ms", **SITE)
    assert line.endswith(" word word word… changed 95ms")


def test_reason_of_a_failure_is_whole_and_below() -> None:
    reason = "the quota of the namespace is exceeded " * 5
    first, *below = lines("Task failed", task="Limit it", reason=reason, level="error", path="p:1", **TEAM)
    assert first == "Team/checkout  TASK Limit it … failed"
    assert " ".join(each.strip() for each in below) == reason.strip()


def test_failure_that_was_explained_is_not_repeated() -> None:
    log = TextLog(width=lambda: 60)
    error = "Task 'Limit it': the quota of the namespace is exceeded"
    for _ in range(2):
        lines("Task failed", log=log, task="Limit it", reason="the quota of the namespace is exceeded", **TEAM)
        assert lines("Reconcile failed", log=log, error=error, **TEAM) == [
            "Team/checkout  FAILED Task 'Limit it': the quota o…"
        ]
    assert len(lines("Reconcile failed", log=log, error=error, **TEAM)) == 3


@pytest.mark.parametrize("width", [40, 80, 132])
@pytest.mark.parametrize(
    "event", ["Task ended", "Task failed", "Task message", "Reconcile started", "Reconcile failed", "Failed to connect"]
)
def test_no_line_is_longer_than_the_terminal(event: str, width: int) -> None:
    long = "a long text\nof several lines " * 20
    fields: dict[str, Any] = {
        "task": long.replace("\n", " "),
        "reason": long,
        "message": long,
        "error": long,
        "causes": ["x" * 300],
    }
    found = lines(event, width, result="ok", duration="1s", path="/" + "p" * 200, **fields, **SITE)
    assert max(map(len, (f"08:11:57 {found[0]}", *found[1:]))) <= width


def test_lines_in_a_file_are_never_cut() -> None:
    [line] = lines("Task ended", 0, task="word " * 400, result="ok", duration="1s", **TEAM)
    assert len(line) > 2000


def test_stack_trace_is_below() -> None:
    assert lines("Crashed", stacktrace="Traceback:\n  x")[1:] == ["Traceback:", "  x"]


def test_events_without_news_are_left_out_except_at_level_debug() -> None:
    event = {"event": "Recap", "level": "info", "stdout": "ok=1", **TEAM}
    with pytest.raises(structlog.DropEvent):
        TextLog()(None, "info", dict(event))
    assert "Recap" in TextLog(is_complete=True)(None, "info", dict(event))


def on_terminal(program: str, **variables: str) -> str:
    """Return what a program logs on a terminal."""
    master, slave = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environment |= {"TERM": "xterm", "COLUMNS": "80"} | variables
    command = [sys.executable, "-c", PROGRAM.format(program=program)]
    subprocess.run(command, stderr=slave, check=True, env=environment)
    os.close(slave)
    text = os.read(master, 65536).decode()
    os.close(master)
    return text


def test_rolecall_writes_colored_lines_for_people_on_a_terminal() -> None:
    text = on_terminal("rolecall_program")
    assert re.fullmatch(
        r"\x1b\[2m\d\d:\d\d:\d\d Team/checkout  \x1b\[0m\x1b\[33mTASK Limit it … changed 95ms\x1b\[0m\r\n", text
    )


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colors_can_be_switched_off(variables: dict[str, str]) -> None:
    text = on_terminal("rolecall_program", **variables)
    assert "\x1b" not in text
    assert text.rstrip().endswith("Team/checkout  TASK Limit it … changed 95ms")


def test_drop_in_logs_json_on_a_terminal() -> None:
    assert json.loads(on_terminal("ansible_operator_program"))["result"] == "changed"


def test_rolecall_logs_json_into_a_pipe() -> None:
    command = [sys.executable, "-c", PROGRAM.format(program="rolecall_program")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)["msg"] == "Task ended"
