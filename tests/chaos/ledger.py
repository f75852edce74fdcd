"""What the roles of the project leave in a folder: a file for each object that they lock while they work.

A run that finds the lock taken has met a living process of another run of the same object; it writes that down.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ledger:
    """The folder; ``CHAOS_LEDGER`` tells it to the operator."""

    folder: Path

    def overlaps(self) -> list[str]:
        """Return the runs that met another one of the same object: its uid, and the name of the run."""
        path = self.folder / "overlaps"
        return path.read_text().splitlines() if path.exists() else []

    def begun(self, uid: str) -> list[str]:
        """Return the sizes with which runs of an object have begun."""
        path = self.folder / uid
        return path.read_text().splitlines() if path.exists() else []

    def has_said_farewell(self, uid: str) -> bool:
        """Tell whether the finalizer of an object has run."""
        return (self.folder / f"{uid}.farewell").exists()
