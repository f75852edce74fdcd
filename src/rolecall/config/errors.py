"""Errors that stop the operator before it starts, because what it was given cannot be meant."""


class ConfigurationError(Exception):
    """Something in ``watches.yaml``, a flag or the environment is wrong; the text is one line: what, and where.

    ``message`` is the text without the place; ``place`` (file and entry), ``key`` and ``line`` are there where known.
    """

    def __init__(self, message: str, *, place: str = "", key: str = "", line: int | None = None) -> None:
        where = f"{place}, key {key}{f' (line {line})' if line else ''}" if key else place
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.place = place
        self.key = key
        self.line = line
