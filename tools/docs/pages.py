"""The pages with blocks that are written from the code, as they are to be."""

from pathlib import Path

from tools.docs.blocks import BlockError, Maker, filled
from tools.docs.commands import command_block, defaults_block
from tools.docs.metrics import metrics_block
from tools.docs.watch_keys import keys_block

ROOT = Path(__file__).parents[2]
_MAKERS: dict[str, Maker] = {
    "command": command_block,
    "defaults": defaults_block,
    "keys": keys_block,
    "metrics": metrics_block,
}
"""By the first word of a block's name; the rest of it says which."""


def pages() -> list[Path]:
    """Return the pages that may have blocks."""
    return sorted((ROOT / "docs" / "reference").glob("*.md"))


def written(page: Path) -> str:
    """Return the text of a page with its blocks written anew. Raises BlockError, which names the page."""
    try:
        return filled(page.read_text(), make)
    except BlockError as error:
        raise BlockError(f"{page}: {error}") from error


def make(name: str) -> str:
    """Return the text of a block. Raises LookupError for a name that nothing is known of."""
    kind, _, what = name.partition(" ")
    if kind not in _MAKERS:
        raise LookupError(f"expected {', '.join(_MAKERS)} as its first word")
    return _MAKERS[kind](what)
