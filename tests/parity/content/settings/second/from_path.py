"""A filter of the second path."""

from collections.abc import Callable


class FilterModule:
    def filters(self) -> dict[str, Callable[[str], str]]:
        return {"from_path": lambda text: f"second {text}"}
