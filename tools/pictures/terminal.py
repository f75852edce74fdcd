"""The last screen of a program that redraws a table in a terminal, and an image of it."""

import io
import re
from typing import Final

from rich.console import Console
from rich.text import Text

_REDRAWN: Final = re.compile(r"\r?(?:\x1b\[2K)?(?:\x1b\[1A\x1b\[2K)+")
"""The output of rich's Live before each redraw: it moves the cursor up line by line, and erases each line."""
_CURSOR: Final = re.compile(r"\x1b\[\?25[hl]")
_WEB_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def last_screen(printed: str) -> str:
    """Return the remaining lines: those before the first drawing, the last drawing, and those after it."""
    text = _CURSOR.sub("", printed).replace("\r\n", "\n")
    redrawn = list(_REDRAWN.finditer(text))
    if not redrawn:
        return text
    height = redrawn[0].group().count("\x1b[1A")  # the height of the first drawing above the cursor
    before = text[: redrawn[0].start()].split("\n")[: -height - 1]
    return "\n".join([*before, text[redrawn[-1].end() :]])


def picture(text: str, title: str, width: int) -> str:
    """Return an SVG of a terminal with colored text, without web fonts."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text), soft_wrap=False, no_wrap=True, overflow="crop")
    return _WEB_FONTS.sub("", console.export_svg(title=title, unique_id="demo"))
