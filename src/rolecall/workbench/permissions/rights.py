"""A right, as a rule of RBAC grants it, and which rights cover which."""

from collections.abc import Iterable
from dataclasses import dataclass, field

EVERYTHING = "*"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource (``pods/exec`` for a subresource); ``namespace`` is empty for every namespace.

    ``names`` are the objects to which it is limited; empty means all.
    """

    namespace: str
    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the right as people say it: ``patch deployments.apps``."""
        plural, _, sub = self.resource.partition("/")
        resource = f"{plural}.{self.group}" if self.group else plural
        names = f" ({', '.join(self.names)})" if self.names else ""
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{'/' + sub if sub else ''}{names}{place}"

    def covers(self, other: "Right") -> bool:
        """Return whether who has this right has the other."""
        return self.is_about(other) and (not self.names or (bool(other.names) and set(other.names) <= set(self.names)))

    def is_about(self, other: "Right") -> bool:
        """Return whether this right covers the other, apart from names."""
        return (
            self.namespace in ("", other.namespace)
            and self.group in (EVERYTHING, other.group)
            and self.verb in (EVERYTHING, other.verb)
            and _covers_resource(self.resource, other.resource)
        )


@dataclass(slots=True)
class Needs:
    """Rights that are needed, each with its reasons."""

    reasons: dict[Right, set[str]] = field(default_factory=dict)

    def add(self, right: Right, reason: str) -> None:
        """Add a right with one reason."""
        self.reasons.setdefault(right, set()).add(reason)

    def minimal(self) -> dict[Right, set[str]]:
        """Return the rights without those that others cover, whose reasons the others get."""
        found: dict[Right, set[str]] = {}
        for right, reasons in sorted(self.reasons.items(), key=lambda item: (len(item[0].names) > 0, item[0])):
            wider = next((known for known in found if known.covers(right)), right)
            found.setdefault(wider, set()).update(reasons)
        return found


def missing(needed: Iterable[Right], granted: Iterable[Right]) -> list[Right]:
    """Return the needed rights that nothing grants; several grants may together have the names of one need."""
    grants = list(granted)
    return [right for right in needed if not _is_granted(right, grants)]


def excess(needed: Iterable[Right], granted: Iterable[Right]) -> list[Right]:
    """Return the granted rights that nothing needs, that have a wildcard, or that could be limited to names."""
    needs = list(needed)
    return [right for right in granted if not _is_needed(right, needs)]


def _is_granted(right: Right, grants: list[Right]) -> bool:
    if any(grant.covers(right) for grant in grants):
        return True
    names = {name for grant in grants if grant.is_about(right) for name in grant.names}
    return bool(right.names) and set(right.names) <= names


def _is_needed(grant: Right, needs: list[Right]) -> bool:
    if EVERYTHING in (grant.group, grant.resource, grant.verb):
        return False
    alike = [need for need in needs if grant.is_about(need) and need.namespace == grant.namespace]
    if not grant.names:
        return any(not need.names for need in alike)
    return all(any(not need.names or name in need.names for need in alike) for name in grant.names)


def _covers_resource(granted: str, needed: str) -> bool:
    if granted in (EVERYTHING, needed):
        return True
    return granted.startswith("*/") and granted.removeprefix("*") == needed[needed.find("/") :]
