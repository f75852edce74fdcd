"""One reconcile: a list of named steps from a request to a result.

A reconcile is level-triggered: whatever caused it, the object is read as it is now and its role runs once. Every exit
leaves a true condition behind, including those of a run that never started and of one that the operator interrupted.
The steps run in the order in which they are listed; a step that returns a result ends the reconcile.

While a run is in progress, only the run writes its object: a write of the operator would make the role's own write,
which carries the version that the role has read, fail with a conflict. Every write of the operator comes before the
run or after it.

When an object is reconciled again after a run that succeeded.

A requeue that the role requested comes first, then a deletion that waits for the run of its finalizer, then the
period: the object's annotation, its watch, or the flag.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from rolecall.kube.errors import KubeError, NotFoundError
from rolecall.kube.metadata import (
    annotation_of,
    generation_of,
    has_finalizer,
    is_being_deleted,
    with_finalizer,
    without_finalizer,
)
from rolecall.kube.quantities import format_duration, parse_non_negative_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.reconcile.context import ReconcileContext, is_paused
from rolecall.runner.reconcile.kubernetes_events import EventReporter
from rolecall.runner.reconcile.own_writes import SelfTriggers
from rolecall.runner.reconcile.status import (
    ReconcileOutcome,
    Status,
    map_result,
    run_document,
    should_mark_running,
    unready_reason,
)
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter, may_pass, write_with_retry
from rolecall.runner.record.run_record import Ending, RunRecord
from rolecall.runner.record.traces import UNTRACED, ReconcileTracer
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.process import new_ident
from rolecall.system.logs import get_logger

PERIOD_ANNOTATION = "ansible.sdk.operatorframework.io/reconcile-period"
SHORTEST_PERIOD_SECONDS = 1.0
"""The shortest period that an object may ask for: a shorter one would occupy a worker all the time."""

FINALIZER_REQUEUE_SECONDS = 5.0
"""The delay when an object was deleted during its run, as in the Go runner."""

_REQUESTED = Cause("requeue_after", priority=Priority.HIGH)
_DELETED = Cause("deleted during its run", priority=Priority.HIGH)
_PERIOD = Cause("period", priority=Priority.LOW)


def period_seconds(obj: RawObject, watch: Watch, default_seconds: float) -> float:
    """Return the seconds from a success to the next run, 0 for none. Raises ValueError for an invalid annotation."""
    text = annotation_of(obj, PERIOD_ANNOTATION)
    if text is None:
        return watch.reconcile_period_seconds or default_seconds
    seconds = parse_non_negative_duration(text)
    return max(seconds, SHORTEST_PERIOD_SECONDS) if seconds else 0.0


def after_success(context: ReconcileContext, summary: RunSummary, *, has_finalizer: bool) -> Result:
    """Return when the next run is due; ``has_finalizer`` says whether the watch has one."""
    if context.requests_requeue:
        return Result(summary.requeue_after_seconds, summary.requeue_at, cause=_REQUESTED)
    if has_finalizer and not context.finalizing and is_being_deleted(context.fresh):
        return Result(FINALIZER_REQUEUE_SECONDS, cause=_DELETED)
    return Result(context.period_seconds or None, cause=_PERIOD)


logger = get_logger("reconciler")
LONG_RUN_SECONDS = 1.0
"""An object whose last run took longer is marked as running before its next run, even if it has not changed."""

Step = Callable[[ReconcileContext], Awaitable[Result | None]]


class RunObserver(Protocol):
    """Measures runs; must return at once."""

    def run_ended(self, summary: RunSummary) -> None:
        """Take note of how a run ended, or why it did not start."""


class RunRecorder(Protocol):
    """Keeps what runs do; ``rolecall.runner.record.recorder.Recorder`` is the operator's."""

    def start(self, watch: Watch, obj: RawObject, ident: str, causes: tuple[Cause, ...]) -> RunRecord:
        """Return the record of a run that starts now."""

    async def finish(self, watch: Watch, record: RunRecord, ending: Ending) -> None:
        """Take note of how the reconcile of a run ended. Raises nothing."""

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop what is known about an object that is gone."""


class RunReads(Protocol):
    """Keeps what runs read; must return at once."""

    def run_ended(self, context: ReconcileContext) -> None:
        """Take note of the end of a reconcile, whether it had a run or not."""


@dataclass(slots=True)
class Reconciler:
    """Reconciles the objects of one kind."""

    watch: Watch
    primaries: Primaries
    launcher: Launcher
    status: StatusWriter
    self_triggers: SelfTriggers
    events: EventReporter
    observer: RunObserver
    default_period_seconds: float
    recorder: RunRecorder | None = None
    reads: RunReads | None = None
    tracer: ReconcileTracer = UNTRACED
    _long_runs: set[ObjectKey] = field(default_factory=set, init=False)
    """The objects whose last run was a long one."""

    async def reconcile(self, key: ObjectKey, causes: tuple[Cause, ...]) -> Result:
        """Bring the cluster once to the state that one object asks for. Raises nothing but CancelledError."""
        context = ReconcileContext(key, new_ident(), causes)
        context.trace = self.tracer.start(self.watch, key, context.ident, causes)
        with structlog.contextvars.bound_contextvars(job=context.ident):
            logger.info("Reconcile started", causes=[cause.text for cause in causes])
            steps = asyncio.create_task(self._take_recorded_steps(context))
            try:
                return await asyncio.shield(steps)
            except asyncio.CancelledError as error:
                # Only the run is cut short. The other steps are quick, and without them the status would not be true.
                context.stop(*error.args)
                await asyncio.gather(steps, return_exceptions=True)
                raise

    async def _take_recorded_steps(self, context: ReconcileContext) -> Result:
        result: Result | None = None
        try:
            result = await self._take_steps(context)
        finally:
            if self.reads is not None:
                self.reads.run_ended(context)
            ending = Ending(_outcome_of(context, result), context.summary, context.written_status)
            ending.requeue_after_seconds = result.requeue_after_seconds if result else None
            await context.trace.finish(context.obj, context.record, ending)
            if self.recorder is not None and context.record is not None:
                await self.recorder.finish(self.watch, context.record, ending)
        return result

    async def _take_steps(self, context: ReconcileContext) -> Result:
        steps: tuple[Step, ...] = (
            self._fetch,
            self._honour_pause,
            self._read_period,
            self._honour_finalizer,
            self._mark_running,
            self._run,
            self._read_again,
            self._drop_finalizer,
            self._write_status,
        )
        try:
            for step in steps:
                result = await step(context)
                if result is not None:
                    return result
        except NotFoundError:
            return await self._forget(context, "Object is gone")
        except KubeError as error:
            logger.error("Reconcile failed", error=str(error))  # noqa: TRY400 - a traceback would add nothing
            await self._give_up(context, str(error))
            return Result(failed=True)
        except Exception as error:
            await self._give_up(context, repr(error))
            raise  # the controller logs where it was
        return self._result(context)

    async def _give_up(self, context: ReconcileContext, reason: str) -> None:
        if context.obj:
            await self._fail(context, f"Reconcile failed outside Ansible: {reason}")

    async def _fail(self, context: ReconcileContext, message: str, *, is_final: bool = False) -> None:
        """Report a failure that is not the run's own; ``is_final`` if only another spec can help."""
        self.observer.run_ended(RunSummary.of_failure(message))
        await self._write(context, ReconcileOutcome(failure=message, is_final=is_final))
        self.events.failed(context, message)

    async def _fetch(self, context: ReconcileContext) -> Result | None:
        context.obj = await self.primaries.client.get(self.watch.gvk, context.key)
        self.self_triggers.run_started(context.key, context.obj)
        return None

    async def _honour_pause(self, context: ReconcileContext) -> Result | None:
        if not is_paused(context.obj) or is_being_deleted(context.obj):
            return None
        logger.info("Object is paused; its role does not run")
        if self.watch.manage_status:
            await self.status.mark_paused(context.obj)
        return Result()

    async def _read_period(self, context: ReconcileContext) -> Result | None:
        try:
            context.period_seconds = period_seconds(context.obj, self.watch, self.default_period_seconds)
        except ValueError as error:
            message = f"Unable to parse reconcile period annotation: {error}"
            logger.error("Invalid annotation", annotation=PERIOD_ANNOTATION, error=str(error))  # noqa: TRY400
            await self._fail(context, message, is_final=True)
            return Result(failed=True)
        return None

    async def _honour_finalizer(self, context: ReconcileContext) -> Result | None:
        finalizer = self.watch.finalizer
        deleting = is_being_deleted(context.obj)
        if finalizer and has_finalizer(context.obj, finalizer.name):
            context.finalizer = finalizer.name if deleting else ""
        elif deleting:
            logger.info("Resource is terminated, skipping reconciliation")
            return Result()
        elif finalizer:
            context.obj = await self._edit(context, lambda obj: with_finalizer(obj, finalizer.name))
            self.self_triggers.run_started(context.key, context.obj)
        return None

    async def _mark_running(self, context: ReconcileContext) -> Result | None:
        """Mark the object before its run; an expected short run of an unchanged object isn't worth two writes."""
        context.status_before = context.status
        is_due = context.key in self._long_runs or should_mark_running(context.status, generation_of(context.obj))
        if self.watch.manage_status and is_due:
            context.obj = await self.status.mark_running(context.obj) or context.obj
            self.self_triggers.run_started(context.key, context.obj)
        return None

    async def _run(self, context: ReconcileContext) -> Result | None:
        if context.is_stopping:
            context.summary = _interrupted(context)
            return None
        if self.recorder is not None:
            context.record = self.recorder.start(self.watch, context.obj, context.ident, context.causes)
            context.record.is_finalizing = context.finalizing
        context.trace.run_started(context.record)
        running = self.launcher.run(context.obj, context.ident, finalizing=context.finalizing, listener=context.record)
        context.play = asyncio.create_task(running)
        try:
            context.summary = await context.play
        except asyncio.CancelledError:
            if not context.is_stopping:
                raise
            context.summary = _interrupted(context)
        finally:
            context.trace.run_ended()
        if context.summary.duration_seconds > LONG_RUN_SECONDS:
            self._long_runs.add(context.key)
        else:
            self._long_runs.discard(context.key)
        return None

    async def _read_again(self, context: ReconcileContext) -> Result | None:
        try:
            context.fresh = await self.primaries.read_again(context.obj)
        except NotFoundError:
            raise  # gone, which ends the reconcile; an object made anew is reconciled because of its own events
        except KubeError as error:
            # The status is written once the API server is back. What is read here matters only to finalizers.
            logger.info("Could not read the object after its run", error=str(error))
            context.fresh = context.obj
        return None

    async def _drop_finalizer(self, context: ReconcileContext) -> Result | None:
        finalizer = self.watch.finalizer
        # A role that requests a requeue has not finished cleaning up.
        if finalizer and context.finalizing and context.failure is None and not context.requests_requeue:
            await self._edit(context, lambda obj: without_finalizer(obj, finalizer.name))
        return None

    async def _write_status(self, context: ReconcileContext) -> Result | None:
        summary = context.summary
        if summary is None:
            return None
        if summary.is_interrupted:
            mark = partial(self.status.mark_interrupted, context.obj, context.status_before, summary.message)
            return None if await self._written(context, mark) else Result(failed=True)
        self.observer.run_ended(summary)
        counts = summary.counts if summary.completion else None
        document = {"stats": dict(summary.stats), "resource": context.fresh, "run": run_document(summary)}
        mapped = map_result(self.watch.status, document) if context.failure is None else {}
        outcome = ReconcileOutcome(
            context.failure,
            counts,
            summary.completion,
            mapped,
            requests_requeue=context.requests_requeue,
            unready=unready_reason(self.watch.ready, document) if self.watch.ready else None,
        )
        return None if await self._write(context, outcome) else Result(failed=True)

    async def _write(self, context: ReconcileContext, outcome: ReconcileOutcome) -> bool:
        generation = generation_of(context.obj)
        return await self._written(context, lambda: self.status.write(context.obj, outcome, generation))

    async def _written(self, context: ReconcileContext, write: Callable[[], Awaitable[Status | None]]) -> bool:
        """Write a status; return False if another reconcile may succeed where this write failed."""
        if not self.watch.manage_status:
            return True
        try:
            context.written_status = await write()
        except KubeError as error:
            logger.error("Could not write the status", error=str(error))  # noqa: TRY400
            return not may_pass(error)
        return True

    async def _edit(self, context: ReconcileContext, edit: Callable[[RawObject], RawObject]) -> RawObject:
        """Read the object and replace it with changed finalizers, until the API server accepts it."""

        async def write() -> RawObject:
            return await self.primaries.replace(edit(await self.primaries.read_again(context.obj)))

        return await write_with_retry(write)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about an object that is gone."""
        self._long_runs.discard(key)
        self.self_triggers.forget(key)
        self.events.forget(key)
        self.launcher.access.forget(key)
        if self.recorder is not None:
            self.recorder.forget(self.watch.gvk, key)

    async def _forget(self, context: ReconcileContext, why: str) -> Result:
        logger.info(why)
        self.forget(context.key)
        try:
            await self.launcher.remove_workspace(context.key)
        except OSError as error:  # no descriptors left, for instance: the next attempt may work
            logger.warning("Could not remove the workspace of an object that is gone", reason=str(error))
            return Result(failed=True)
        return Result()

    def _result(self, context: ReconcileContext) -> Result:
        summary = context.summary
        if summary is not None and summary.is_interrupted:
            logger.warning("Run interrupted", reason=summary.message)
            return Result(failed=True)
        if summary is None or context.failure is not None:
            logger.error("Reconcile failed", error=context.failure)
            self.events.failed(context, context.failure or "")
            return Result(failed=True)
        if context.requests_requeue:
            self.self_triggers.requeue_requested(context.key)
        result = after_success(context, summary, has_finalizer=self.watch.finalizer is not None)
        took = format_duration(summary.duration_seconds)
        logger.info("Reconcile succeeded", took=took, requeue_after_seconds=result.requeue_after_seconds)
        self.events.succeeded(context, summary)
        return result


def _outcome_of(context: ReconcileContext, result: Result | None) -> str:
    if context.summary is not None and context.summary.is_interrupted:
        return "interrupted"
    return "failed" if result is None or result.failed else "succeeded"


def _interrupted(context: ReconcileContext) -> RunSummary:
    return RunSummary.of_failure(f"The run was interrupted: {context.stop_reason}", "canceled")
