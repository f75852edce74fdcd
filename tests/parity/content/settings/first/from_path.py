"""A filter of the first path."""

from collections.abc import Callable


class FilterModule:
    def filters(self) -> dict[str, Callable[[str], str]]:
        return {"from_path": lambda text: f"first {text}"}
