"""The helper of role two; another role has one of the same name."""

WORD = "of role two"
