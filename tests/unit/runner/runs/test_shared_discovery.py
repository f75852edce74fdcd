"""Runs share fresh discovery, and each is notified of its own changes only."""

import asyncio
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rolecall.kube.discovery import AggregatedDiscovery, Served
from rolecall.kube.errors import KubeError, UnreachableError
from rolecall.runner.runs.discovery_image import DiscoveryImage, RunDiscovery
from rolecall.runner.runs.shared_discovery import RunDiscoveryHandle, SharedDiscovery
from tests.unit.fake_cluster import FakeCluster


@dataclass
class Source(AggregatedDiscovery):
    """Stands for an API server: returns ``serves`` once, until it is set again."""

    connection: FakeCluster = field(default_factory=FakeCluster)
    serves: Served | None = None
    failure: KubeError | None = None
    requests: int = 0
    on_request: Callable[[], None] = lambda: None

    async def changed(self) -> Served | None:
        """Return the served kinds, or fail."""
        self.requests += 1
        self.on_request()
        if self.failure is not None:
            raise self.failure
        served, self.serves = self.serves, None
        return served


def serving(*groups: str) -> Served:
    """Return the kinds that an API server with these groups serves."""
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


async def handle_of(shared: SharedDiscovery) -> RunDiscoveryHandle:
    """Return the discovery of a run that starts now."""
    handle = await shared.for_run()
    assert handle is not None
    return handle


def received(handle: RunDiscoveryHandle) -> RunDiscovery:
    """Return the discovery as the process of the run receives it."""
    return RunDiscovery.receive(*(os.dup(each) for each in handle.descriptors))


def groups(handle: RunDiscoveryHandle) -> list[str]:
    """Return the groups in the discovery of a run."""
    return list(received(handle).image.groups)


async def test_runs_that_start_within_a_second_share_one_request(
    shared: SharedDiscovery, source: Source, clock: Clock
) -> None:
    first = await handle_of(shared)
    clock.seconds += 0.9
    source.serves = serving("apps", "new")
    assert (await handle_of(shared)).image is first.image
    assert source.requests == 1


async def test_later_run_receives_what_has_changed(shared: SharedDiscovery, source: Source, clock: Clock) -> None:
    before = await handle_of(shared)
    clock.seconds += 1
    source.serves = serving("apps", "new")
    assert groups(await handle_of(shared)) == ["apps", "new"]
    assert groups(before) == ["apps"]


async def test_shared_image_is_immutable(shared: SharedDiscovery) -> None:
    image, _ = (await handle_of(shared)).descriptors
    with pytest.raises(PermissionError):
        os.pwrite(image, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(image, 1)


@pytest.mark.parametrize("group", ["apiextensions.k8s.io", "apiregistration.k8s.io"])
async def test_only_the_run_that_changes_what_is_served_is_notified(shared: SharedDiscovery, group: str) -> None:
    one, other = await handle_of(shared), await handle_of(shared)
    one.record_write("apps")
    assert received(one).is_current
    one.record_write(group)
    assert not received(one).is_current
    assert received(other).is_current


async def test_last_image_is_used_while_the_api_server_does_not_respond(
    shared: SharedDiscovery, source: Source, clock: Clock
) -> None:
    source.failure = UnreachableError("no response")
    assert await shared.for_run() is None
    source.failure = None
    clock.seconds += 1
    assert groups(await handle_of(shared)) == ["apps"]
    source.failure = UnreachableError("no response")
    clock.seconds += 1
    assert groups(await handle_of(shared)) == ["apps"]


async def test_runs_share_one_wait_for_an_unresponsive_api_server(
    shared: SharedDiscovery, source: Source, clock: Clock
) -> None:
    def time_out() -> None:
        clock.seconds += 5

    source.on_request, source.failure = time_out, UnreachableError("no response")
    assert not any(await asyncio.gather(shared.for_run(), shared.for_run()))
    assert source.requests == 1


async def test_files_are_closed_with_their_handle(shared: SharedDiscovery) -> None:
    handle = await handle_of(shared)
    image, changed = handle.descriptors
    del handle
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(changed)
    assert DiscoveryImage.decode(os.pread(image, os.fstat(image).st_size, 0)).groups
