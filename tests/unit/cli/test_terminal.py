"""Messages of commands that run roles, in addition to their output.

SIGTERM and SIGHUP end a command as Ctrl-C does, whatever it is doing just then.
"""

import contextlib
import io
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.cli.terminal import print_lines

PROGRAM = """
from rolecall.cli.terminal import configure_quiet_logs
from rolecall.system.logs import get_logger
configure_quiet_logs()
for name in ("run", "reconciler", "proxy"):
    get_logger(name).error(f"Said by {name}")
    get_logger(name).info("Detail")
"""


def test_a_failed_run_is_a_result_and_not_logged_beside_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "Said by proxy" in line


SCRIPT = """
import asyncio, os, signal
from rolecall.cli.terminal import interrupted_by_signals

signal.signal(signal.SIGINT, signal.default_int_handler)

async def beside():
    os.kill(os.getpid(), {number})
    print("beside goes on", flush=True)

async def main():
    task = asyncio.create_task(beside())
    try:
        await asyncio.sleep(60)
    finally:
        print("main is ended", flush=True)

try:
    with interrupted_by_signals():
        asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_main_task_and_not_the_one_that_runs(number: signal.Signals) -> None:
    script = SCRIPT.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.splitlines(), done.stderr) == (["beside goes on", "main is ended", "interrupted"], "")


def test_without_a_loop_it_is_raised_at_once() -> None:
    script = f"""
import os
from rolecall.cli.terminal import interrupted_by_signals
try:
    with interrupted_by_signals():
        os.kill(os.getpid(), {int(signal.SIGTERM)})
        print("not reached")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_during_a_finalizer_interrupts_too(number: signal.Signals) -> None:
    """The interpreter ignores the first KeyboardInterrupt, because no frame could catch it."""
    script = f"""
import os, signal, time, weakref
from rolecall.cli.terminal import interrupted_by_signals
signal.signal(signal.SIGINT, signal.default_int_handler)
class Pool:
    pass
def close():
    os.kill(os.getpid(), {int(number)})
    print("not reached")
try:
    with interrupted_by_signals():
        pool = Pool()
        weakref.finalize(pool, close)
        del pool
        time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


@dataclass(frozen=True)
class Line:
    """A line without a style."""

    text: str
    style: str = ""


@given(st.text())
def test_printed_line_has_no_control_characters(text: str) -> None:
    """Plans, replays, and crash tests print names and values that other authors chose."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        print_lines([Line(text)])
    assert [each for each in printed.getvalue() if not each.isprintable() and each not in "\n\t"] == []
