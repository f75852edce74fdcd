import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Never

import pytest
from structlog.testing import capture_logs

from rolecall.kube.errors import ApiError, KubeError, ResponseTimeoutError, UnreachableError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.controller import Controller, Dispatcher, Result
from rolecall.runner.controller.manager import Manager
from rolecall.runner.controller.store import Change
from rolecall.runner.controller.work_queue import Backoff, Cause, WorkQueue
from rolecall.runner.election.elector import LeadershipLostError
from tests.support.metrics import controller_metrics
from tests.unit.manual_clock import ManualClock, settle
from tests.unit.runner.controller.fake_server import WIDGET, FakeServer

CAUSE = Cause("test")
GADGET = GVK("example.com", "v1", "Gadget")


class FakeLeadership:
    """A leadership that the test grants and revokes."""

    def __init__(self, log: list[str]) -> None:
        self.elected = asyncio.Event()
        self.lost = asyncio.Event()
        self.log = log
        self.seconds_left = 5.0
        self.holder = ""

    @property
    def is_leading(self) -> bool:
        """Return whether it is won and not lost."""
        return self.elected.is_set() and not self.lost.is_set()

    async def run(self) -> Never:
        """Wait for the loss."""
        await self.lost.wait()
        raise LeadershipLostError("lost")

    async def release(self) -> None:
        """Record when it is released."""
        self.log.append(f"release, leading: {self.is_leading}")


class Operator:
    """A manager with one controller, whose reconciles wait for ``gate``, on a server with one object."""

    def __init__(self, *, grace_seconds: float = 0.2, has_leadership: bool = False) -> None:
        self.server = FakeServer()
        self.server.put("web")
        self.clock = ManualClock()
        self.log: list[str] = []
        self.leadership = FakeLeadership(self.log)
        leadership = self.leadership if has_leadership else None
        self.manager = Manager(self.server, None, self.clock, Dispatcher(), grace_seconds, 10, leadership)
        self.queue: WorkQueue[ObjectKey] = WorkQueue(self.clock, Backoff(1, 300), controller_metrics())
        self.controller = Controller(WIDGET, self.queue, 1, self.reconcile, lambda *_: False)
        self.manager.informer_for(WIDGET).subscribe(lambda change: self.queue.add(change.key, CAUSE))
        self.manager.dispatcher.add(self.controller)
        self.gate = asyncio.Event()
        self.gate.set()
        self.ignores_cancellation = False

    async def reconcile(self, request: ObjectKey, _causes: tuple[Cause, ...]) -> Result:
        """Record how the reconcile starts and ends."""
        self.log.append(f"start {request}")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.log.append(f"cancel {request}, {self.server.streams} streams")
            while self.ignores_cancellation:
                with contextlib.suppress(asyncio.CancelledError):
                    await self.gate.wait()
            raise
        self.log.append(f"end {request}")
        return Result()


@pytest.fixture
async def operator() -> Operator:
    return Operator()


@contextlib.asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(operator.manager.run())
    await settle()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.parametrize(
    "failure",
    [
        ApiError(500, "InternalError", "conversion webhook for example.com/v2, Kind=Gadget failed"),
        ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
        ResponseTimeoutError("GET /apis/example.com/v1/gadgets got no answer"),
    ],
)
@pytest.mark.parametrize("in_discovery", [False, True])
async def test_kind_that_cannot_be_listed_blocks_only_itself(
    operator: Operator, failure: KubeError, *, in_discovery: bool
) -> None:
    broken = operator.server.undiscoverable_kinds if in_discovery else operator.server.broken_kinds
    broken[GADGET] = failure
    gadgets = operator.manager.informer_for(GADGET)
    with capture_logs() as logs:
        async with running(operator):
            assert not operator.manager.has_settled
            for _ in range(200):
                await operator.clock.advance_and_settle(0.1)
            assert operator.manager.has_settled
            assert operator.log == ["start default/web", "end default/web"]
            assert list(operator.manager.blocked_kinds) == [GADGET]
            broken.clear()
            for _ in range(200):
                await operator.clock.advance_and_settle(0.1)
            assert gadgets.synced.is_set()
            assert operator.manager.blocked_kinds == {}
    assert [line["event"] for line in logs].count("Starting without kinds that cannot be listed") == 1
    assert len([line for line in logs if line["log_level"] == "warning"]) == 2


async def test_all_kinds_wait_while_the_api_server_is_unreachable(operator: Operator) -> None:
    operator.server.failure = UnreachableError("connection refused")
    async with running(operator):
        for _ in range(600):
            await operator.clock.advance_and_settle(0.1)
        assert not operator.manager.has_settled
        assert operator.manager.blocked_kinds == {}


async def test_there_is_one_informer_for_each_kind(operator: Operator) -> None:
    widgets = operator.manager.informer_for(WIDGET)
    assert operator.manager.informer_for(WIDGET) is widgets
    assert operator.manager.informer_for(GADGET) is not widgets
    assert list(operator.manager.informers) == [WIDGET, GADGET]


async def test_informer_requested_while_running_reports_existing_objects(operator: Operator) -> None:
    async with running(operator):
        changes: list[Change] = []
        operator.manager.informer_for(GADGET).subscribe(changes.append)
        await settle()
        assert [change.key.name for change in changes] == ["web"]
        assert operator.server.streams == 2
    assert operator.server.streams == 0


async def test_stop_lets_a_running_reconcile_finish() -> None:
    operator = Operator(grace_seconds=60)
    operator.gate.clear()
    async with running(operator) as task:
        operator.queue.add(ObjectKey("default", "later"), CAUSE)
        operator.manager.stop()
        await settle()
        operator.gate.set()
        await asyncio.wait_for(task, 60)
    assert operator.log == ["start default/web", "end default/web"]


async def test_stopping_leader_that_loses_its_lease_cancels_running_reconciles_immediately() -> None:
    operator = Operator(grace_seconds=3600, has_leadership=True)
    operator.leadership.elected.set()
    operator.leadership.seconds_left = 60.0
    operator.gate.clear()
    async with running(operator) as task:
        operator.manager.stop()
        await settle()
        assert operator.log == ["start default/web"]
        operator.leadership.lost.set()
        await asyncio.wait_for(task, 60)
    assert operator.log[1:] == ["cancel default/web, 1 streams", "release, leading: False"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_stop_or_cancellation_cancels_reconciles_while_informers_watch(
    operator: Operator, *, is_cancelled: bool
) -> None:
    operator.gate.clear()
    async with running(operator) as task:
        if not is_cancelled:
            operator.manager.stop()
            await asyncio.wait_for(task, 60)
    assert operator.log == ["start default/web", "cancel default/web, 1 streams"]
    assert operator.server.streams == 0


async def test_reconcile_that_ignores_its_cancellation_is_logged_and_does_not_block_the_stop() -> None:
    operator = Operator(grace_seconds=0.01)
    operator.gate.clear()
    operator.ignores_cancellation = True
    with capture_logs() as logs:
        async with running(operator) as task:
            operator.manager.stop()
            await asyncio.wait_for(task, 60)
    assert ("Reconciles did not end within the grace period", [f"{WIDGET} default/web"]) in [
        (line["event"], line.get("objects")) for line in logs
    ]
    operator.ignores_cancellation = False
    operator.gate.set()
    await settle()


async def test_crashed_background_task_stops_the_manager_with_its_error(operator: Operator) -> None:
    async with running(operator) as task:
        operator.server.end_streams(ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(task, 60)
    assert operator.server.streams == 0


async def test_only_workers_wait_for_the_leadership() -> None:
    operator = Operator(has_leadership=True)
    async with running(operator):
        assert operator.manager.has_settled
        assert operator.server.streams == 1
        assert operator.log == []
        operator.leadership.elected.set()
        await settle()
        assert operator.log == ["start default/web", "end default/web"]


async def test_leadership_is_released_after_the_last_reconcile() -> None:
    operator = Operator(has_leadership=True, grace_seconds=3600)
    operator.leadership.elected.set()
    operator.gate.clear()
    async with running(operator) as task:
        operator.manager.stop()
        await settle()
        assert operator.log == ["start default/web"]
        operator.gate.set()
        await asyncio.wait_for(task, 60)
    assert operator.log[1:] == ["end default/web", "release, leading: True"]


async def test_leadership_is_kept_while_a_reconcile_does_not_end() -> None:
    operator = Operator(has_leadership=True, grace_seconds=0.01)
    operator.leadership.elected.set()
    operator.gate.clear()
    operator.ignores_cancellation = True
    async with running(operator) as task:
        operator.manager.stop()
        await task
    assert "release, leading: True" not in operator.log
    operator.ignores_cancellation = False
    operator.gate.set()


async def test_lost_leadership_ends_reconciles_within_the_time_left() -> None:
    operator = Operator(has_leadership=True, grace_seconds=3600)
    operator.leadership.elected.set()
    operator.leadership.seconds_left = 0.01
    operator.gate.clear()
    operator.ignores_cancellation = True
    async with running(operator) as task:
        operator.leadership.lost.set()
        with pytest.raises(LeadershipLostError):
            await asyncio.wait_for(task, 60)
    assert operator.log[1].startswith("cancel default/web")
    operator.ignores_cancellation = False
    operator.gate.set()


async def test_follower_stops_immediately() -> None:
    operator = Operator(has_leadership=True)
    operator.leadership.seconds_left = float("-inf")
    async with running(operator) as task:
        operator.manager.stop()
        await task
    assert operator.log == ["release, leading: False"]
