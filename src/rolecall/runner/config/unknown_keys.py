"""The message for an unknown key, in ``watches.yaml`` and in the argument specs of a role."""

import difflib
from collections.abc import Mapping


def unknown_key_message(name: str, known: Mapping[str, str]) -> str:
    """Return the message for a key, with the nearest known key; ``known`` maps comparable names to their spelling."""
    nearest = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {known[nearest[0]]!r}?" if nearest else ""
    return f"unknown key (ignored){hint}"
