"""The helper of role one; another role has one of the same name."""

WORD = "of role one"
