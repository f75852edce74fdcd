"""A filter that lies beside the playbook."""

from collections.abc import Callable


class FilterModule:
    def filters(self) -> dict[str, Callable[[str], str]]:
        return {"doubled": lambda text: text * 2}
