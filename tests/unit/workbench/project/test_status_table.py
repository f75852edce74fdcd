import io
from dataclasses import replace

import pytest
from rich.console import Console

from rolecall.workbench.project.demo import Row, StatusTable

ROW = Row("Foo", "default/one", "Running", "replicas=[1]", "350ms", is_done=False)
DONE = replace(ROW, condition="Successful", is_done=True)


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


def status_table(output: io.StringIO, *, terminal: bool = False) -> StatusTable:
    """Return a table that writes to memory."""
    return StatusTable(Console(file=output, force_terminal=terminal, width=120))


def test_without_a_terminal_each_change_is_a_line(output: io.StringIO) -> None:
    with status_table(output) as shown:
        shown.show([ROW])
        shown.show([ROW])
        shown.show([DONE])
    lines = output.getvalue().splitlines()
    assert [line.split() for line in lines] == [
        ["Foo", "default/one", "Running", "replicas=[1]", "350ms", "…"],
        ["Foo", "default/one", "Successful", "replicas=[1]", "350ms", "done"],
    ]


def test_without_a_terminal_the_table_comes_at_the_end(output: io.StringIO) -> None:
    shown = status_table(output)
    with shown:
        shown.show([ROW, replace(ROW, name="default/two")])
    before = len(output.getvalue())
    shown.close()
    table = output.getvalue()[before:]
    assert table.split()[:6] == ["KIND", "OBJECT", "CONDITION", "STATUS", "LAST", "RUN"]
    assert "default/one" in table
    assert "default/two" in table


def test_nothing_shown_is_no_table(output: io.StringIO) -> None:
    shown = status_table(output)
    with shown:
        pass
    shown.close()
    assert output.getvalue() == ""


def test_on_a_terminal_the_table_is_live_and_stays(output: io.StringIO) -> None:
    shown = status_table(output, terminal=True)
    with shown:
        shown.show([ROW])
        shown.show([DONE])
    before = output.getvalue()
    shown.close()
    assert "Successful" in before
    assert output.getvalue() == before


def test_values_with_brackets_are_shown_as_they_are(output: io.StringIO) -> None:
    shown = status_table(output)
    with shown:
        shown.show([replace(ROW, values="selector=[red]x[/red]")])
    shown.close()
    assert output.getvalue().count("selector=[red]x[/red]") == 2
