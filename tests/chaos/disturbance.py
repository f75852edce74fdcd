"""What a disturbance is: its name, what it does, and from when on the recovery is counted."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.chaos.scene import Scene

Act = Callable[[Scene, random.Random], Awaitable[None]]


def _always_possible(_scene: Scene) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One kind of disturbance. ``act`` returns when it is over; what it has broken is mended by then, or never."""

    name: str
    act: Act
    is_counted_from_start: bool = False
    """Whether the recovery begins with the disturbance and not with its end."""
    may_end_operator: bool = False
    """Whether an operator that ends does what it must."""
    why_not: Callable[[Scene], str] = _always_possible
    """Says why it cannot be done on this machine; empty if it can."""
