"""A fault: its name, its action, and the start of the recovery time."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.chaos.scene import Scene

Act = Callable[[Scene, random.Random], Awaitable[None]]


def _always_possible(_scene: Scene) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. ``act`` returns when the fault has ended; damage is repaired by then, or permanent."""

    name: str
    act: Act
    is_counted_from_start: bool = False
    """Whether the recovery time starts with the fault instead of its end."""
    may_end_operator: bool = False
    """Whether the operator is expected to exit."""
    unavailable_reason: Callable[[Scene], str] = _always_possible
    """Returns why this machine does not support the fault; empty if it does."""
