"""How commands that take a while show their progress on standard error, and lines with colours on a terminal."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol


class StyledLine(Protocol):
    """A line and its style, as rich names it."""

    @property
    def text(self) -> str:
        """What is printed."""

    @property
    def style(self) -> str:
        """How, on a terminal."""


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield what shows progress: a line that changes on a terminal, otherwise a line for each message."""
    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr)  # noqa: T201
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status("Starting") as status:
        yield status.update


def print_lines(lines: Iterable[StyledLine]) -> None:
    """Print lines to standard output, with their styles if that is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        sys.stdout.writelines(f"{line.text}\n" for line in lines)
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    for line in lines:
        console.print(Text(line.text, line.style), soft_wrap=True)
