"""A page as lines, of which some can be chosen, and what lines are made of.

No line is wider than its page, counted in the cells of a terminal: what does not fit ends with an ellipsis, and texts
that matter as a whole go on in the next line. Texts are never markup.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, chop_cells
from rich.text import Text

from rolecall.page.views import State, WaitView
from rolecall.page.words import SHAPES, until
from rolecall.top.screen import Choice

WIDEST: Final = 400
"""How wide a column can be, however wide the page is."""

GAP: Final = 2
STYLES: Final = {
    "running": "cyan",
    "failed": "red",
    "unreachable": "red",
    "deleting": "magenta",
    "paused": "yellow",
    "pending": "yellow",
    "ignored": "yellow",
    "changed": "yellow",
    "succeeded": "green",
    "ok": "green",
    "skipped": "dim",
}
_SIGNS: Final = {
    "succeeded": "✓",
    "ok": "✓",
    "changed": "●",
    "failed": "✕",
    "unreachable": "✕",
    "ignored": "!",
    "skipped": "-",
}
HEAD: Final = "bold"
MINOR: Final = "dim"
Cell = tuple[str, str]
"""A text and its style."""


@dataclass(frozen=True, slots=True)
class Body:
    """A page: lines that stay where they are, lines below them that scroll, and which of these can be chosen.

    ``is_text`` means that a choice is the first line that is seen, instead of one that is marked.
    """

    head: tuple[Text, ...]
    lines: tuple[Text, ...]
    choices: tuple[Choice, ...] = ()
    is_text: bool = False


def state_cell(state: State) -> Cell:
    """Return a state as a shape and a word."""
    return f"{SHAPES[state]} {state}", STYLES.get(state, "")


def outcome_cell(outcome: str) -> Cell:
    """Return the result of a run or a task as a sign and a word."""
    return f"{_SIGNS.get(outcome, '○')} {outcome or 'did not end'}", STYLES.get(outcome, "")


def wait_text(wait: WaitView, now: float) -> str:
    """Return what an object waits for, until when, and why."""
    when = f", {until(wait.until, now)}" if wait.until is not None else ""
    return f"{wait.text}{when}" + (f" ({because(wait.because)})" if wait.because else "")


def because(causes: Sequence[str]) -> str:
    """Return causes in one line."""
    more = f" and {len(causes) - 2} more" if len(causes) > 2 else ""  # noqa: PLR2004 - as many as the page shows
    return "; ".join(causes[:2]) + more


def line(width: int, *cells: Cell) -> Text:
    """Return texts one after the other in one line, as far as they fit."""
    text = Text(no_wrap=True)
    for content, style in cells:
        text.append(_one_line(content), style)
    text.truncate(width, overflow="ellipsis")
    return text


def wrapped(width: int, content: str, style: str = "", indent: int = 0) -> Iterator[Text]:
    """Yield a text in as many lines as it takes."""
    room = max(1, width - indent)
    for part in content.split("\n"):
        for piece in chop_cells(part, room) or [""]:
            yield line(width, (" " * indent + piece, style))


def aligned(rows: Iterable[Sequence[Cell]], width: int, least: Sequence[int] = ()) -> list[Text]:
    """Return rows of a table, whose columns are as wide as their texts, or narrower so that the rows fit.

    Columns get narrower than what is given as ``least`` only when that is not enough.
    """
    cells = [[(_one_line(content)[:WIDEST], style) for content, style in row] for row in rows]
    widths = [max(map(_cells_of, column)) for column in zip(*cells, strict=True)]
    room = max(width - GAP * (len(widths) - 1), len(widths))
    widths = _fitted(_fitted(widths, room, least or [1] * len(widths)), room, [1] * len(widths))
    return [_row(row, widths, width) for row in cells]


def _cells_of(cell: Cell) -> int:
    return cell_len(cell[0])


def _row(row: Sequence[Cell], widths: Sequence[int], width: int) -> Text:
    text = Text(no_wrap=True)
    for (content, style), room in zip(row, widths, strict=True):
        cell = Text(content, style)
        cell.truncate(room, overflow="ellipsis", pad=True)
        text.append_text(cell)
        text.append(" " * GAP)
    text.rstrip()
    text.truncate(width)
    return text


def _fitted(widths: Sequence[int], room: int, least: Sequence[int]) -> list[int]:
    """Make the widest columns narrower until all of them fit, or each is as narrow as it may be."""
    fitted = list(widths)
    while sum(fitted) > room:
        free = [number for number, width in enumerate(fitted) if width > least[number]]
        if not free:
            break
        fitted[max(free, key=fitted.__getitem__)] -= 1
    return fitted


def _one_line(content: str) -> str:
    return content.replace("\n", " ")
