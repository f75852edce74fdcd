"""Runs share what the API server serves while it is fresh, and each learns of its own changes alone."""

import asyncio
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rolecall.kube.discovery import AggregatedDiscovery, Served
from rolecall.kube.errors import KubeError, UnreachableError
from rolecall.runner.runs.api_access import DiscoveryGrant, SharedDiscovery
from rolecall.runner.runs.discovery_image import DiscoveryImage, RunDiscovery
from tests.unit.fake_cluster import FakeCluster


@dataclass
class Source(AggregatedDiscovery):
    """Stands for an API server: tells ``serves`` once, until it is set again."""

    connection: FakeCluster = field(default_factory=FakeCluster)
    serves: Served | None = None
    failure: KubeError | None = None
    looks: int = 0
    on_look: Callable[[], None] = lambda: None

    async def changed(self) -> Served | None:
        """Tell what is served, or fail."""
        self.looks += 1
        self.on_look()
        if self.failure is not None:
            raise self.failure
        told, self.serves = self.serves, None
        return told


def serving(*groups: str) -> Served:
    """Return what an API server with these groups serves."""
    return Served({group: {"v1": []} for group in groups}, {"gitVersion": "v1.37.1"})


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source() -> Source:
    return Source(serves=serving("apps"))


@pytest.fixture
def shared(source: Source, clock: Clock) -> SharedDiscovery:
    return SharedDiscovery(source, clock)


async def granted(shared: SharedDiscovery) -> DiscoveryGrant:
    """Return what a run gets."""
    grant = await shared.for_run()
    assert grant is not None
    return grant


def seen(grant: DiscoveryGrant) -> RunDiscovery:
    """Return what the process of a run makes of it."""
    return RunDiscovery.receive(*(os.dup(each) for each in grant.descriptors))


def groups(grant: DiscoveryGrant) -> list[str]:
    """Return the groups that a run knows."""
    return list(seen(grant).image.groups)


async def test_runs_that_start_within_a_second_share_one_look(
    shared: SharedDiscovery, source: Source, clock: Clock
) -> None:
    first = await granted(shared)
    clock.seconds += 0.9
    source.serves = serving("apps", "new")
    assert (await granted(shared)).image is first.image
    assert source.looks == 1


async def test_a_run_that_starts_later_knows_what_has_changed(
    shared: SharedDiscovery, source: Source, clock: Clock
) -> None:
    before = await granted(shared)
    clock.seconds += 1
    source.serves = serving("apps", "new")
    assert groups(await granted(shared)) == ["apps", "new"]
    assert groups(before) == ["apps"]


async def test_what_has_not_changed_stays_the_same_file(shared: SharedDiscovery, clock: Clock) -> None:
    first = await granted(shared)
    clock.seconds += 10
    assert (await granted(shared)).image is first.image


async def test_nobody_can_change_what_runs_share(shared: SharedDiscovery) -> None:
    image, _ = (await granted(shared)).descriptors
    with pytest.raises(PermissionError):
        os.pwrite(image, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(image, 1)


@pytest.mark.parametrize("group", ["apiextensions.k8s.io", "apiregistration.k8s.io"])
async def test_a_run_that_changes_what_is_served_learns_it_and_others_do_not(
    shared: SharedDiscovery, group: str
) -> None:
    one, other = await granted(shared), await granted(shared)
    one.note_write("apps")
    assert seen(one).is_current
    one.note_write(group)
    assert not seen(one).is_current
    assert seen(other).is_current


async def test_while_the_api_server_does_not_answer_what_is_known_is_used(
    shared: SharedDiscovery, source: Source, clock: Clock
) -> None:
    source.failure = UnreachableError("no answer")
    assert await shared.for_run() is None
    source.failure = None
    clock.seconds += 1
    assert groups(await granted(shared)) == ["apps"]
    source.failure = UnreachableError("no answer")
    clock.seconds += 1
    assert groups(await granted(shared)) == ["apps"]


async def test_runs_do_not_wait_one_after_the_other_for_an_api_server_that_does_not_answer(
    shared: SharedDiscovery, source: Source, clock: Clock
) -> None:
    def wait_in_vain() -> None:
        clock.seconds += 5

    source.on_look, source.failure = wait_in_vain, UnreachableError("no answer")
    assert not any(await asyncio.gather(shared.for_run(), shared.for_run()))
    assert source.looks == 1


async def test_files_are_closed_when_nobody_needs_them_any_more(shared: SharedDiscovery) -> None:
    grant = await granted(shared)
    image, changed = grant.descriptors
    del grant
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(changed)
    assert DiscoveryImage.decode(os.pread(image, os.fstat(image).st_size, 0)).groups
