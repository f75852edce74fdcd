"""A watch on a kind, and the times of its events: the only clock of the comparison, the same for every operator.

An object counts as finished in a generation when its condition ``Successful`` is true and its status is another
than the one with which that generation was first seen. So a status left from the generation before does not count,
whether or not the operator writes ``observedGeneration``, which the Go runner does not.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rolecall.kube.client import Client
from rolecall.kube.metadata import generation_of, status_of
from rolecall.kube.references import GVK, RawObject

SUCCESSFUL = "Successful"
"""Also the reason of the condition Running after a run, with the Go runner and with rolecall under its name."""
_WATCH_SECONDS = 3600.0
Turn = tuple[str, int]
"""An object's name and one of its generations."""


@dataclass(slots=True)
class Observer:
    """Sees the objects of one kind in one namespace from now on; make one with `observing`."""

    at: dict[Turn, float] = field(default_factory=dict)
    """When objects were seen to be finished, in monotonic seconds."""
    _before: dict[Turn, object] = field(default_factory=dict)

    def finished_at(self, turns: Collection[Turn]) -> float:
        """Return when the last of these was finished, 0 before that."""
        return max(self.at[turn] for turn in turns) if self.at.keys() >= set(turns) else 0.0

    async def follow(self, events: AsyncIterator[tuple[str, RawObject]]) -> None:
        """Take the events of a watch."""
        async for kind, obj in events:
            if kind in ("ADDED", "MODIFIED"):
                self.note(obj, time.monotonic())

    def note(self, obj: RawObject, now: float) -> None:
        """Take an object as it was seen at a time."""
        turn, status, conditions = turn_of(obj), status_of(obj), conditions_of(obj)
        result = conditions.get("Running", {}).get("ansibleResult") or {}
        identity = (status.get("observedGeneration"), result.get("completion"))
        before = self._before.setdefault(turn, identity)
        # An operator that doesn't write the field leaves the default of the CRD, -1.
        is_current = status.get("observedGeneration") in (None, -1, turn[1])
        if is_successful(obj) and is_current and identity != before:
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


def conditions_of(obj: RawObject) -> dict[str, Mapping[str, Any]]:
    """Return the conditions in an object's status by their types."""
    return {each["type"]: each for each in status_of(obj).get("conditions") or ()}


def is_successful(obj: RawObject) -> bool:
    """Return whether the last reconcile of an object succeeded."""
    return conditions_of(obj).get("Successful", {}).get("status") == "True"


def outcome_of(obj: RawObject) -> str:
    """Return ``SUCCESSFUL`` or ``Failed`` with the message, from the conditions of the Go runner too; "" before it."""
    conditions = conditions_of(obj)
    if conditions.get("Failure", {}).get("status") == "True":
        return f"Failed: {conditions['Failure'].get('message')}"
    return SUCCESSFUL if conditions.get("Running", {}).get("reason") == SUCCESSFUL else ""


def turn_of(obj: dict[str, Any]) -> Turn:
    """Return an object's name and generation."""
    return obj["metadata"]["name"], generation_of(obj)
