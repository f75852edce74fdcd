"""Objects whose role waits, writes a ConfigMap, and reports its size; with or without a finalizer."""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rolecall.kube.errors import ConflictError, NotFoundError
from rolecall.kube.metadata import generation_of, owner_references_of, uid_of
from rolecall.kube.references import GVK, RawObject
from tests.chaos.requests import TIMEOUT_SECONDS, Change, accepted, until
from tests.support.world import CONFIG_MAP, World, condition, is_true, names

GROUP = "chaos.rolecall.dev"
HEARTBEAT = GVK(GROUP, "v1", "Heartbeat")
PASSING = GVK(GROUP, "v1", "Passing")
_SHORTEST_BEAT, _LONGEST_BEAT = 0.1, 0.8


@dataclass(frozen=True, slots=True)
class Ledger:
    """Files in which the project's roles record their runs; ``CHAOS_LEDGER`` names the directory.

    A role locks a file for its object; if another run holds the lock, it records an overlap.
    """

    directory: Path

    def overlaps(self) -> list[str]:
        """Return the runs that overlapped with another run of the same object: its uid, and the name of the run."""
        path = self.directory / "overlaps"
        return path.read_text().splitlines() if path.exists() else []

    def started_sizes(self, uid: str) -> list[str]:
        """Return the sizes with which runs of an object have started."""
        path = self.directory / uid
        return path.read_text().splitlines() if path.exists() else []

    def has_finalized(self, uid: str) -> bool:
        """Return whether the finalizer of an object has run."""
        return (self.directory / f"{uid}.farewell").exists()


@dataclass(slots=True)
class Heartbeats:
    """All objects of one kind with this role, and their expected state."""

    world: World
    gvk: GVK
    ledger: Ledger
    count: int
    has_finalizer: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """The uids of deleted objects whose finalizer must run."""
    _changing: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """One change of an object at a time, so that its expected size is known."""

    @property
    def names(self) -> list[str]:
        """The names of the objects."""
        return [f"{self.gvk.kind.lower()}-{number}" for number in range(self.count)]

    async def create_all(self, chance: random.Random) -> None:
        """Create the objects."""
        for name in self.names:
            await self.create(name, _beat(chance))

    def change(self, chance: random.Random) -> Change:
        """Draw a change of one of them by a user."""
        name, beat = chance.choice(self.names), _beat(chance)
        if chance.random() < 0.2:
            return Change(f"{name} recreated", partial(self.recreate, name, beat))
        return Change(f"{name} resized", partial(self.resize, name, beat))

    async def resize(self, name: str, beat: float) -> None:
        """Request another size."""
        async with self._changing[name]:
            self.sizes[name] += 1
            patch = {"spec": {"size": self.sizes[name], "beat": beat}}
            await accepted(lambda: self.world.patch(self.gvk, name, patch))

    async def start_long_run(self, name: str, beat: float) -> None:
        """Request a run of this many seconds and return when it has started. Raises TimeoutError."""
        await self.resize(name, beat)
        size = str(self.sizes[name])

        async def has_started() -> bool:
            found = await self.world.find(self.gvk, name)
            return found is not None and size in self.ledger.started_sizes(uid_of(found))

        await until(has_started, TIMEOUT_SECONDS, f"a run of {name} has started")

    async def recreate(self, name: str, beat: float) -> None:
        """Delete an object, and create one of the same name as soon as it has been deleted."""
        async with self._changing[name]:
            old = await accepted(lambda: self.world.get(self.gvk, name))
            if self.has_finalizer and self.ledger.started_sizes(uid_of(old)):
                self.gone.add(uid_of(old))
            await accepted(partial(self._delete, name))
            await self._wait_until_gone(name, uid_of(old))
            await self.create(name, beat)

    async def create(self, name: str, beat: float) -> None:
        """Create an object with a new size."""
        self.sizes[name] = self.sizes.get(name, 0) + 1
        manifest = (
            f"{{apiVersion: {self.gvk.api_version}, kind: {self.gvk.kind}, metadata: {{name: {name}}}, "
            f"spec: {{size: {self.sizes[name]}, beat: {beat}}}}}"
        )
        try:
            await accepted(lambda: self.world.create(manifest))
        except ConflictError:
            return  # the response was lost, not the request

    async def problems(self) -> list[str]:
        """Return deviations from the expected state."""
        objects = {str(obj["metadata"]["name"]): obj for obj in await self.world.objects(self.gvk)}
        maps = {str(obj["metadata"]["name"]): obj for obj in await self.world.objects(CONFIG_MAP)}
        found = [f"{name} is missing" for name in self.names if name not in objects]
        for name, obj in objects.items():
            found += [f"{name}: {text}" for text in self._problems(obj, maps.get(name, {}), self.sizes[name])]
        late = [uid for uid in self.gone if not self.ledger.has_finalized(uid)]
        return found + [f"the finalizer of {uid} has never run" for uid in late]

    async def leaked(self) -> list[str]:
        """Return the ConfigMaps whose owner was deleted, unless the garbage collector may have missed the deletion.

        Its watches break with the API server. If an owner was recreated in the meantime, the collector sees a change
        instead of a deletion and keeps the dependents of the old owner. Those are older than the new owner.
        """
        living = {str(obj["metadata"]["name"]): obj for obj in await self.world.objects(self.gvk)}
        uids = {uid_of(obj) for obj in living.values()}
        return [
            f"ConfigMap {name}, whose owner was deleted"
            for each in await self.world.objects(CONFIG_MAP)
            if (name := names([each])[0]) in self.names
            and not any(owner.uid in uids for owner in owner_references_of(each))
            and not (name in living and _created(each) < _created(living[name]))
        ]

    def _problems(self, obj: RawObject, config_map: RawObject, size: int) -> list[str]:
        written = (config_map.get("data") or {}).get("size")
        beats_for = (config_map.get("metadata") or {}).get("labels", {}).get("beats-for")
        checks = {
            f"the spec has {obj['spec']['size']}, not {size}": obj["spec"]["size"] == size,
            f"the ConfigMap has {written}, not size {size}": written == f"size {size}",
            "the ConfigMap belongs to another object": beats_for == uid_of(obj),
            f"the status has {status_of(obj).get('size')}": status_of(obj).get("size") == size,
        }
        return [text for text, holds in checks.items() if not holds] + condition_problems(obj)

    async def _delete(self, name: str) -> None:
        try:
            await self.world.delete(self.gvk, name)
        except NotFoundError:
            return

    async def _wait_until_gone(self, name: str, uid: str) -> None:
        async def is_gone() -> bool:
            found = await self.world.find(self.gvk, name)
            return found is None or uid_of(found) != uid

        await until(is_gone, TIMEOUT_SECONDS, f"{self.gvk.kind} {name} is deleted")


def status_of(obj: RawObject) -> RawObject:
    """Return the status of an object, empty when there is none."""
    found: RawObject = obj.get("status") or {}
    return found


def condition_problems(obj: RawObject) -> list[str]:
    """Return the conditions that differ from those of an object that has succeeded."""
    checks = {
        "Successful is not true": is_true(obj, "Successful"),
        f"Failure is true: {condition(obj, 'Failure').get('message', '')[:300]}": not is_true(obj, "Failure"),
        "Running has another reason than Successful": condition(obj, "Running").get("reason") == "Successful",
        "observedGeneration differs": status_of(obj).get("observedGeneration") == generation_of(obj),
    }
    return [text for text, holds in checks.items() if not holds]


def _beat(chance: random.Random) -> float:
    return round(chance.uniform(_SHORTEST_BEAT, _LONGEST_BEAT), 2)


def _created(obj: RawObject) -> str:
    """Return when an object was created, in a form that sorts by time."""
    return str(obj["metadata"]["creationTimestamp"])
