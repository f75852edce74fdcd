"""A filter that a role brings."""

from collections.abc import Callable


class FilterModule:
    def filters(self) -> dict[str, Callable[[str], str]]:
        return {"tripled": lambda text: text * 3}
