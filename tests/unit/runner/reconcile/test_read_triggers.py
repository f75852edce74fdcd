from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.store import Entry
from rolecall.runner.controller.work_queue import Backoff, Cause, WorkQueue
from rolecall.runner.proxy.sessions import Read
from rolecall.runner.reads.read_sets import ReadCause
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.kubernetes_events import EventSpec
from rolecall.runner.reconcile.read_triggers import DELAYED, LoopBackoff, ReadTriggers
from rolecall.runner.runs.outcome import Counts, Outcome
from rolecall.runner.runs.own_writes import DependentCause, OwnWrites, SelfTriggers
from tests.support.metrics import controller_metrics
from tests.unit.manual_clock import ManualClock, settle
from tests.unit.runner.controller.fake_server import WIDGET
from tests.unit.runner.reads.rig import ONE, SONG, VERBS, Rig

CHANGED = Outcome("successful", counts=Counts(ok=1, changed=1))
UNCHANGED = Outcome("successful", counts=Counts(ok=1))
WIDGETS = ApiResource(WIDGET, "widgets", True, VERBS, frozenset())  # noqa: FBT003 - namespaced
LABELS = {"tier": "web"}


class Operator:
    """The triggers of one kind with one object, whose runs read the widget ``w``."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.server, self.clock = self.rig.server, self.rig.clock
        self.queue: WorkQueue[ObjectKey] = WorkQueue(self.clock, Backoff(1, 300), controller_metrics())
        self.own_writes = OwnWrites(self.clock.monotonic)
        self.events: list[tuple[RawObject, EventSpec]] = []
        self.labels = LABELS
        self.self_triggers = SelfTriggers(SONG, self.own_writes)
        self.triggers = ReadTriggers(
            watch=Watch(SONG, RoleContent(Path("role")), selector=LabelSelector.compile({"matchLabels": LABELS})),
            find=self.find,
            queue=self.queue,
            self_triggers=self.self_triggers,
            record=lambda obj, spec: self.events.append((obj, spec)),
            watches=self.rig.watches,
            clock=self.clock,
        )

    def find(self, key: ObjectKey) -> Entry | None:
        """Return the informer's state of the object."""
        metadata = {"namespace": key.namespace, "name": key.name, "uid": ONE.uid, "labels": self.labels}
        return Entry.of({"metadata": metadata}) if key == ONE.key else None

    async def change(self, number: int, *, by_a_run: bool) -> None:
        """Change the widget that the runs read, by a run of another object or by a user."""
        written = self.server.put("w", spec={"number": number})
        if by_a_run:
            self.own_writes.record_write((SONG, ObjectKey("default", "two")), written)
        await settle()

    async def begin(self, before: Callable[[], object] = lambda: None) -> tuple[Cause, ...]:
        """Take the request of the object, and begin a run that reads."""
        key, causes = self.queue.take()
        assert key == ONE.key
        self.self_triggers.run_started(key, {"metadata": {"uid": ONE.uid, "resourceVersion": "1"}})
        before()
        await settle()
        reads = self.triggers.sets.start(ONE)
        pending = reads.register(Read(WIDGETS, "get", ObjectKey("default", "w")))
        assert pending is not None
        found = self.server.objects.get(ObjectKey("default", "w"))
        content = found and {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind} | found
        pending.record_response(200 if found else 404, content, None)
        await settle()
        return causes

    async def end(self, causes: tuple[Cause, ...], outcome: Outcome = CHANGED) -> None:
        """End the run as the controller does."""
        context = ReconcileContext(ONE.key, "job", causes)
        context.outcome = outcome
        self.triggers.run_ended(context)
        self.queue.done(ONE.key, self.is_news)
        await settle()

    def is_news(self, cause: Cause) -> bool:
        """Return whether a cause that came in during a run calls for another one."""
        return isinstance(cause, ReadCause) and self.triggers.sets.counts(ONE.key, cause)

    async def run(self, outcome: Outcome = CHANGED) -> list[str]:
        """Run once, and return why."""
        causes = await self.begin()
        await self.end(causes, outcome)
        return [cause.text for cause in causes]


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    operator = Operator()
    async with operator.rig.watches.running():
        operator.queue.add(ONE.key, Cause("created"))
        await operator.run()
        yield operator


async def test_deselected_object_is_not_triggered(operator: Operator) -> None:
    operator.labels = {}
    operator.server.put("w")
    await settle()
    assert (len(operator.queue), operator.queue.waiting) == (0, 0)


async def test_own_write_does_not_trigger(operator: Operator) -> None:
    written = operator.server.put("w")
    operator.own_writes.record_write((SONG, ONE.key), written)
    await settle()
    assert len(operator.queue) == 0


async def test_change_during_a_run_is_judged_at_its_end(operator: Operator) -> None:
    operator.queue.add(ONE.key, Cause("period"))
    causes = await operator.begin()
    operator.server.put("w", spec={"a": 1})
    await settle()
    assert len(operator.queue) == 0
    await operator.end(causes)
    assert await operator.run() == ["read Widget default/w created"]


async def test_change_before_the_read_does_not_trigger(operator: Operator) -> None:
    operator.queue.add(ONE.key, Cause("period"))
    causes = await operator.begin(lambda: operator.server.put("w"))
    await operator.end(causes)
    assert len(operator.queue) == 0


async def test_object_in_a_loop_of_runs_waits_longer_each_time(operator: Operator) -> None:
    due = []
    for number in range(6):
        await operator.change(number, by_a_run=True)
        waited = 0
        while not len(operator.queue):
            await operator.clock.advance_and_settle(1)
            waited += 1
        due.append(waited)
        await operator.run()
    assert due == [0, 1, 2, 4, 8, 16]


async def test_change_by_another_client_triggers_immediately_however_often(operator: Operator) -> None:
    for number in range(9):
        await operator.change(number, by_a_run=False)
        assert len(operator.queue) == 1
        await operator.run()
    assert operator.events == []


async def test_change_by_another_client_ends_the_waiting(operator: Operator) -> None:
    for number in range(3):
        await operator.change(number, by_a_run=True)
        await operator.clock.advance_and_settle(10)
        await operator.run()
    await operator.change(8, by_a_run=False)
    await operator.clock.advance_and_settle(0.5)  # its writer could still become known
    await operator.run()
    await operator.change(9, by_a_run=True)
    assert len(operator.queue) == 1


async def test_write_of_a_run_whose_event_arrives_before_its_response_is_a_loop(operator: Operator) -> None:
    for number in range(3):
        await operator.change(number, by_a_run=True)
        await operator.clock.advance_and_settle(10)
        await operator.run()
    written = operator.server.put("w", spec={"number": 8})
    await settle()
    operator.own_writes.record_write((SONG, ObjectKey("default", "two")), written)
    await operator.clock.advance_and_settle(0.5)
    assert len(operator.queue) == 0
    await operator.clock.advance_and_settle(4)
    assert len(operator.queue) == 1
    await operator.run()
    await operator.change(9, by_a_run=True)
    await operator.clock.advance_and_settle(7)
    assert len(operator.queue) == 0, "the wait has doubled"


async def test_write_of_a_run_before_the_last_run_began_is_no_loop(operator: Operator) -> None:
    await operator.change(0, by_a_run=True)
    await operator.run()
    await operator.clock.advance_and_settle(1)
    operator.queue.add(ONE.key, Cause("period"))
    await operator.run()
    for number in range(1, 4):
        await operator.change(number, by_a_run=False)
        assert len(operator.queue) == 1
        await operator.run()


async def test_minute_without_a_trigger_ends_the_waiting(operator: Operator) -> None:
    for number in range(4):
        await operator.change(number, by_a_run=True)
        await operator.clock.advance_and_settle(10)
        await operator.run()
    await operator.clock.advance_and_settle(60)
    await operator.change(5, by_a_run=True)
    assert len(operator.queue) == 1
    await operator.run()
    await operator.change(6, by_a_run=True)
    await operator.clock.advance_and_settle(1)
    assert len(operator.queue) == 1


async def test_run_that_changes_nothing_ends_the_waiting(operator: Operator) -> None:
    for number, summary in enumerate((CHANGED, CHANGED, UNCHANGED)):
        await operator.change(number, by_a_run=True)
        await operator.clock.advance_and_settle(10)
        await operator.run(summary)
    await operator.change(9, by_a_run=True)
    assert len(operator.queue) == 1


async def test_event_names_both_objects_of_a_loop(operator: Operator) -> None:
    other = ObjectKey("default", "two")
    for number in range(2):
        written = operator.server.put("w", spec={"number": number})
        operator.own_writes.record_write((SONG, other), written)
        await settle()
        if not number:
            await operator.run()
    [(obj, event)] = operator.events
    assert (obj["kind"], obj["metadata"]["name"], event.reason) == ("Song", "one", DELAYED)
    assert event.message == (
        "Widget default/w, which was read and which a run for Song default/two has written, triggers it again; "
        "waits 1 s, because its own runs change something each time"
    )


async def test_failed_run_keeps_its_read_set(operator: Operator) -> None:
    operator.queue.add(ONE.key, Cause("period"))
    causes = await operator.begin()
    await operator.end(causes, replace(CHANGED, status="failed"))
    operator.server.put("w")
    await settle()
    assert await operator.run() == ["read Widget default/w created"]


async def test_change_by_a_run_between_the_end_of_a_run_and_its_reconcile_counts_as_loop(operator: Operator) -> None:
    await operator.change(0, by_a_run=True)
    causes = await operator.begin()
    context = ReconcileContext(ONE.key, "job", causes)
    context.outcome = CHANGED
    operator.triggers.run_ended(context)
    await operator.change(1, by_a_run=True)
    operator.queue.done(ONE.key, operator.is_news)
    await operator.run()
    await operator.change(2, by_a_run=True)
    assert len(operator.queue) == 0
    await operator.clock.advance_and_settle(2)
    assert len(operator.queue) == 1


# Backoff

READ = ReadCause("read ConfigMap default/shared changed", may_be_in_loop=True)
EDIT = ReadCause("read ConfigMap default/shared changed")
BY_A_RUN = DependentCause("dependent ConfigMap default/shared: data.a", may_be_in_loop=True)
BY_ANYBODY = DependentCause("dependent ConfigMap default/shared: data.a")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def backoff(clock: ManualClock) -> LoopBackoff:
    return LoopBackoff(clock)


def test_first_trigger_by_a_read_does_not_wait(backoff: LoopBackoff) -> None:
    backoff.run_ended(ONE.key, [Cause("period")], changed=True)
    assert backoff.seconds(ONE.key, READ) == 0


def test_each_further_trigger_waits_twice_as_long_up_to_five_minutes(backoff: LoopBackoff) -> None:
    waits = []
    for _ in range(12):
        backoff.run_ended(ONE.key, [READ], changed=True)
        waits.append(backoff.seconds(ONE.key, READ))
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_wait_counts_from_the_end_of_the_run(backoff: LoopBackoff, clock: ManualClock) -> None:
    for _ in range(4):
        backoff.run_ended(ONE.key, [READ], changed=True)
    clock.advance(5)
    assert backoff.seconds(ONE.key, READ) == 3
    clock.advance(5)
    assert backoff.seconds(ONE.key, READ) == 0


@pytest.mark.parametrize(
    ("causes", "changed"),
    [([READ], False), ([READ, EDIT], True), ([READ, Cause("Thing default/one: spec.size")], True), ([], True)],
)
def test_run_without_changes_or_another_cause_ends_the_backoff(
    backoff: LoopBackoff, causes: list[Cause], *, changed: bool
) -> None:
    backoff.run_ended(ONE.key, [READ], changed=True)
    backoff.run_ended(ONE.key, causes, changed=changed)
    assert backoff.seconds(ONE.key, READ) == 0


def test_run_of_another_object_that_changes_the_dependent_makes_a_loop(backoff: LoopBackoff) -> None:
    backoff.run_ended(ONE.key, [BY_A_RUN], changed=True)
    assert (backoff.seconds(ONE.key, BY_A_RUN), backoff.seconds(ONE.key, BY_ANYBODY)) == (1, 0)


def test_unknown_writer_of_a_dependent_makes_a_loop_after_five_runs_in_a_minute(
    backoff: LoopBackoff, clock: ManualClock
) -> None:
    """Another replica, or another operator, may be the writer."""
    waits = []
    for _ in range(7):
        backoff.run_ended(ONE.key, [BY_ANYBODY], changed=True)
        waits.append(backoff.seconds(ONE.key, BY_ANYBODY))
        clock.advance(1)
    assert waits == [0, 0, 0, 0, 1, 2, 4]


def test_user_who_changes_a_dependent_now_and_then_makes_no_loop(backoff: LoopBackoff, clock: ManualClock) -> None:
    for _ in range(12):
        backoff.run_ended(ONE.key, [BY_ANYBODY], changed=True)
        assert backoff.seconds(ONE.key, BY_ANYBODY) == 0
        clock.advance(16)
