"""The one error of this package."""


class ReleaseError(Exception):
    """A release cannot be made; the text says what was found and what to do."""
