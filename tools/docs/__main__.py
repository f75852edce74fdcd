"""The command behind ``make docs``: updates the generated parts of docs/reference."""

import sys

from tools.docs.blocks import BlockError
from tools.docs.pages import ROOT, generated_files, pages, render_page


def main() -> None:
    """Write the pages and files that have changed, and print their names. Exit with 1 and a message on failure."""
    try:
        contents = {**{page: render_page(page) for page in pages()}, **generated_files()}
    except BlockError as error:
        sys.exit(f"make docs: {error}")
    stale = {page: text for page, text in contents.items() if not page.exists() or page.read_text() != text}
    for page, text in stale.items():
        page.write_text(text)
        sys.stdout.write(f"{page.relative_to(ROOT)}: written\n")
    if not stale:
        sys.stdout.write("docs/reference: up to date\n")


if __name__ == "__main__":
    main()
