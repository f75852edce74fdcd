"""Hikawas with one short song after another, and a record of every word ever seen.

A repeated word is another Zundoko of the same name; none is deleted before its song has ended.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from rolecall.kube.errors import ConflictError, KubeError, NotFoundError
from rolecall.kube.metadata import owner_references_of, uid_of
from rolecall.kube.references import RawObject
from tests.chaos.heartbeats import condition_problems, status_of
from tests.chaos.requests import RETRY_SECONDS, Change, accepted
from tests.integration.songs import expected, manifest, song
from tests.support.world import HIKAWA, KIYOSHI, ZUNDOKO, World, names

_MAX_SONG_WORDS = 6
_INTERVALS = (0, 50, 200)
_WATCH_SECONDS = 600


@dataclass(slots=True)
class HikawaWorkload:
    """The current song, and all uids seen for each word."""

    world: World
    name: str = ""
    seed: str = ""
    seen: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By the uid of the Hikawa and the name of the word."""
    _count: int = 0

    def change(self, chance: random.Random) -> Change:
        """Draw the next song."""
        seed, interval = _short_seed(chance), chance.choice(_INTERVALS)
        return Change("a song", partial(self.sing, seed, interval))

    async def sing(self, seed: str, interval_millis: int) -> None:
        """Start a song; delete the previous one with its words."""
        last, self._count = self.name, self._count + 1
        self.name, self.seed = f"song-{self._count}", seed
        if last:
            await accepted(partial(self._delete, last))
        text = manifest(self.name, seed, intervalMillis=interval_millis)
        with suppress(ConflictError):
            await accepted(lambda: self.world.create(text))

    async def problems(self) -> list[str]:
        """Return the deviations of the song from its expected words and status."""
        if not self.name:
            return []
        hikawa = await self.world.find(HIKAWA, self.name)
        if hikawa is None:
            return [f"{self.name} is missing"]
        said = {each["metadata"]["name"]: each["spec"]["say"] for each in await self._words(hikawa)}
        wanted = expected(self.name, song(self.seed))
        found = [] if said == wanted else [f"said {list(said.values())}, not {list(wanted.values())}"]
        found += [] if status_of(hikawa).get("kiyoshied") else ["the song has not ended"]
        return [f"{self.name}: {text}" for text in (*found, *condition_problems(hikawa))]

    async def leaked(self) -> list[str]:
        """Return the words and Kiyoshis of deleted songs."""
        living = {uid_of(obj) for obj in await self.world.objects(HIKAWA)}
        said = [*await self.world.objects(ZUNDOKO), *await self.world.objects(KIYOSHI)]
        orphans = [each for each in said if not any(owner.uid in living for owner in owner_references_of(each))]
        return [f"{name}, whose Hikawa was deleted" for name in names(orphans)]

    def duplicated(self) -> list[str]:
        """Return repeated words."""
        return [name for (_, name), uids in self.seen.items() if len(uids) > 1]

    @asynccontextmanager
    async def watched_words(self) -> AsyncIterator[None]:
        """Record every word until the end of the block."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            with suppress(KubeError):
                version = ""
                async for page, version in self.world.client.list_pages(ZUNDOKO, self.world.namespace):  # noqa: B007
                    for zundoko in page:
                        self._note(zundoko)
                async for _, zundoko in self.world.client.watch(ZUNDOKO, self.world.namespace, version, _WATCH_SECONDS):
                    self._note(zundoko)
            await asyncio.sleep(RETRY_SECONDS)

    def _note(self, zundoko: RawObject) -> None:
        for owner in owner_references_of(zundoko):
            name = str(zundoko["metadata"]["name"])
            self.seen.setdefault((owner.uid, name), set()).add(uid_of(zundoko))

    async def _words(self, hikawa: RawObject) -> list[RawObject]:
        found = await self.world.objects(ZUNDOKO)
        return [each for each in found if any(owner.uid == uid_of(hikawa) for owner in owner_references_of(each))]

    async def _delete(self, name: str) -> None:
        with suppress(NotFoundError):
            await self.world.delete(HIKAWA, name)


def _short_seed(chance: random.Random) -> str:
    while len(song(seed := f"seed-{chance.getrandbits(32)}")) > _MAX_SONG_WORDS:
        pass
    return seed
