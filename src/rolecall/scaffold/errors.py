"""What a scaffold can be refused for; the text says what was found, where, and what to do."""


class ScaffoldError(Exception):
    """Nothing was written, for the reason that the text tells."""
