"""The table of the demo, with one row for each object: live on a terminal, otherwise a line for each change."""

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

_DONE, _WAITING = "done", "…"


@dataclass(frozen=True, slots=True)
class Row:
    """The columns of one object."""

    kind: str
    name: str
    condition: str
    values: str
    took: str
    is_done: bool


class StatusTable:
    """Show rows as they change. Use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._shown: dict[tuple[str, str], Row] = {}

    def __enter__(self) -> Self:
        """Start the live table."""
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the live table; its last state stays on the terminal."""
        if self._live:
            self._live.stop()

    def show(self, rows: Iterable[Row]) -> None:
        """Show the current rows."""
        rows = list(rows)
        if self._live:
            self._live.update(_table(rows), refresh=True)
            return
        for row in rows:
            if self._shown.get((row.kind, row.name)) != row:
                self._shown[(row.kind, row.name)] = row
                self._console.print(_line(row), soft_wrap=True, highlight=False, markup=False)

    def close(self) -> None:
        """Print the final table if there is no live one."""
        if not self._live and self._shown:
            self._console.print(_table(self._shown.values()))


def _table(rows: Iterable[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("KIND", "OBJECT", "CONDITION", "STATUS", "LAST RUN", ""):
        # You need names in full to use them; only the status may take several lines.
        table.add_column(title, no_wrap=title != "STATUS", overflow="fold")
    for row in rows:
        mark = f"[green]{_DONE}[/green]" if row.is_done else _WAITING
        table.add_row(*map(escape, (row.kind, row.name, row.condition, row.values, row.took)), mark)
    return table


def _line(row: Row) -> str:
    mark = _DONE if row.is_done else _WAITING
    return f"{row.kind:<11} {row.name:<40} {row.condition:<11} {row.values}  {row.took:>7}  {mark}"
