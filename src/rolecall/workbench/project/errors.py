"""The error of the scaffold. Its text says what was found, where, and what to do."""


class ScaffoldError(Exception):
    """Nothing was written; the text says why."""
