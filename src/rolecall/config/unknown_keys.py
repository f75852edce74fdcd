"""What is said of a key that nobody knows, in ``watches.yaml`` and in the arguments of a role alike."""

import difflib
from collections.abc import Mapping


def unknown_key_message(name: str, known: Mapping[str, str]) -> str:
    """Return the text for a key, with the nearest known one; ``known`` maps what is compared to its spelling."""
    nearest = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {known[nearest[0]]!r}?" if nearest else ""
    return f"unknown key, which has no effect{hint}"
