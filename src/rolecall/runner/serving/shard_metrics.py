"""The metrics of shards: which of them this replica holds, and how many replicas share all of them."""

from collections.abc import Collection

from prometheus_client import Gauge

from rolecall.runner.serving.registry import Registry


class ShardMetrics:
    """The metrics of shards; without ``--shards`` the families are there, but no series of a shard."""

    def __init__(self, registry: Registry) -> None:
        self._held = Gauge(
            "ansible_operator_shard_held",
            "1 for each shard that this replica holds",
            ["shard"],
            registry=registry,
        )
        self._members = Gauge(
            "ansible_operator_shard_members",
            "Replicas that share the shards, as this replica sees them",
            registry=registry,
        )
        self._shown: set[int] = set()

    def set(self, held: Collection[int], members: int) -> None:
        """Show the shards that are held, and the number of members."""
        for index in self._shown - set(held):
            self._held.remove(str(index))
        for index in held:
            self._held.labels(str(index)).set(1)
        self._shown = set(held)
        self._members.set(members)
