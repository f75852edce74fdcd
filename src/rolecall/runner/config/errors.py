"""The error for an invalid configuration, which stops the operator before it starts."""


class ConfigurationError(Exception):
    """An error in ``watches.yaml``, a flag or the environment; the text is one line with the place and the message.

    ``message`` is the text without the place; ``place`` (file and entry), ``key`` and ``line`` are set if known.
    """

    def __init__(self, message: str, *, place: str = "", key: str = "", line: int | None = None) -> None:
        where = f"{place}, key {key}{f' (line {line})' if line else ''}" if key else place
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.place = place
        self.key = key
        self.line = line
