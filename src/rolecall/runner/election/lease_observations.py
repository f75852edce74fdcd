"""When a replica saw each Lease for the first time, and when it last saw it change, by its own clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Sightings:
    """Remembers Leases by name, each with its version."""

    _seen: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    def see(self, versions: Mapping[str, str], now: float) -> None:
        """Take note of all Leases that are there; what is not there any more is forgotten."""
        self._seen = {name: self._updated(name, version, now) for name, version in versions.items()}

    def first(self, name: str, default: float) -> float:
        """Return when a Lease was seen for the first time."""
        return self._seen[name][1] if name in self._seen else default

    def changed(self, name: str, default: float) -> float:
        """Return when a Lease was last seen to be another version."""
        return self._seen[name][2] if name in self._seen else default

    def _updated(self, name: str, version: str, now: float) -> tuple[str, float, float]:
        before, first, changed = self._seen.get(name, (version, now, now))
        return version, first, changed if before == version else now
