"""PodScalers whose counts change, and whose pods are deleted and added."""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from rolecall.kube.errors import ConflictError, NotFoundError
from rolecall.kube.metadata import is_being_deleted, metadata_of
from rolecall.kube.references import RawObject
from tests.chaos.heartbeats import condition_problems, status_of
from tests.chaos.requests import Change, accepted
from tests.support.world import POD, POD_SCALER, World

_MAX_PODS = 4


@dataclass(slots=True)
class Scalers:
    """Some PodScalers, and the expected number of pods of each."""

    world: World
    count: int
    wanted: dict[str, int] = field(default_factory=dict)
    _changing: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """One change of a PodScaler at a time, so that its expected count is known."""

    async def create_all(self, chance: random.Random) -> None:
        """Create the objects."""
        for number in range(self.count):
            name = f"scaler-{number}"
            self.wanted[name] = chance.randint(0, _MAX_PODS)
            manifest = (
                f"{{apiVersion: scaling.example.com/v1, kind: PodScaler, metadata: {{name: {name}}}, "
                f"spec: {{count: {self.wanted[name]}, selector: {{app: {name}}}}}}}"
            )
            await accepted(partial(self.world.create, manifest))

    def change(self, chance: random.Random) -> Change:
        """Draw a change of one of them, or of its pods, by a user."""
        name, count, luck = chance.choice(sorted(self.wanted)), chance.randint(0, _MAX_PODS), chance.random()
        if luck < 0.6:
            return Change(f"{name} scaled", partial(self.scale, name, count))
        if luck < 0.8:
            return Change(f"a pod of {name} deleted", partial(self._delete_pod, name))
        return Change(f"a pod added to {name}", partial(self._add_pod, name))

    async def scale(self, name: str, count: int) -> None:
        """Request another count."""
        async with self._changing[name]:
            self.wanted[name] = count
            await accepted(lambda: self.world.patch(POD_SCALER, name, {"spec": {"count": count}}))

    async def problems(self) -> list[str]:
        """Return deviations from the expected state."""
        scalers = await self.world.objects(POD_SCALER)
        counts: dict[str, int] = dict.fromkeys(self.wanted, 0)
        for pod in await self.world.objects(POD):
            app = (metadata_of(pod).get("labels") or {}).get("app")
            if app in counts and not is_being_deleted(pod):
                counts[app] += 1
        found = [] if len(scalers) == len(self.wanted) else [f"{len(scalers)} PodScalers, not {len(self.wanted)}"]
        for scaler in scalers:
            found += self._problems(scaler, counts)
        return found

    def _problems(self, scaler: RawObject, counts: dict[str, int]) -> list[str]:
        name = str(metadata_of(scaler)["name"])
        wanted, actual, reported = self.wanted[name], counts[name], status_of(scaler).get("pods")
        found = [] if scaler["spec"]["count"] == wanted else [f"the spec has {scaler['spec']['count']}, not {wanted}"]
        found += [] if actual == wanted else [f"{actual} pods, not {wanted}"]
        found += [] if reported == wanted else [f"the status has {reported} pods, not {wanted}"]
        return [f"{name}: {text}" for text in (*found, *condition_problems(scaler))]

    async def _delete_pod(self, name: str) -> None:
        pods = await accepted(lambda: self.world.pods(app=name))
        if not pods:
            return
        try:
            await accepted(lambda: self.world.delete(POD, str(metadata_of(pods[0])["name"])))
        except NotFoundError:
            return  # the role has deleted it first

    async def _add_pod(self, name: str) -> None:
        manifest = (
            f"{{apiVersion: v1, kind: Pod, metadata: {{generateName: extra-, labels: {{app: {name}}}}}, "
            "spec: {containers: [{name: nginx, image: nginx}]}}"
        )
        try:
            await accepted(lambda: self.world.create(manifest))
        except ConflictError:
            return
