"""The objects of one kind by shard, so that those of a shard are found when this replica takes or loses it.

A shard that is taken is a first round of its objects: what has changed meanwhile goes first.
"""

from collections import defaultdict
from collections.abc import Callable

from rolecall.kube.references import ObjectKey
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.changes import Change
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.work_queue import Cause, WorkQueue
from rolecall.runner.election.held_shards import HeldShards
from rolecall.runner.reconcile.initial_reconcile import priority_in_first_round


class ShardedPrimaries:
    """The selected objects of a watch.

    ``forget`` is told of each that this replica does not reconcile any more, and ``look_for_orphans`` is called when
    one may have been deleted that no reconcile of this replica will find gone.
    """

    def __init__(
        self,
        watch: Watch,
        shards: HeldShards,
        queue: WorkQueue[ObjectKey],
        forget: Callable[[ObjectKey], None],
        look_for_orphans: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._shards = shards
        self._queue = queue
        self._forget = forget
        self._look_for_orphans = look_for_orphans
        self._priorities: defaultdict[int, dict[ObjectKey, Priority]] = defaultdict(dict)

    def on_change(self, change: Change) -> None:
        """Take note of an object, whoever reconciles it."""
        key = change.key
        index = self._shards.shard_of(self._watch.gvk, key)
        priorities = self._priorities[index]
        if change.new is None or not self._watch.selector.matches(change.new.labels):
            priorities.pop(key, None)
            if change.new is None and index not in self._shards.held:
                self._look_for_orphans()
        else:
            priorities[key] = priority_in_first_round(change.obj, manages_status=self._watch.manage_status)

    def taken(self, index: int) -> None:
        """Request a reconcile of each object of a shard."""
        for key, priority in self._priorities[index].items():
            self._queue.add(key, Cause("shard taken", priority=priority))

    def dropped(self, index: int) -> None:
        """Drop the requests of a shard."""
        self._queue.discard(lambda key: self._shards.shard_of(self._watch.gvk, key) == index)
        for key in self._priorities[index]:
            self._forget(key)
        self._look_for_orphans()  # the request of a deleted object may be among those that were dropped
