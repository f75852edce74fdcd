"""How many objects a page of a list has: as many as fit into a few megabytes.

Objects differ by a factor of a thousand: 500 releases of helm in one page would be hundreds of megabytes. So the number
follows the size of the objects in the page before. A page that is much too large nevertheless, because small objects
are followed by large ones, is not read to its end but asked for again with fewer objects.
"""

from dataclasses import dataclass
from typing import Final

FIRST_OBJECTS: Final = 100
MOST_OBJECTS: Final = 500
WANTED_BYTES: Final = 2 << 20
MOST_BYTES: Final = 8 << 20
_FEWER: Final = 8
_MORE: Final = 5
"""The next page may be the one that was too large, so their number grows step by step."""


@dataclass(slots=True)
class PageSize:
    """The size of the next page: ``objects`` to ask for, and ``most_bytes`` to read, None for any number."""

    objects: int = FIRST_OBJECTS

    @property
    def most_bytes(self) -> int | None:
        """A single object is read whatever its size, and so is a list from a server that knows no pages."""
        return MOST_BYTES if self.objects > 1 else None

    def fit(self, objects: int, size: int) -> None:
        """Choose the size of the next page after one with so many objects and bytes."""
        fitting = WANTED_BYTES * max(1, objects) // max(1, size)
        self.objects = max(1, min(MOST_OBJECTS, _MORE * self.objects, fitting))

    def reduce(self) -> None:
        """Ask for fewer objects after a page that was too large."""
        self.objects = max(1, self.objects // _FEWER)
