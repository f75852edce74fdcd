"""A filter that only ansible.cfg leads to."""

from collections.abc import Callable


class FilterModule:
    def filters(self) -> dict[str, Callable[[str], str]]:
        return {"from_cfg": lambda text: f"cfg {text}"}
