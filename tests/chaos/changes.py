"""A change that people make: what it is called, and how it is made."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """One change; ``make`` returns when the API server has accepted it."""

    name: str
    make: Callable[[], Coroutine[Any, Any, None]]
