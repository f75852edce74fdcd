"""The shards that this replica holds, and what follows for the queues and reconciles of all kinds.

Informers see every object. A request is accepted only if its object belongs to a shard that is held. When a shard is
taken, all its objects are reconciled once; before it is handed over, its requests are dropped and its reconciles end.
"""

from collections.abc import Callable
from typing import Protocol

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.controller import Controller
from rolecall.runner.controller.dispatcher import Dispatcher
from rolecall.runner.election.hashing import shard_of

HANDED_OVER = "another replica takes the object over"
"""Why a reconcile is cancelled."""


class ShardedKind(Protocol):
    """The objects of one kind; its methods must return at once."""

    def taken(self, index: int) -> None:
        """Request a reconcile of each object of a shard."""

    def dropped(self, index: int) -> None:
        """Drop the requests of a shard."""


class HeldShards:
    """Which of ``count`` shards are held; reconciles that end a shard have ``patience_seconds`` to end by themselves.

    The ``dispatcher`` runs the reconciles of all kinds.
    """

    def __init__(self, count: int, patience_seconds: float) -> None:
        self.count = count
        self.dispatcher = Dispatcher()
        self._patience_seconds = patience_seconds
        self._held: set[int] = set()
        self._kinds: list[ShardedKind] = []

    @property
    def held(self) -> frozenset[int]:
        """The shards that are held now."""
        return frozenset(self._held)

    def add(self, kind: ShardedKind) -> None:
        """Tell a kind about shards from now on."""
        self._kinds.append(kind)

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:
        """Return the shard of an object, whichever version of its kind is watched."""
        return shard_of(gvk.group, gvk.kind, key, self.count)

    def accepts(self, gvk: GVK) -> Callable[[ObjectKey], bool]:
        """Return a function that says whether an object of a kind is this replica's now."""
        return lambda key: self.shard_of(gvk, key) in self._held

    def take(self, index: int) -> None:
        """Reconcile the objects of a shard from now on, all of them once."""
        self._held.add(index)
        for kind in self._kinds:
            kind.taken(index)

    async def finish(self, index: int) -> None:
        """Start nothing for a shard any more, and return when none of its objects is being reconciled."""
        await self._end(index, self._patience_seconds)

    async def abandon(self, index: int) -> None:
        """Do the same, but cancel its reconciles at once."""
        await self._end(index, 0.0)

    async def _end(self, index: int, seconds: float) -> None:
        def concerns(controller: Controller, key: ObjectKey) -> bool:
            return shard_of(controller.group, controller.kind, key, self.count) == index

        self._held.discard(index)
        self._drop(index)
        await self.dispatcher.finish(concerns, seconds, HANDED_OVER)
        if index not in self._held:
            self._drop(index)  # what the last reconciles have left behind, such as their failures

    def _drop(self, index: int) -> None:
        for kind in self._kinds:
            kind.dropped(index)
