"""Leases of an API server, reached directly or over a network where requests and responses are slow or get lost."""

import asyncio
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from rolecall.kube.client import Client, Selection
from rolecall.kube.errors import ApiError, ConflictError, KubeError, NotFoundError, UnreachableError
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
        """Create a Lease."""
        if obj["metadata"]["name"] in self.leases:
            raise ConflictError(409, "AlreadyExists", "it exists")
        return self.put(obj)

    def replace(self, obj: RawObject) -> RawObject:
        """Replace a Lease in the version that was read."""
        if obj["metadata"]["resourceVersion"] != self.get(obj["metadata"]["name"])["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", "it has changed")
        return self.put(obj)

    def delete(self, name: str) -> None:
        """Delete a Lease."""
        self.get(name)
        del self.leases[name]

    def put(self, obj: RawObject) -> RawObject:
        """Store a Lease in any version."""
        self.writes += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self._versions))}}
        self.leases[obj["metadata"]["name"]] = stored
        return stored

    def holder(self, name: str) -> str:
        """Return the holder of a Lease, empty if it has none."""
        return str(self.leases.get(name, {}).get("spec", {}).get("holderIdentity", ""))


class Network:
    """The network between a replica and the server: while it ``is_cut`` nothing passes, if it ``is_good`` all does.

    Responses wait until their replica, which may be frozen, ``can_go_on``.
    """

    def __init__(self, chance: random.Random, can_go_on: asyncio.Event) -> None:
        self.is_cut = self.is_good = False
        self._chance = chance
        self._can_go_on = can_go_on

    async def transmit(self, work: Callable[[], Any]) -> Any:
        """Return the response. A request arrives even if its replica no longer waits for it."""
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
            raise UnreachableError("no response")
        if drawn < _LOST + _LATE:
            await asyncio.sleep(self._chance.uniform(5, 40))
        elif drawn < _LOST + _LATE + _SLOW:
            await asyncio.sleep(self._chance.uniform(0.2, 4))
        else:
            await asyncio.sleep(self._chance.uniform(0.001, 0.03))


class LeaseRequests(Client, ABC):
    """The requests for Leases, in terms of calls to the server that subclasses transmit."""

    def __init__(self, server: LeaseServer) -> None:
        self.server = server

    @abstractmethod
    async def transmit(self, verb: str, work: Callable[[], Any]) -> Any:
        """Transmit a request, and return its response."""

    async def get(self, _gvk: GVK, key: ObjectKey) -> RawObject:
        """Return a Lease."""
        found: RawObject = await self.transmit("get", lambda: self.server.get(key.name))
        return found

    async def create(self, obj: RawObject) -> RawObject:
        """Create a Lease."""
        created: RawObject = await self.transmit("create", lambda: self.server.create(obj))
        return created

    async def replace(self, obj: RawObject, _subresource: str = "") -> RawObject:
        """Replace a Lease."""
        written: RawObject = await self.transmit("update", lambda: self.server.replace(obj))
        return written

    async def delete(self, _gvk: GVK, key: ObjectKey, _preconditions: Mapping[str, str] | None = None) -> None:
        """Delete a Lease."""
        await self.transmit("delete", lambda: self.server.delete(key.name))

    async def list_pages(
        self, _gvk: GVK, _namespace: str | None = None, _selection: Selection | None = None
    ) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield all Leases."""
        yield await self.transmit("list", lambda: list(self.server.leases.values())), ""


class SimulatedClient(LeaseRequests):
    """Reaches the server over a network."""

    def __init__(self, server: LeaseServer, network: Network) -> None:
        super().__init__(server)
        self._network = network

    async def transmit(self, _verb: str, work: Callable[[], Any]) -> Any:
        """Send a request over the network."""
        return await self._network.transmit(work)


class DirectClient(LeaseRequests):
    """Reaches the server after a constant delay, unless it hangs, fails, or isn't permitted to send a verb."""

    def __init__(self, server: LeaseServer, delay_seconds: float = 0.0) -> None:
        super().__init__(server)
        self.hangs = False
        self.error: KubeError | None = None
        self.denied_verbs: set[str] = set()
        self.verbs: list[str] = []
        self._delay_seconds = delay_seconds

    async def transmit(self, verb: str, work: Callable[[], Any]) -> Any:
        """Send a request."""
        self.verbs.append(verb)
        await asyncio.sleep(self._delay_seconds)
        if self.hangs:
            await asyncio.Event().wait()
        if verb in self.denied_verbs:
            raise ApiError(403, "Forbidden", f"cannot {verb} leases")
        if self.error is not None:
            raise self.error
        return work()
