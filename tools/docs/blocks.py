"""The generated blocks in a page; everything outside them is written by hand.

A block starts with the comment ``<!-- generated: NAME -->`` and ends with ``<!-- end of generated -->``, each on its
own line. The name determines the content.
"""

import re
from collections.abc import Callable, Iterator

_BEGIN = re.compile(r"<!-- generated: (.+) -->")
_END = "<!-- end of generated -->"
_HINT = "it begins with '<!-- generated: NAME -->' and ends with '<!-- end of generated -->'"

Maker = Callable[[str], str]
"""Returns the text of a block for its name; raises LookupError for an unknown name."""


class BlockError(Exception):
    """A page has an invalid block; the message has the line and the reason."""


def fill_blocks(page: str, make: Maker) -> str:
    """Return the page with updated blocks. Raise BlockError."""
    written: list[str] = []
    name = ""
    for number, line in enumerate(page.splitlines(), 1):
        found = _BEGIN.fullmatch(line)
        if (found and name) or (line == _END and not name):
            raise BlockError(f"line {number}: unexpected {line!r}; {_HINT}")
        if found:
            name = found[1]
            written += [line, "", *_lines(name, number, make), ""]
        elif line == _END:
            name = ""
        if not (name or found):
            written.append(line)
    if name:
        raise BlockError(f"the block {name!r} has no end; {_HINT}")
    return "\n".join(written) + "\n"


def names(page: str) -> list[str]:
    """Return the names of the blocks of a page, in order."""
    return [found[1] for line in page.splitlines() if (found := _BEGIN.fullmatch(line))]


def _lines(name: str, number: int, make: Maker) -> Iterator[str]:
    try:
        yield from make(name).strip().splitlines()
    except LookupError as error:
        raise BlockError(f"line {number}: unknown block {name!r}: {error}") from error
