"""How many shards each member shall hold: as even as possible, and so that few shards move.

Members that look at the same Leases find the same quotas. Whoever holds most keeps most, so nothing moves back and
forth.
"""

from collections.abc import Mapping


def quotas(held: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many of ``count`` shards each member shall hold, given how many each holds."""
    most_first = sorted(held, key=lambda member: (-held[member], member))
    share, rest = divmod(count, len(held))
    return {member: share + (position < rest) for position, member in enumerate(most_first)}
