"""``rolecall top`` as a process, in a pseudo-terminal and without one."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from aiohttp.test_utils import BaseTestServer, TestServer

from rolecall.page.server import page_application
from rolecall.top.keys import key_mode
from tests.integration.things import THING
from tests.unit.page.conftest import OPEN, Shown
from tests.unit.record.records import CONFIG_MAPS, config_map, exchange

HOSTILE = "one\x1b]0;owned\x07"
PATIENCE = 60.0
ALTERNATE, USUAL = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
async def server(shown: Shown) -> AsyncIterator[BaseTestServer]:
    record = shown.add_run(
        shown.bench.tell(THING), exchange("POST", CONFIG_MAPS, config_map("a"), config_map("a"), 201)
    )
    record.causes = (HOSTILE,)
    shown.recorder.history.add(record)  # type: ignore[union-attr] # there is one
    shown.bench.tell(THING, name="two")
    async with TestServer(page_application(shown.sources, OPEN)) as server:
        yield server


def command(server: BaseTestServer, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "rolecall", "top", "--url", str(server.make_url("")), *arguments]


@dataclass(slots=True)
class Terminal:
    """A terminal that somebody looks at."""

    number: int
    process: asyncio.subprocess.Process
    seen: str = ""
    _drawn: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self) -> None:
        """Read from now on what is drawn, as it comes."""
        asyncio.get_running_loop().add_reader(self.number, self._read)

    def press(self, keys: str) -> None:
        """Send keys, and forget what was seen before."""
        self.seen = ""
        os.write(self.number, keys.encode())

    async def sees(self, text: str) -> None:
        """Wait until a text has been drawn."""
        try:
            async with asyncio.timeout(PATIENCE):
                while text not in self.seen:
                    self._drawn.clear()
                    await self._drawn.wait()
        except TimeoutError:
            pytest.fail(repr(self.seen[-3000:]))

    async def ends(self) -> int:
        """Wait for the end of the program, and return its exit code."""
        code = await asyncio.wait_for(self.process.wait(), PATIENCE)
        self._read()
        return code

    async def is_stopped(self) -> None:
        """Wait until the program has been stopped by a signal."""
        look = partial(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        await asyncio.wait_for(asyncio.to_thread(look), PATIENCE)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self.seen += os.read(self.number, 65536).decode(errors="replace")
                self._drawn.set()


@contextmanager
def pseudo_terminal(columns: int = 80) -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    resize(theirs, columns)
    os.set_blocking(ours, False)
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


@dataclass(slots=True)
class Shell:
    """A pseudo-terminal in which programs can be started."""

    ours: int
    theirs: int

    async def start(self, words: list[str], **variables: str) -> Terminal:
        """Start a program in the foreground of the terminal."""
        usual = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            env=usual | {"TERM": "xterm-256color"} | variables,
        )
        terminal = Terminal(self.ours, process)
        terminal.watch()
        return terminal

    @property
    def mode(self) -> list[Any]:
        """The mode of the terminal."""
        return termios.tcgetattr(self.theirs)


@pytest.fixture(autouse=True)
def interruptions() -> Iterator[None]:
    """Let what a test starts be interrupted: a background job of a shell ignores SIGINT, and so would its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def shell() -> Iterator[Shell]:
    with pseudo_terminal() as (ours, theirs):
        yield Shell(ours, theirs)


async def test_keys_lead_from_the_list_to_a_waterfall_and_back(shell: Shell, server: BaseTestServer) -> None:
    mode = shell.mode
    terminal = await shell.start(command(server))
    await terminal.sees("default/two")
    assert ALTERNATE in terminal.seen
    assert "\x1b]0;owned" not in terminal.seen
    terminal.press("\r")
    await terminal.sees("What wakes it")
    terminal.press("\r")
    await terminal.sees("Tasks and their requests")
    await terminal.sees("━")
    terminal.press("\x1b")
    await terminal.sees("What wakes it")
    terminal.press("q")
    await terminal.sees("default/two")
    terminal.press("w")
    await terminal.sees("Tasks and their requests")
    terminal.press("qq")
    assert await terminal.ends() == 0
    assert USUAL in terminal.seen
    assert shell.mode == mode


async def test_a_change_is_drawn_without_a_key(shell: Shell, server: BaseTestServer, shown: Shown) -> None:
    terminal = await shell.start(command(server))
    await terminal.sees("default/two")
    shown.bench.tell(THING, name="three")
    await terminal.sees("default/three")
    resize(shell.theirs, 120)
    os.kill(terminal.process.pid, signal.SIGWINCH)
    terminal.press("/thr\r")
    await terminal.sees("with “thr”")
    terminal.press("q")
    assert await terminal.ends() == 0


async def test_an_operator_that_goes_away_is_said_so_and_what_was_seen_stays(
    shell: Shell, server: BaseTestServer
) -> None:
    terminal = await shell.start(command(server))
    await terminal.sees("default/two")
    await server.close()
    terminal.seen = ""
    await terminal.sees("trying again: nothing answers")
    await terminal.sees("default/two")
    terminal.press("q")
    assert await terminal.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_signal_leaves_the_terminal_as_it_was(
    shell: Shell, server: BaseTestServer, number: signal.Signals
) -> None:
    mode = shell.mode
    terminal = await shell.start(command(server))
    await terminal.sees("default/two")
    assert shell.mode != mode
    terminal.process.send_signal(number)
    assert await terminal.ends() == 130
    assert USUAL in terminal.seen
    assert "Traceback" not in terminal.seen
    assert shell.mode == mode


async def test_it_can_be_stopped_and_goes_on(shell: Shell, server: BaseTestServer) -> None:
    mode = shell.mode
    terminal = await shell.start(command(server))
    await terminal.sees("default/two")
    terminal.process.send_signal(signal.SIGTSTP)
    await terminal.sees(USUAL)
    await terminal.is_stopped()
    assert shell.mode == mode
    terminal.seen = ""
    terminal.process.send_signal(signal.SIGCONT)
    await terminal.sees("default/two")
    assert shell.mode != mode
    terminal.press("q")
    assert await terminal.ends() == 0
    assert shell.mode == mode


async def test_without_colours_there_are_none(shell: Shell, server: BaseTestServer) -> None:
    terminal = await shell.start(command(server), NO_COLOR="1")
    await terminal.sees("default/two")
    assert "\x1b[33m" not in terminal.seen
    terminal.press("q")
    await terminal.ends()


async def test_colours_tell_states_apart(shell: Shell, server: BaseTestServer) -> None:
    terminal = await shell.start(command(server, "--once"))
    assert await terminal.ends() == 0
    assert "\x1b[33m" in terminal.seen
    assert ALTERNATE not in terminal.seen
    assert "default/two" in terminal.seen


async def test_without_a_terminal_the_list_is_printed_once(server: BaseTestServer) -> None:
    process = await asyncio.create_subprocess_exec(
        *command(server, "--search", "two"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    out, error = (part.decode() for part in await process.communicate())
    assert (process.returncode, error) == (0, "")
    assert "default/two" in out
    assert "default/one" not in out
    assert "\x1b" not in out


async def test_one_line_says_that_nothing_answers(server: BaseTestServer) -> None:
    await server.close()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rolecall", "top", "--url", "http://127.0.0.1:1", stderr=subprocess.PIPE
    )
    (line,) = (await process.communicate())[1].decode().splitlines()
    assert process.returncode == 1
    assert line.startswith("rolecall top: nothing answers at http://127.0.0.1:1 (")


def test_a_failure_leaves_the_terminal_as_it_was(shell: Shell) -> None:
    mode = shell.mode

    def fail() -> None:
        with key_mode(shell.theirs):
            assert shell.mode != mode
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert shell.mode == mode
