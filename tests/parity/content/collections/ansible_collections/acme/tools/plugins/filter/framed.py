"""A filter of the collection."""

from collections.abc import Callable


class FilterModule:
    def filters(self) -> dict[str, Callable[[str], str]]:
        return {"framed": lambda text: f"[{text}]"}
