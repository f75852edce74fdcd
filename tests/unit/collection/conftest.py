"""Makes the collection importable by its full name, next to the installed ones."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "src" / "rolecall" / "collections"))
