import os
import subprocess
import sys

import pytest

from rolecall.runner.runs.run_processes import RUN_VARIABLE, RUNNER_MODULE
from rolecall.runner.warm.forked_child import SLOT_VALUE, SLOT_VARIABLE, TITLE_ROOM, ProcessTitles

PROGRAM = """
import os, sys
from pathlib import Path
from rolecall.runner.warm.forked_child import ProcessTitles
titles = ProcessTitles.find()
titles.mark(sys.argv[1])
titles.rename(*sys.argv[2].split())
print(Path("/proc/self/environ").read_bytes())
print(Path("/proc/self/cmdline").read_bytes())
"""


def run(ident: str, title: str, room: str = TITLE_ROOM) -> tuple[bytes, bytes]:
    """Return environment and command line of a process that has named itself."""
    environment = {"PATH": os.environ["PATH"], SLOT_VARIABLE: SLOT_VALUE, "AFTER": "stays"}
    program = [sys.executable, "-c", PROGRAM, ident, title, room]
    printed = subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout
    first, second = (eval(line) for line in printed.splitlines())  # noqa: S307 - two literals of our own
    return first, second


def test_a_process_carries_the_mark_where_others_look_for_it() -> None:
    environment, _ = run("123", "title")
    assert f"{RUN_VARIABLE}=123".encode() in environment.split(b"\0")
    assert SLOT_VARIABLE.encode() not in environment
    assert b"AFTER=stays" in environment


def test_a_process_shows_the_words_of_its_title() -> None:
    _, command = run("1", f"python -m {RUNNER_MODULE}")
    assert command.rstrip(b"\0").split(b"\0") == [b"python", b"-m", RUNNER_MODULE.encode()]


def test_a_title_without_room_is_cut_and_spares_the_environment() -> None:
    environment, command = run("1", "x" * 5000, room="")
    assert set(command.rstrip(b"\0")) == {ord("x")}
    assert b"AFTER=stays" in environment


def test_a_process_without_the_slot_cannot_be_marked() -> None:
    with pytest.raises(OSError, match=SLOT_VARIABLE):
        ProcessTitles.find()


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 64"):
        ProcessTitles(0, 0, 0).mark("x" * 80)
