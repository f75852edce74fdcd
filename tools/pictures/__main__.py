"""``python -m tools.pictures``: runs the demo in a pseudo-terminal and draws docs/pictures/make-demo.svg from it."""

import os
import pty
import sys
from pathlib import Path

from tools.pictures.terminal import last_screen, picture

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "make-demo.svg"
COLUMNS = 128
FROM_LINE = "Starting control plane"


def main() -> None:
    """Draw the picture. Exit with 1 if the demo failed."""
    printed = bytearray()

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 1 << 16)
        printed.extend(data)
        return data

    os.environ.update(COLUMNS=str(COLUMNS), LINES="50", TERM="xterm-256color")
    if os.waitstatus_to_exitcode(pty.spawn([sys.executable, "-m", "rolecall", "demo"], read)):
        sys.exit("python -m tools.pictures: the demo failed")
    lines = last_screen(printed.decode()).rstrip().split("\n")
    start = next(number for number, line in enumerate(lines) if FROM_LINE in line)
    PICTURE.write_text(picture("\n".join(["$ make demo", *lines[start:]]), "make demo", COLUMNS))
    sys.stdout.write(f"\n{PICTURE.relative_to(ROOT)}: written\n")


if __name__ == "__main__":
    main()
