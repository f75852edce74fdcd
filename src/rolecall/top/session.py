"""``rolecall top`` on a terminal: reads the page every two seconds, draws it, and does what keys say.

Keys, answers and changes of the size of the terminal go through one queue, so that nothing is drawn while something
else changes. When the operator does not answer, what was seen last stays, with a line that says so, and it is tried
again.
"""

import asyncio
import os
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live

from rolecall.page.addresses import list_path
from rolecall.page.views import ListView, ObjectView, Query, RunView
from rolecall.page.words import ago
from rolecall.top.client import Access, GoneError, PageClient, PageError
from rolecall.top.frame import Facts, Size, View, around, body_of, frame
from rolecall.top.keys import KeyDecoder, key_mode
from rolecall.top.screen import Page, Screen, press

UPDATE_SECONDS: Final = 2.0
_ESCAPE_SECONDS: Final = 0.05
"""How long the rest of a key may take on its way: what comes later is another key."""

_VIEWS: Final[dict[Page, type[View]]] = {Page.OBJECTS: ListView, Page.OBJECT: ObjectView, Page.RUN: RunView}
_READ, _REDRAW, _SUSPEND, _END = "", "redraw the screen", "suspend", "end of input"


async def first_list(access: Access, query: Query) -> ListView:
    """Return a list, in which a kind is named by its ID, or by its kind if there is only one such. Raise PageError."""
    async with PageClient(access) as client:
        if query.kind:
            found = await client.read(list_path(Query()), ListView)
            query = Query(_kind(found, query.kind), query.namespace, query.state, query.text, query.sort)
        return await client.read(list_path(query), ListView)


def _kind(view: ListView, wanted: str) -> str:
    """Return the ID of a kind. Raise PageError."""
    ids = [each.id for each in view.kinds if wanted in (each.id, each.kind)]
    if len(ids) == 1:
        return ids[0]
    known = ", ".join(ids or [each.id for each in view.kinds]) or "nothing"
    if ids:
        raise PageError(f"--kind {wanted}: there are several, say which: {known}")
    raise PageError(f"--kind {wanted}: this operator does not watch such a kind; it watches {known}")


def show(access: Access, first: ListView) -> None:
    """Show the page until q is pressed; to be used with a terminal as standard input and output."""
    terminal = sys.stdin.fileno()
    console = Console(highlight=False, markup=False, emoji=False)
    with key_mode(terminal) as before, Live(console=console, screen=True, auto_refresh=False) as live:
        asyncio.run(_Session(access, Screen.of(first.query), live, _Terminal(terminal, before), first).run())


@dataclass(frozen=True, slots=True)
class _Terminal:
    number: int
    mode: list[Any]
    """Its mode outside of this program."""


@dataclass(slots=True)
class _Session:
    access: Access
    screen: Screen
    live: Live
    terminal: _Terminal
    first: ListView
    views: dict[str, View] = field(default_factory=dict)
    """The views of the places that are open, by their paths."""

    trouble: str = ""
    answered: float = field(default_factory=time.time)
    events: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    decoder: KeyDecoder = field(default_factory=KeyDecoder)
    pause: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Show the page until it is left."""
        self.views[self.screen.place.path] = self.first
        async with PageClient(self.access) as client, asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(client))
            try:
                with self._listening():
                    await self._work()
            finally:
                reading.cancel()

    async def _work(self) -> None:
        while not self.screen.has_ended:
            self._draw()
            event = await self.events.get()
            if event == _END:
                return
            if event == _SUSPEND:
                self._suspend()
            elif event not in (_READ, _REDRAW):
                self._press(event)

    def _press(self, key: str) -> None:
        facts, size, before = self._facts(), _size(), self.screen.place.path
        self.screen = press(self.screen, key, around(body_of(self.screen, facts, size), facts, size))
        if self.screen.place.path != before:
            self.trouble = ""
            open_now = {place.path for place in self.screen.places}
            self.views = {path: view for path, view in self.views.items() if path in open_now}
            self.moved.set()

    def _facts(self) -> Facts:
        view = self.views.get(self.screen.place.path)
        return Facts(self.access.url, view, self.trouble, time.time())

    def _draw(self) -> None:
        self.live.update(Group(*frame(self.screen, self._facts(), _size())), refresh=True)

    async def _read(self, client: PageClient) -> None:
        """Read what is seen every two seconds, and at once when that changes."""
        while True:
            self.moved.clear()
            place = self.screen.place
            if place.page is not Page.RUN or place.path not in self.views:  # what a run has done stays the same
                await self._read_place(client, place.path, _VIEWS[place.page])
                self.events.put_nowait(_READ)
            with suppress(TimeoutError):
                async with asyncio.timeout(UPDATE_SECONDS):  # wait_for of Python 3.11 can lose a cancellation
                    await self.moved.wait()

    async def _read_place(self, client: PageClient, path: str, expected: type[View]) -> None:
        try:
            view = await client.read(path, expected)
        except GoneError as error:
            if path == self.screen.place.path:
                self.trouble = str(error)
        except PageError as error:
            if path == self.screen.place.path:
                self.trouble = f"Last answer {ago(self.answered, time.time())}, trying again: {error}"
        else:
            self.answered = time.time()
            if path == self.screen.place.path:
                self.views[path], self.trouble = view, ""

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Put keys and signals into the queue."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.terminal.number, self._on_input)
        loop.add_signal_handler(signal.SIGWINCH, self.events.put_nowait, _REDRAW)
        loop.add_signal_handler(signal.SIGTSTP, self.events.put_nowait, _SUSPEND)
        try:
            yield
        finally:
            loop.remove_reader(self.terminal.number)
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_signal_handler(signal.SIGTSTP)

    def _on_input(self) -> None:
        data = _input(self.terminal.number)
        if self.pause is not None:
            self.pause.cancel()
        self._take(self.decoder.feed(data) if data else [_END])
        if self.decoder.is_waiting:
            self.pause = asyncio.get_running_loop().call_later(_ESCAPE_SECONDS, self._on_pause)

    def _on_pause(self) -> None:
        self._take(self.decoder.flush())

    def _take(self, keys: list[str]) -> None:
        for key in keys:
            self.events.put_nowait(key)

    def _suspend(self) -> None:
        """Stop as Ctrl-Z asks for, with the terminal as it was, and go on when the shell says so."""
        self.live.stop()
        termios.tcsetattr(self.terminal.number, termios.TCSANOW, self.terminal.mode)
        os.kill(os.getpid(), signal.SIGSTOP)
        tty.setcbreak(self.terminal.number)
        self.live.start()


def _input(terminal: int) -> bytes:
    """Return what was typed, nothing if the terminal is gone."""
    try:
        return os.read(terminal, 1024)
    except OSError:
        return b""


def _size() -> Size:
    found = shutil.get_terminal_size()
    return Size(found.columns, found.lines)
