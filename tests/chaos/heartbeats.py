"""Objects whose role beats for a moment, writes a ConfigMap and reports its size; with a finalizer or without one."""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from rolecall.kube.errors import ConflictError, NotFoundError
from rolecall.kube.metadata import generation_of, owner_references_of, uid_of
from rolecall.kube.references import GVK, RawObject
from tests.chaos.accepted import PATIENCE_SECONDS, accepted, until
from tests.chaos.changes import Change
from tests.chaos.ledger import Ledger
from tests.integration.world import CONFIG_MAP, World, condition, is_true, names

GROUP = "chaos.rolecall.dev"
HEARTBEAT = GVK(GROUP, "v1", "Heartbeat")
PASSING = GVK(GROUP, "v1", "Passing")
_SHORTEST_BEAT, _LONGEST_BEAT = 0.1, 0.8


@dataclass(slots=True)
class Heartbeats:
    """All objects of one kind with this role, and what they shall be like."""

    world: World
    gvk: GVK
    ledger: Ledger
    count: int
    has_finalizer: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """The uids of objects that were deleted and whose finalizer has run or must run."""
    _changing: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """One change of an object at a time, so that it is known which size it shall have."""

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [f"{self.gvk.kind.lower()}-{number}" for number in range(self.count)]

    async def begin(self, chance: random.Random) -> None:
        """Make them."""
        for name in self.names:
            await self.create(name, _beat(chance))

    def change(self, chance: random.Random) -> Change:
        """Draw a change of one of them by a person."""
        name, beat = chance.choice(self.names), _beat(chance)
        if chance.random() < 0.2:
            return Change(f"{name} made anew", partial(self.make_anew, name, beat))
        return Change(f"{name} resized", partial(self.resize, name, beat))

    async def resize(self, name: str, beat: float) -> None:
        """Ask for another size."""
        async with self._changing[name]:
            self.sizes[name] += 1
            patch = {"spec": {"size": self.sizes[name], "beat": beat}}
            await accepted(lambda: self.world.patch(self.gvk, name, patch))

    async def begin_long_run(self, name: str, beat: float) -> None:
        """Ask for a run that beats for so many seconds, and return when it does. Raises TimeoutError."""
        await self.resize(name, beat)
        size = str(self.sizes[name])

        async def has_begun() -> bool:
            found = await self.world.find(self.gvk, name)
            return found is not None and size in self.ledger.begun(uid_of(found))

        await until(has_begun, PATIENCE_SECONDS, f"a run of {name} has begun")

    async def make_anew(self, name: str, beat: float) -> None:
        """Delete an object, and make one of the same name as soon as it is gone."""
        async with self._changing[name]:
            old = await accepted(lambda: self.world.get(self.gvk, name))
            if self.has_finalizer and self.ledger.begun(uid_of(old)):
                self.gone.add(uid_of(old))
            await accepted(partial(self._delete, name))
            await self._wait_until_gone(name, uid_of(old))
            await self.create(name, beat)

    async def create(self, name: str, beat: float) -> None:
        """Make an object of a size that none had before."""
        self.sizes[name] = self.sizes.get(name, 0) + 1
        manifest = (
            f"{{apiVersion: {self.gvk.api_version}, kind: {self.gvk.kind}, metadata: {{name: {name}}}, "
            f"spec: {{size: {self.sizes[name]}, beat: {beat}}}}}"
        )
        try:
            await accepted(lambda: self.world.create(manifest))
        except ConflictError:
            return  # an answer got lost, not the request

    async def wrong(self) -> list[str]:
        """Return what is not as it shall be."""
        objects = {str(obj["metadata"]["name"]): obj for obj in await self.world.objects(self.gvk)}
        maps = {str(obj["metadata"]["name"]): obj for obj in await self.world.objects(CONFIG_MAP)}
        found = [f"{name} is missing" for name in self.names if name not in objects]
        for name, obj in objects.items():
            found += [f"{name}: {text}" for text in self._wrong(obj, maps.get(name, {}), self.sizes[name])]
        late = [uid for uid in self.gone if not self.ledger.has_said_farewell(uid)]
        return found + [f"the finalizer of {uid} has never run" for uid in late]

    async def left(self) -> list[str]:
        """Return the ConfigMaps whose owner is gone, unless the garbage collector may have missed its end.

        Its watches break with the API server. An owner that was deleted and made anew meanwhile looks changed to it,
        not deleted, and what the old one owned stays. That is older than the new one.
        """
        living = {str(obj["metadata"]["name"]): obj for obj in await self.world.objects(self.gvk)}
        uids = {uid_of(obj) for obj in living.values()}
        return [
            f"ConfigMap {name}, whose owner is gone"
            for each in await self.world.objects(CONFIG_MAP)
            if (name := names([each])[0]) in self.names
            and not any(owner.uid in uids for owner in owner_references_of(each))
            and not (name in living and _created(each) < _created(living[name]))
        ]

    def _wrong(self, obj: RawObject, config_map: RawObject, size: int) -> list[str]:
        written = (config_map.get("data") or {}).get("size")
        beats_for = (config_map.get("metadata") or {}).get("labels", {}).get("beats-for")
        checks = {
            f"the spec says {obj['spec']['size']}, not {size}": obj["spec"]["size"] == size,
            f"the ConfigMap says {written}, not size {size}": written == f"size {size}",
            "the ConfigMap is another object's": beats_for == uid_of(obj),
            f"the status says {status_of(obj).get('size')}": status_of(obj).get("size") == size,
        }
        return [text for text, holds in checks.items() if not holds] + untrue(obj)

    async def _delete(self, name: str) -> None:
        try:
            await self.world.delete(self.gvk, name)
        except NotFoundError:
            return

    async def _wait_until_gone(self, name: str, uid: str) -> None:
        async def is_gone() -> bool:
            found = await self.world.find(self.gvk, name)
            return found is None or uid_of(found) != uid

        await until(is_gone, PATIENCE_SECONDS, f"{self.gvk.kind} {name} is gone")


def status_of(obj: RawObject) -> RawObject:
    """Return the status of an object, empty when there is none."""
    found: RawObject = obj.get("status") or {}
    return found


def untrue(obj: RawObject) -> list[str]:
    """Return what the conditions of an object say that has succeeded, where it is not that."""
    said = {
        "Successful is not true": is_true(obj, "Successful"),
        f"Failure is true: {condition(obj, 'Failure').get('message', '')[:300]}": not is_true(obj, "Failure"),
        "Running does not wait for the next reconcile": condition(obj, "Running").get("reason") == "Successful",
        "observedGeneration is another": status_of(obj).get("observedGeneration") == generation_of(obj),
    }
    return [text for text, holds in said.items() if not holds]


def _beat(chance: random.Random) -> float:
    return round(chance.uniform(_SHORTEST_BEAT, _LONGEST_BEAT), 2)


def _created(obj: RawObject) -> str:
    """Return when an object was created, in a form that sorts by time."""
    return str(obj["metadata"]["creationTimestamp"])
