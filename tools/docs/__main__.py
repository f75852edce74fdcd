"""The command line behind "make docs": writes the blocks of the pages in docs/reference anew."""

import sys

from tools.docs.blocks import BlockError
from tools.docs.pages import ROOT, pages, written


def main() -> None:
    """Write the pages that are not as they are to be, and name them; exit code 1 and a message when one cannot be."""
    try:
        texts = {page: written(page) for page in pages()}
    except BlockError as error:
        sys.exit(f"make docs: {error}")
    stale = {page: text for page, text in texts.items() if page.read_text() != text}
    for page, text in stale.items():
        page.write_text(text)
        sys.stdout.write(f"{page.relative_to(ROOT)}: written\n")
    if not stale:
        sys.stdout.write("docs/reference: nothing to write\n")


if __name__ == "__main__":
    main()
