"""Replaces a function of another package by one of rolecall that may call the original."""

from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method of a class, or a function of a module, by one that calls ``wrapper`` with the original first."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        return wrapper(original, *args, **options)

    setattr(owner, name, wrapped)
