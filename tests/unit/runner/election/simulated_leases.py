"""Leases of an API server as replicas reach it: requests and answers take their time, get lost, or come too late."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

from rolecall.kube.errors import ConflictError, NotFoundError, UnreachableError
from rolecall.kube.references import GVK, ObjectKey, RawObject

_SLOW, _LATE, _LOST = 0.02, 0.004, 0.004
_NEVER = 300.0


class LeaseServer:
    """The Leases themselves; every write gets a version."""

    def __init__(self) -> None:
        self.leases: dict[str, RawObject] = {}
        self.writes = 0
        self._versions = itertools.count(1)

    def get(self, name: str) -> RawObject:
        """Return a Lease."""
        if name not in self.leases:
            raise NotFoundError(404, "NotFound", f"{name} not found")
        return self.leases[name]

    def create(self, obj: RawObject) -> RawObject:
        """Make a Lease."""
        if obj["metadata"]["name"] in self.leases:
            raise ConflictError(409, "AlreadyExists", "it exists")
        return self._store(obj)

    def replace(self, obj: RawObject) -> RawObject:
        """Replace a Lease in the version that was read."""
        if obj["metadata"]["resourceVersion"] != self.get(obj["metadata"]["name"])["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", "it has changed")
        return self._store(obj)

    def delete(self, name: str) -> None:
        """Delete a Lease."""
        self.get(name)
        del self.leases[name]

    def _store(self, obj: RawObject) -> RawObject:
        self.writes += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self._versions))}}
        self.leases[obj["metadata"]["name"]] = stored
        return stored

    def holder(self, name: str) -> str:
        """Return who holds a Lease, empty if nobody does."""
        return str(self.leases.get(name, {}).get("spec", {}).get("holderIdentity", ""))


class Network:
    """What lies between a replica and the server: while it ``is_cut`` nothing passes, if it ``is_good`` all does.

    Answers wait until their replica, which may be frozen, ``can_go_on``.
    """

    def __init__(self, chance: random.Random, can_go_on: asyncio.Event) -> None:
        self.is_cut = self.is_good = False
        self._chance = chance
        self._can_go_on = can_go_on

    async def send(self, work: Callable[[], Any]) -> Any:
        """Return the answer. A request that nobody waits for any more arrives all the same."""
        arrival = asyncio.ensure_future(self._arrive(work))
        arrival.add_done_callback(lambda each: each.cancelled() or each.exception())
        await asyncio.wait({arrival})
        answer = arrival.result()
        await self._pass()
        await self._can_go_on.wait()
        return answer

    async def _arrive(self, work: Callable[[], Any]) -> Any:
        await self._pass()
        return work()

    async def _pass(self) -> None:
        drawn = 1.0 if self.is_good else self._chance.random()
        if self.is_cut or drawn < _LOST:
            await asyncio.sleep(_NEVER)
            raise UnreachableError("nothing came back")
        if drawn < _LOST + _LATE:
            await asyncio.sleep(self._chance.uniform(5, 40))
        elif drawn < _LOST + _LATE + _SLOW:
            await asyncio.sleep(self._chance.uniform(0.2, 4))
        else:
            await asyncio.sleep(self._chance.uniform(0.001, 0.03))


class SimulatedClient:
    """Implements ``rolecall.runner.election.shard_member.ShardLeaseClient``."""

    def __init__(self, server: LeaseServer, network: Network) -> None:
        self._server, self._network = server, network

    async def get(self, _gvk: GVK, key: ObjectKey) -> RawObject:
        """Return a Lease."""
        found: RawObject = await self._network.send(lambda: self._server.get(key.name))
        return found

    async def create(self, obj: RawObject) -> RawObject:
        """Make a Lease."""
        made: RawObject = await self._network.send(lambda: self._server.create(obj))
        return made

    async def replace(self, obj: RawObject) -> RawObject:
        """Replace a Lease."""
        written: RawObject = await self._network.send(lambda: self._server.replace(obj))
        return written

    async def delete(self, _gvk: GVK, key: ObjectKey) -> None:
        """Delete a Lease."""
        await self._network.send(lambda: self._server.delete(key.name))

    async def list_pages(self, _gvk: GVK, _namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield all Leases."""
        yield await self._network.send(lambda: list(self._server.leases.values())), ""
