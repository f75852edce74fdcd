"""The error of this package."""


class ReleaseError(Exception):
    """A release can't be made; the message states what was found and what to do."""
