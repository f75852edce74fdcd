"""Keys from a terminal: its mode, and the bytes that it sends as the names of keys.

In this mode the terminal sends each key at once and shows none of them; Ctrl-C and Ctrl-Z still are signals. What the
mode was before is restored whatever happens.
"""

import codecs
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

ESCAPE: Final = "\x1b"
_SEQUENCES: Final = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "1~": "home",
    "4~": "end",
    "5~": "page up",
    "6~": "page down",
    "7~": "home",
    "8~": "end",
}
_SINGLE: Final = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
}
_FINAL: Final = range(0x40, 0x7F)
"""What ends an escape sequence."""


@contextmanager
def key_mode(terminal: int) -> Iterator[list[Any]]:
    """Let a terminal send each key at once; yield its mode before, which it has again afterwards."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield before
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


@dataclass(slots=True)
class KeyDecoder:
    """Makes names of keys of bytes, which may come in any pieces."""

    _text: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    @property
    def is_waiting(self) -> bool:
        """Whether the bytes so far end in what may be Escape, or the start of another key."""
        return bool(self._text)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are complete."""
        self._text += self._decoder.decode(data)
        keys = []
        while self._text and (size := _size(self._text)):
            piece, self._text = self._text[:size], self._text[size:]
            keys.append(_name(piece))
        return [key for key in keys if key]

    def flush(self) -> list[str]:
        """Return the keys of what has been waiting for its end."""
        rest, self._text = self._text, ""
        return ["escape"] if rest == ESCAPE else []


def _size(text: str) -> int:
    """Return how many characters the first key has, 0 if its end is missing."""
    if not text.startswith(ESCAPE):
        return 1
    if text[1:2] not in ("[", "O"):
        return 1 if len(text) > 1 else 0
    return next((end + 1 for end in range(2, len(text)) if ord(text[end]) in _FINAL), 0)


def _name(piece: str) -> str:
    """Return the name of a key, empty if it has none here."""
    if piece == ESCAPE:
        return "escape"
    if piece.startswith(ESCAPE):
        return _SEQUENCES.get(piece[2:], "")
    return _SINGLE.get(piece, piece if piece.isprintable() else "")
