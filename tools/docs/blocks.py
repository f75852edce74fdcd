"""Blocks in a page that are written from the code; everything around them is written by hand.

A block begins with the comment ``<!-- generated: NAME -->`` and ends with ``<!-- end of generated -->``, each on a line
of its own. Its name says what belongs into it.
"""

import re
from collections.abc import Callable, Iterator

_BEGIN = re.compile(r"<!-- generated: (.+) -->")
_END = "<!-- end of generated -->"
_HINT = "it begins with '<!-- generated: NAME -->' and ends with '<!-- end of generated -->'"

Maker = Callable[[str], str]
"""From the name of a block to its text. Raises LookupError for a name that it does not know."""


class BlockError(Exception):
    """A page has a block that cannot be written: line, and what is wrong with it."""


def filled(page: str, make: Maker) -> str:
    """Return the page with every block written anew. Raises BlockError."""
    written: list[str] = []
    name = ""
    for number, line in enumerate(page.splitlines(), 1):
        found = _BEGIN.fullmatch(line)
        if (found and name) or (line == _END and not name):
            raise BlockError(f"line {number}: {line!r} is not where a block can begin or end; {_HINT}")
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
    """Return the names of the blocks of a page, in their order."""
    return [found[1] for line in page.splitlines() if (found := _BEGIN.fullmatch(line))]


def _lines(name: str, number: int, make: Maker) -> Iterator[str]:
    try:
        yield from make(name).strip().splitlines()
    except LookupError as error:
        raise BlockError(f"line {number}: nothing is known of the block {name!r}: {error}") from error
