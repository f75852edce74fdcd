"""Reads and writes the primaries of one kind as the objects that they are, not as whatever has their name.

An object may be deleted and made anew at any time, for example while the API server cannot be reached. The outcome of
a run belongs to the object that the run worked for: another object of the same name counts as not found. And with
leader election nothing is written once another replica may be the leader.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.election.elector import LeadershipLostError
from rolecall.runner.reconcile.own_writes import OwnWrites


@dataclass(frozen=True, slots=True)
class Primaries:
    """The primaries of one kind; ``may_write`` says whether this replica is still the one that may write."""

    client: Client
    gvk: GVK
    own_writes: OwnWrites
    may_write: Callable[[], bool] = lambda: True

    async def read_again(self, obj: RawObject) -> RawObject:
        """Return a primary as it is now. Raises NotFoundError if it is gone, also if another one has its name."""
        key = ObjectKey.of_object(obj)
        found = await self.client.get(self.gvk, key)
        if uid_of(found) != uid_of(obj):
            raise NotFoundError(404, "NotFound", f"{key} was deleted; another object has its name now")
        return found

    async def replace(self, obj: RawObject, subresource: str = "") -> RawObject:
        """Replace a primary, or a subresource of it, in the version that was read; return it as written."""
        if not self.may_write():
            raise LeadershipLostError(f"{ObjectKey.of_object(obj)} was not written: another replica may be the leader")
        written = await self.client.replace(obj, subresource)
        self.own_writes.record_write((self.gvk, ObjectKey.of_object(obj)), written)
        return written
