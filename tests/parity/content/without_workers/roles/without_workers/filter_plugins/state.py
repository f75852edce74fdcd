"""Filters that leave traces in the process that calls them."""

import os
import random
from collections.abc import Callable
from typing import NoReturn

CALLS: list[str] = []


def count(value: str) -> int:
    """Tell how often this process has called it."""
    CALLS.append(value)
    os.environ["COUNTED"] = str(len(CALLS))
    random.seed(len(CALLS))
    return len(CALLS)


def say(value: str) -> str:
    """Print, which nobody should do here."""
    print(value)
    return value


def leave(value: int) -> NoReturn:
    """End the process that calls it."""
    raise SystemExit(value)


class FilterModule:
    """The entry point of filter plugins."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters."""
        return {"count_calls": count, "say": say, "leave": leave}
