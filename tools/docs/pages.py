"""Renders the pages with generated blocks."""

from pathlib import Path

from tools.docs.blocks import BlockError, Maker, fill_blocks
from tools.docs.commands import command_block, defaults_block
from tools.docs.metrics import metrics_block
from tools.docs.watch_keys import keys_block

from rolecall.workbench.project.watches_schema import schema_text

ROOT = Path(__file__).parents[2]
_MAKERS: dict[str, Maker] = {
    "command": command_block,
    "defaults": defaults_block,
    "keys": keys_block,
    "metrics": metrics_block,
}
"""The functions that generate blocks, by the first word of a block's name; they get the rest of the name."""


def pages() -> list[Path]:
    """Return the pages that can have blocks."""
    return sorted((ROOT / "docs" / "reference").glob("*.md"))


def render_page(page: Path) -> str:
    """Return the text of a page with updated blocks. Raise BlockError with the name of the page."""
    try:
        return fill_blocks(page.read_text(), make)
    except BlockError as error:
        raise BlockError(f"{page}: {error}") from error


def generated_files() -> dict[Path, str]:
    """Return the contents of the completely generated files."""
    return {ROOT / "docs" / "reference" / "watches.schema.json": schema_text()}


def make(name: str) -> str:
    """Return the text of a block. Raise LookupError for an unknown name."""
    kind, _, what = name.partition(" ")
    if kind not in _MAKERS:
        raise LookupError(f"expected {', '.join(_MAKERS)} as its first word")
    return _MAKERS[kind](what)
