"""What a watch on a kind sees, and when: the only clock of the comparison, the same for every operator.

An object counts as finished in a generation when its condition ``Successful`` is true and its status is another
than the one with which that generation was first seen. So a status left from the generation before does not count,
whether or not the operator writes ``observedGeneration``, which the Go runner does not.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from bench.stage import until

from rolecall.kube.client import Client
from rolecall.kube.metadata import generation_of
from rolecall.kube.references import GVK, RawObject

_WATCH_SECONDS = 3600.0
Turn = tuple[str, int]
"""An object's name and one of its generations."""


@dataclass(slots=True)
class Observer:
    """Sees the objects of one kind in one namespace from now on; make one with `observing`."""

    at: dict[Turn, float] = field(default_factory=dict)
    """When objects were seen to be finished, in monotonic seconds."""
    _before: dict[Turn, object] = field(default_factory=dict)

    async def finished(self, turns: Iterable[Turn], within_seconds: float) -> float:
        """Wait until all these are finished and return when the last one was. Raises TimeoutError."""
        wanted = set(turns)
        await until(lambda: wanted <= self.at.keys(), within_seconds, "the objects are finished")
        return max(self.at[turn] for turn in wanted)

    async def follow(self, events: AsyncIterator[tuple[str, RawObject]]) -> None:
        """Take the events of a watch."""
        async for kind, obj in events:
            if kind in ("ADDED", "MODIFIED"):
                self.note(obj, time.monotonic())

    def note(self, obj: RawObject, now: float) -> None:
        """Take an object as it was seen at a time."""
        turn, status = turn_of(obj), obj.get("status") or {}
        conditions = {item["type"]: item for item in status.get("conditions", ())}
        result = conditions.get("Running", {}).get("ansibleResult") or {}
        identity = (status.get("observedGeneration"), result.get("completion"))
        before = self._before.setdefault(turn, identity)
        is_current = status.get("observedGeneration") in (None, turn[1])
        is_successful = conditions.get("Successful", {}).get("status") == "True"
        if is_successful and is_current and identity != before:
            self.at.setdefault(turn, now)


@asynccontextmanager
async def observing(client: Client, gvk: GVK, namespace: str) -> AsyncIterator[Observer]:
    """Watch a kind in a namespace until the end of the block."""
    observer, latest = Observer(), ""
    async for page, version in client.list_pages(gvk, namespace):
        latest = version
        for obj in page:
            observer.note(obj, time.monotonic())
    following = asyncio.create_task(observer.follow(client.watch(gvk, namespace, latest, _WATCH_SECONDS)))
    try:
        yield observer
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


def turn_of(obj: dict[str, Any]) -> Turn:
    """Return an object's name and generation."""
    return obj["metadata"]["name"], generation_of(obj)
