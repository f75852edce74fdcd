"""Converts plain text to Markdown: tables, code spans, links."""

import re
import textwrap
from collections.abc import Iterable, Sequence

_CODE = re.compile(
    r"(?<![\w`-])("
    r"--[a-z][a-z0-9-]*(?:=[a-z]+)?|-v"  # flags
    r"|\$?[A-Z][A-Z0-9]*_[A-Z0-9_]+|\$[A-Z]+"  # variables of the environment
    r"|~?[a-z0-9.]*/[a-z0-9./-]+|[a-z]+\.yaml"  # paths
    r"|[a-z]+(?:[A-Z][a-z]+)+|[a-z]+(?:_[a-z]+)+"  # keys, labels
    r"|:[0-9]+|[0-9]+(?:ms|s|m|h)"  # addresses, durations
    r")(?![\w`])"
)
WIDTH = 120


def code(text: str) -> str:
    """Return a code span."""
    return f"`{text}`"


def marked(text: str) -> str:
    """Return a help text with flags, variables, paths, keys and addresses as code."""
    return _CODE.sub(r"`\1`", text)


def linked(text: str, words: str, target: str) -> str:
    """Return the text with these words as a link. Raise ValueError if the text does not contain them."""
    if words not in text:
        raise ValueError(f"cannot link {words!r} to {target}: not found in {text!r}")
    return text.replace(words, f"[{words}]({target})", 1)


def paragraph(text: str) -> str:
    """Return a text wrapped to the width of a page."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; bars within a cell are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |".replace("  ", " ") for line in cells)
