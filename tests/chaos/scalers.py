"""PodScalers whose counts people change, and whose pods they delete and add."""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from rolecall.kube.errors import ConflictError, NotFoundError
from rolecall.kube.metadata import is_being_deleted, metadata_of
from rolecall.kube.references import RawObject
from tests.chaos.accepted import accepted
from tests.chaos.changes import Change
from tests.chaos.heartbeats import status_of, untrue
from tests.integration.world import POD, POD_SCALER, World

_MOST_PODS = 4


@dataclass(slots=True)
class Scalers:
    """Some PodScalers, and how many pods each shall have."""

    world: World
    count: int
    wanted: dict[str, int] = field(default_factory=dict)
    _changing: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """One change of a PodScaler at a time, so that it is known which count it shall have."""

    async def begin(self, chance: random.Random) -> None:
        """Make them."""
        for number in range(self.count):
            name = f"scaler-{number}"
            self.wanted[name] = chance.randint(0, _MOST_PODS)
            manifest = (
                f"{{apiVersion: scaling.example.com/v1, kind: PodScaler, metadata: {{name: {name}}}, "
                f"spec: {{count: {self.wanted[name]}, selector: {{app: {name}}}}}}}"
            )
            await accepted(partial(self.world.create, manifest))

    def change(self, chance: random.Random) -> Change:
        """Draw a change of one of them, or of its pods, by a person."""
        name, count, luck = chance.choice(sorted(self.wanted)), chance.randint(0, _MOST_PODS), chance.random()
        if luck < 0.6:
            return Change(f"{name} scaled", partial(self.scale, name, count))
        if luck < 0.8:
            return Change(f"a pod of {name} deleted", partial(self._delete_pod, name))
        return Change(f"a pod added to {name}", partial(self._add_pod, name))

    async def scale(self, name: str, count: int) -> None:
        """Ask for another count."""
        async with self._changing[name]:
            self.wanted[name] = count
            await accepted(lambda: self.world.patch(POD_SCALER, name, {"spec": {"count": count}}))

    async def wrong(self) -> list[str]:
        """Return what is not as it shall be."""
        scalers = await self.world.objects(POD_SCALER)
        counts: dict[str, int] = dict.fromkeys(self.wanted, 0)
        for pod in await self.world.objects(POD):
            app = (metadata_of(pod).get("labels") or {}).get("app")
            if app in counts and not is_being_deleted(pod):
                counts[app] += 1
        found = [] if len(scalers) == len(self.wanted) else [f"{len(scalers)} PodScalers, not {len(self.wanted)}"]
        for scaler in scalers:
            found += self._wrong(scaler, counts)
        return found

    def _wrong(self, scaler: RawObject, counts: dict[str, int]) -> list[str]:
        name = str(metadata_of(scaler)["name"])
        wanted, there, said = self.wanted[name], counts[name], status_of(scaler).get("pods")
        found = [] if scaler["spec"]["count"] == wanted else [f"the spec says {scaler['spec']['count']}, not {wanted}"]
        found += [] if there == wanted else [f"{there} pods, not {wanted}"]
        found += [] if said == wanted else [f"the status says {said} pods, not {wanted}"]
        return [f"{name}: {text}" for text in (*found, *untrue(scaler))]

    async def _delete_pod(self, name: str) -> None:
        pods = await accepted(lambda: self.world.pods(app=name))
        if not pods:
            return
        try:
            await accepted(lambda: self.world.delete(POD, str(metadata_of(pods[0])["name"])))
        except NotFoundError:
            return  # the role was quicker

    async def _add_pod(self, name: str) -> None:
        manifest = (
            f"{{apiVersion: v1, kind: Pod, metadata: {{generateName: extra-, labels: {{app: {name}}}}}, "
            "spec: {containers: [{name: nginx, image: nginx}]}}"
        )
        try:
            await accepted(lambda: self.world.create(manifest))
        except ConflictError:
            return
