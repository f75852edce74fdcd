"""The picture of a program's output has what stays on the terminal, and needs nothing from elsewhere."""

import io

import pytest
from rich.console import Console
from rich.live import Live
from tools.pictures.terminal import last_screen, picture


@pytest.mark.parametrize("times", [1, 2, 5])
def test_only_the_last_drawing_stays(times: int) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, color_system=None)
    console.print("before")
    with Live(console=console, auto_refresh=False) as live:
        for number in range(times):
            live.update(f"one\ntwo {number}\nthree", refresh=True)
    console.print("after")
    assert last_screen(file.getvalue()).split() == ["before", "one", "two", str(times - 1), "three", "after"]


def test_what_is_not_redrawn_stays_as_it_is() -> None:
    assert last_screen("one\r\ntwo\r\n") == "one\ntwo\n"


def test_a_picture_has_the_text_and_no_address_of_a_font() -> None:
    drawn = picture("plain \x1b[32mdone\x1b[0m", "make demo", 40)
    assert all(f">{text}<" in drawn for text in ("make&#160;demo", "plain&#160;", "done")), drawn
    assert "url(http" not in drawn
