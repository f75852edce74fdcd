"""A test that lies beside the playbook."""

from collections.abc import Callable


class TestModule:
    def tests(self) -> dict[str, Callable[[str], bool]]:
        return {"palindrome": lambda text: text == text[::-1]}
