"""Errors that stop the operator before it starts, because what it was given cannot be meant."""


class ConfigurationError(Exception):
    """Something in ``watches.yaml``, a flag or the environment is wrong; the text is one line: what, and where."""
