"""Hikawa: a song of random words, sung in order, without gap or duplicate, regardless of faults.

Songs come from seeds, so the tests know every word before it is sung; no song here has more than eight words.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, RawObject
from tests.integration.operators import Operator
from tests.integration.songs import END, expected, manifest, seeds, song, word, words
from tests.support.world import HIKAWA, KIYOSHI, TIMEOUT_SECONDS, ZUNDOKO, World, always, eventually, names

pytestmark = pytest.mark.core


async def wait_for_kiyoshi(world: World, name: str) -> RawObject:
    """Wait until the song has ended."""

    def is_over(obj: RawObject) -> bool:
        return bool((obj.get("status") or {}).get("kiyoshied"))

    return await world.wait_for(HIKAWA, name, is_over)


@asynccontextmanager
async def recording(world: World) -> AsyncIterator[list[tuple[float, str, str]]]:
    """Watch Zundokos and Kiyoshis during the block; yield the growing list of (seconds, type of event, name)."""
    seen: list[tuple[float, str, str]] = []

    async def version(gvk: GVK) -> str:
        return [found async for _, found in world.client.list_pages(gvk, world.namespace)][-1]

    async def listen(gvk: GVK, start: str) -> None:
        async for kind, obj in world.client.watch(gvk, world.namespace, start, 600):
            if kind in ("ADDED", "DELETED"):
                seen.append((time.monotonic(), kind, str(metadata_of(obj)["name"])))

    starts = {gvk: await version(gvk) for gvk in (ZUNDOKO, KIYOSHI)}
    tasks = [asyncio.create_task(listen(gvk, start)) for gvk, start in starts.items()]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def has_recorded(seen: list[tuple[float, str, str]], count: int) -> None:
    """Wait until so many events have arrived, which may be later than the status."""

    async def look() -> int:
        return len(seen)

    await eventually(look, lambda found: found == count, TIMEOUT_SECONDS, f"{count} events")


@pytest.mark.parametrize("interval_millis", [0, 500])
async def test_sings_its_song_to_the_end(world: World, running: Operator, interval_millis: int) -> None:
    """Numbered words, then one Kiyoshi, then silence."""
    seed = next(seeds(6))
    async with recording(world) as seen:
        await world.create(manifest("hikawa-sample", seed, intervalMillis=interval_millis))
        hikawa = await wait_for_kiyoshi(world, "hikawa-sample")
        assert await words(world, "hikawa-sample") == expected("hikawa-sample", song(seed))
        assert hikawa["status"]["numZundokosSaid"] == 6
        assert hikawa["spec"]["numZundokos"] == 6
        assert hikawa["spec"]["sayKiyoshi"] is True
        assert hikawa["status"]["timing"].keys() == {"leadMillis", "sayingMillis", "wasEarly"}
        (kiyoshi,) = await world.objects(KIYOSHI)
        assert (names([kiyoshi]), kiyoshi["spec"]["say"]) == (["hikawa-sample-kiyoshi"], "Kiyoshi!")

        async def look() -> int:
            return len(await world.objects(ZUNDOKO)) + len(await world.objects(KIYOSHI))

        await always(look, lambda count: count == 7, 5, "nothing more is said")
    assert [(kind, name) for _, kind, name in seen] == [
        *(("ADDED", name) for name in expected("hikawa-sample", song(seed))),
        ("ADDED", "hikawa-sample-kiyoshi"),
    ]
    assert running.messages("Task failed", namespace=world.namespace) == []


@pytest.mark.alone
@pytest.mark.usefixtures("running")
async def test_interval_separates_words_and_kiyoshi(world: World) -> None:
    async with recording(world) as seen:
        await world.create(manifest("hikawa-sample", next(seeds(6)), intervalMillis=500))
        await wait_for_kiyoshi(world, "hikawa-sample")
        await has_recorded(seen, 7)
    gaps = [after - before for (before, *_), (after, *_) in itertools.pairwise(seen)]
    # The watch itself takes a few milliseconds, not always the same ones.
    assert min(gaps) >= 0.5 - 0.01


async def test_goes_on_with_its_song_after_a_kill(world: World, operator: Operator, running: Operator) -> None:
    """A runner that is killed during a song and restarted repeats no number and changes no word."""
    seed = next(seeds(7))
    async with recording(world) as seen:
        await world.create(manifest("hikawa-sample", seed, intervalMillis=100))
        for least in (2, 4):
            await eventually(
                lambda: words(world, "hikawa-sample"),
                lambda said: len(said) >= least,  # noqa: B023 - called only in this iteration
                TIMEOUT_SECONDS,
                "words",
            )
            operator.kill()
            operator.start()
        await wait_for_kiyoshi(world, "hikawa-sample")
        await has_recorded(seen, 8)
    assert await words(world, "hikawa-sample") == expected("hikawa-sample", song(seed))
    said = [name for _, kind, name in seen if kind == "ADDED"]
    assert said == [*expected("hikawa-sample", song(seed)), "hikawa-sample-kiyoshi"]
    assert running.messages("Task failed", namespace=world.namespace) == []


@pytest.mark.usefixtures("running")
async def test_says_a_deleted_word_again(world: World) -> None:
    """A Zundoko that is deleted during the song is recreated with its number and its word."""
    seed = next(seeds(8))
    await world.create(manifest("hikawa-sample", seed, intervalMillis=1500))
    await eventually(lambda: words(world, "hikawa-sample"), lambda said: len(said) >= 3, TIMEOUT_SECONDS, "three words")
    await world.delete(ZUNDOKO, "hikawa-sample-zundoko-002")
    await wait_for_kiyoshi(world, "hikawa-sample")
    assert await words(world, "hikawa-sample") == expected("hikawa-sample", song(seed))


@pytest.mark.usefixtures("running")
async def test_requested_words_precede_the_check_for_the_end(world: World) -> None:
    """The first check of the song comes after the tenth word, although it could have ended after the fifth."""
    seed = next(seed for seed in seeds(5) if [word(number, seed) for number in range(6, 11)] == END)
    await world.create(manifest("hikawa-sample", seed, intervalMillis=0, numZundokos=10))
    hikawa = await wait_for_kiyoshi(world, "hikawa-sample")
    assert await words(world, "hikawa-sample") == expected("hikawa-sample", END + END)
    assert hikawa["spec"]["numZundokos"] == 10
    assert names(await world.objects(KIYOSHI)) == ["hikawa-sample-kiyoshi"]


@pytest.mark.usefixtures("running")
async def test_kiyoshi_is_said_on_request(world: World) -> None:
    """`sayKiyoshi: true` needs no pattern, but the words requested come first."""
    seed = next(seeds(8))
    await world.create(manifest("hikawa-sample", seed, intervalMillis=0, numZundokos=2, sayKiyoshi=True))
    hikawa = await wait_for_kiyoshi(world, "hikawa-sample")
    assert await words(world, "hikawa-sample") == expected("hikawa-sample", song(seed)[:2])
    assert hikawa["spec"]["numZundokos"] == 2
    assert names(await world.objects(KIYOSHI)) == ["hikawa-sample-kiyoshi"]


@pytest.mark.usefixtures("running")
async def test_concurrent_songs_have_separate_words_deleted_with_their_owner(world: World) -> None:
    """Each has its own song. The deletion of one deletes only its own words and its Kiyoshi."""
    first, second = itertools.islice(seeds(5), 2)
    await world.create(manifest("first", first, intervalMillis=0))
    await world.create(manifest("second", second, intervalMillis=200))
    await wait_for_kiyoshi(world, "first")
    await wait_for_kiyoshi(world, "second")
    assert await words(world, "first") == expected("first", song(first))
    assert await words(world, "second") == expected("second", song(second))
    await world.delete(HIKAWA, "first")
    await eventually(
        lambda: world.objects(KIYOSHI), lambda left: names(left) == ["second-kiyoshi"], TIMEOUT_SECONDS, "one Kiyoshi"
    )
    await eventually(
        lambda: words(world, "first"), lambda said: not said, TIMEOUT_SECONDS, "the first one's words are gone"
    )
    assert await words(world, "second") == expected("second", song(second))
