"""One reconcile, from top to bottom: prepare the object, run its role, save the outcome, decide when to run again.

A reconcile is level-triggered: whatever caused it, it reads the object and runs its role once. Every exit leaves a true
condition behind, including those of a run that never started and of one that the operator interrupted.

While a run is in progress, only the run writes its object: the role's own write carries the version that the role has
read, so a write of the operator would make it fail with a conflict. Every write of the operator comes before the run or
after it.

The finalizer of an object doesn't say whose it is: several operators of a kind, with disjoint selectors, may use one
name. So an operator with a selector notes it on the object with the finalizer, and cleans up only what its selector
matches, or what has its own note.

An object is deleted only if the informer no longer has it. A response that reports its absence isn't enough: a gateway,
or an API server that doesn't serve a new CRD yet, responds with 404 to a read of an object that exists.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Protocol

import structlog

from rolecall.kube.errors import KubeError, NotFoundError, NotServedError, UnreadableError
from rolecall.kube.metadata import (
    FINALIZER_OF_ANNOTATION,
    annotation_of,
    generation_of,
    has_finalizer,
    is_being_deleted,
    labels_of,
    resource_version_of,
    status_of,
    uid_of,
    with_finalizer,
    without_finalizer,
)
from rolecall.kube.quantities import format_duration, parse_non_negative_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.work_queue import SHORTEST_PERIOD_SECONDS, Cause, Priority
from rolecall.runner.reconcile.context import PERIOD_ANNOTATION, ReconcileContext, is_paused
from rolecall.runner.reconcile.kubernetes_events import EventReporter
from rolecall.runner.reconcile.pruner import NAME_AGAIN, PRUNE, Pruner
from rolecall.runner.reconcile.read_triggers import ReadTriggers
from rolecall.runner.reconcile.status import reported_by, should_mark_running
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter, write_with_retry
from rolecall.runner.record.run_record import Ending, RunRecord
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.own_writes import SelfTriggers
from rolecall.runner.runs.process import new_ident
from rolecall.system.blocking_work import uninterrupted
from rolecall.system.logs import get_logger

if TYPE_CHECKING:  # plans reconcile without metrics and traces
    from rolecall.runner.record.spans import Tracer
    from rolecall.runner.serving.metrics import ControllerMetrics

logger = get_logger("reconciler")

FINALIZER_REQUEUE_SECONDS = 5.0
"""The delay when an object was deleted during its run, as in the Go runner."""

ABSENT_SECONDS = 1.0
"""The delay after the API server doesn't find an object whose deletion the informer hasn't seen, usually a moment."""

LONG_RUN_SECONDS = 1.0
"""An object whose last run took longer is marked as running before its next run, even if it hasn't changed."""


class RunRecorder(Protocol):
    """Keeps the actions of runs; the operator uses ``rolecall.runner.record.recorder.Recorder``."""

    def start(self, watch: Watch, obj: RawObject, ident: str, causes: tuple[Cause, ...]) -> RunRecord:
        """Return the record of a run that starts now."""

    async def finish(self, watch: Watch, record: RunRecord, ending: Ending) -> None:
        """Record how the reconcile of a run ended. Raises nothing."""

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the state of a deleted object."""


@dataclass(slots=True)
class Reconciler:
    """Reconciles the objects of one kind."""

    watch: Watch
    primaries: Primaries
    launcher: Launcher
    status: StatusWriter
    self_triggers: SelfTriggers
    events: EventReporter
    default_period_seconds: float
    metrics: "ControllerMetrics | None" = None
    recorder: RunRecorder | None = None
    reads: ReadTriggers | None = None
    pruner: Pruner | None = None
    tracer: "Tracer | None" = None
    _long_runs: set[ObjectKey] = field(default_factory=set, init=False)
    """The objects whose last run was a long one."""

    rejected: set[ObjectKey] = field(default_factory=set, init=False)
    """The objects that did not run as they are: any change of them triggers a reconcile."""

    _warn_once: Callable[[str], None] = field(default_factory=lambda: cache(logger.warning), init=False)

    async def reconcile(self, key: ObjectKey, causes: tuple[Cause, ...]) -> Result:
        """Reconcile an object once. Raise CancelledError, or the error of a bug."""
        context = ReconcileContext(key, new_ident(), causes)
        if self.tracer is not None:
            context.trace = self.tracer.start(self.watch, key, context.ident, causes)
        with structlog.contextvars.bound_contextvars(job=context.ident):
            logger.info("Reconcile started", causes=[cause.text for cause in causes])
            task = asyncio.create_task(self._reconcile_and_record(context))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError as error:
                # Interrupt only the run. The other steps are short, and without them the status wouldn't be true.
                context.stop(*error.args)
                with suppress(Exception, asyncio.CancelledError):  # a second cancellation changes nothing
                    await uninterrupted(task)
                raise

    async def _reconcile_and_record(self, context: ReconcileContext) -> Result:
        result = Result(failed=True)
        try:
            result = await self._reconcile(context)
        finally:
            if self.reads is not None:
                self.reads.run_ended(context)
            outcome = "failed" if result.failed else "succeeded"
            if context.outcome.is_interrupted:
                outcome = "interrupted"
            ending = Ending(
                outcome, context.outcome, context.written_status, result.requeue_after_seconds, context.pruning
            )
            if context.trace is not None:
                await context.trace.finish(context.obj, context.record, ending)
            if self.recorder is not None and context.record is not None:
                await self.recorder.finish(self.watch, context.record, ending)
        return result

    async def _reconcile(self, context: ReconcileContext) -> Result:
        """Reconcile, and report an error outside of Ansible as a failure of the object."""
        try:
            if (ended := await self._prepare(context)) is not None:
                return ended
            if self.pruner is not None:
                await self.pruner.run_starts(context)
            context.outcome = await self._run(context)
            is_saved = await self._save(context)
            if self.pruner is not None:
                context.pruning = await self.pruner.run_ended(context, is_saved=is_saved)
            if not is_saved:
                return Result(failed=True)
        except KubeError as error:
            if isinstance(error, NotFoundError | NotServedError) and not self._is_known(context):
                return await self._clean_up(context.key)
            if isinstance(error, NotFoundError):
                logger.info("Object known to the informer not found; retrying", error=str(error))
                return Result(ABSENT_SECONDS, cause=Cause("not found, although its deletion was not reported"))
            logger.error("Reconcile failed", error=str(error))  # noqa: TRY400 - a traceback would add nothing
            await self._fail_outside_ansible(context, str(error))
            # Only another version of the object can be read.
            return Result(failed=True, is_final=isinstance(error, UnreadableError))
        except Exception as error:
            await self._fail_outside_ansible(context, repr(error))
            raise  # the controller logs the traceback
        return self._conclude(context)

    def _is_known(self, context: ReconcileContext) -> bool:
        """Return whether the informer has the object that was read, or any of its name if none was."""
        known = self.primaries.known(context.key)
        return known is not None and (not context.obj or known.uid == uid_of(context.obj))

    async def _prepare(self, context: ReconcileContext) -> Result | None:
        """Read the object and write what must be there before the run; return a result if there is to be no run."""
        key, finalizer = context.key, self.watch.finalizer
        self.rejected.add(key)  # a change from now on must not get lost if this version can't be read
        context.obj = await self.primaries.read(key)
        self.rejected.discard(key)
        self.self_triggers.run_started(key, context.obj)
        if (ended := await self._judge(context)) is not None:
            return ended
        selector, note = self.watch.selector.text, annotation_of(context.obj, FINALIZER_OF_ANNOTATION)
        has_own_finalizer = finalizer is not None and has_finalizer(context.obj, finalizer.name)
        if finalizer and not context.finalizing and not (has_own_finalizer and selector in {"", note}):
            context.obj = await self._edit(context, lambda obj: with_finalizer(obj, finalizer.name, selector))
            self.self_triggers.run_started(key, context.obj)
            if (ended := await self._judge(context)) is not None:  # another client may have changed it in between
                return ended

        # A short run of an unchanged object isn't worth two writes of its status.
        context.status_before = status_of(context.obj)
        is_due = key in self._long_runs or should_mark_running(context.status_before, generation_of(context.obj))
        if self.watch.manage_status and is_due:
            before = context.obj
            context.obj = await self.status.mark_running(context.obj) or context.obj
            self.self_triggers.run_started(key, context.obj)
            if self._fate(context.obj) != self._fate(before):
                context.stop("the object was changed before it")  # the next reconcile judges that version
        return None

    def _fate(self, obj: RawObject) -> tuple[bool, bool, bool]:
        """Return whether an object is selected, paused, and being deleted."""
        return self.watch.selector.matches(labels_of(obj)), is_paused(obj), is_being_deleted(obj)

    async def _judge(self, context: ReconcileContext) -> Result | None:
        """Return a result if there is to be no run for this version of the object; set the finalizer to run for it.

        **The version that a run works with is the one that was judged**: code that reads another version judges again.
        """
        finalizer, deleting = self.watch.finalizer, is_being_deleted(context.obj)
        has_own_finalizer = finalizer is not None and has_finalizer(context.obj, finalizer.name)
        selector = self.watch.selector.text
        note = annotation_of(context.obj, FINALIZER_OF_ANNOTATION)
        is_selected = self.watch.selector.matches(labels_of(context.obj))
        if not is_selected and not (deleting and has_own_finalizer and note == selector):
            if deleting and has_own_finalizer:
                message = "Not cleaning up an object without matching labels; to clean it up here, set the labels back"
                logger.info(message, selector=selector, finalizer_of=note)
            else:
                logger.info("The labels no longer match the selector; the role does not run")
            self.rejected.add(context.key)  # the informer may never see this version, but one that is as before
            return Result()

        if is_paused(context.obj) and not deleting:
            logger.info("Object is paused; its role does not run")
            self.rejected.add(context.key)
            if self.watch.manage_status:
                await self.status.mark_paused(context.obj)
            return Result()

        try:
            context.period_seconds = period_seconds(context.obj, self.watch, self.default_period_seconds)
        except ValueError as error:
            logger.error("Invalid annotation", annotation=PERIOD_ANNOTATION, error=str(error))  # noqa: TRY400
            message = f"Unable to parse reconcile period annotation: {error}"
            return Result(failed=True, is_final=await self._fail(context, message, is_final=True))

        if deleting and not has_own_finalizer:
            logger.info("Resource is terminated, skipping reconciliation")
            return Result()
        if finalizer and deleting:
            context.finalizer = finalizer.name
        return None

    async def _run(self, context: ReconcileContext) -> Outcome:
        """Run the role or the finalizer's content, unless the operator is stopping."""
        if context.interruption is not None:
            return context.interruption
        if self.recorder is not None:
            context.record = self.recorder.start(self.watch, context.obj, context.ident, context.causes)
            context.record.is_finalizing = context.finalizing
        if context.trace is not None:
            context.trace.run_started(context.record)
        running = self.launcher.run(
            context.obj,
            context.ident,
            finalizing=context.finalizing,
            record=context.record,
            observations=context.observations,
        )
        context.run = asyncio.create_task(running)
        try:
            outcome = await context.run
        except asyncio.CancelledError:
            if context.interruption is None:
                raise
            outcome = context.interruption
        finally:
            if context.trace is not None:
                context.trace.run_ended()
        if context.record is not None:
            outcome = context.record.explain_hidden(outcome)
        if outcome.is_final:
            self.rejected.add(context.key)
        if outcome.duration_seconds > LONG_RUN_SECONDS:
            self._long_runs.add(context.key)
        else:
            self._long_runs.discard(context.key)
        return replace(outcome, finalizer=context.finalizer)

    async def _save(self, context: ReconcileContext) -> bool:
        """Remove the finalizer and write the status; return False if the status couldn't be written."""
        try:
            context.fresh = await self.primaries.read_again(context.obj)
        except NotFoundError:
            raise  # the events of a recreated object trigger a reconcile of their own
        except KubeError as error:
            # The status is written once the API server is back. The fresh object only matters to finalizers.
            logger.info("Failed to read the object after its run", error=str(error))
            context.fresh = context.obj

        outcome = context.outcome
        # A role that requests a requeue hasn't finished cleaning up.
        is_released = context.finalizing and outcome.is_successful and not outcome.requests_requeue
        if is_released:
            await self._edit(context, lambda obj: without_finalizer(obj, context.finalizer))

        if outcome.is_interrupted:
            return await self._write_status(context, outcome)
        reported = reported_by(outcome, self.watch, context.fresh)
        for name in reported.invalid:
            self._warn_once(f"The {name} that a run reported for Ready is invalid and ignored; logged once")
        return await self._write_status(context, replace(outcome, reported=reported), may_be_gone=is_released)

    def _conclude(self, context: ReconcileContext) -> Result:
        """Report the outcome, and return when the next run is due."""
        outcome = context.outcome
        if outcome.is_interrupted:
            logger.warning("Run interrupted", reason=outcome.message)
            return Result(failed=True)
        if outcome.failure is not None:
            logger.error("Reconcile failed", error=outcome.failure)
            self.events.failed(context, outcome.failure)
            is_same = resource_version_of(context.fresh) == resource_version_of(context.obj)
            return Result(failed=True, is_final=outcome.is_final and is_same)
        if outcome.requests_requeue:
            self.self_triggers.requeue_requested(context.key)
        result = after_success(context, has_finalizer=self.watch.finalizer is not None)
        again_at = context.pruning.again_at
        if again_at is not None and again_at <= (result.requeue_at or again_at):
            # The period remains: the earlier of the two times counts.
            cause = PRUNE if context.pruning.is_stable else NAME_AGAIN
            result = replace(result, requeue_at=again_at, cause_at=cause)
        duration = format_duration(outcome.duration_seconds)
        logger.info("Reconcile succeeded", duration=duration, requeue_after_seconds=result.requeue_after_seconds)
        self.events.succeeded(context)
        return result

    async def _clean_up(self, key: ObjectKey) -> Result:
        """Drop the state and the workspace of a deleted object."""
        logger.info("Object was deleted")
        self.forget(key)
        try:
            await self.launcher.remove_workspace(key)
        except OSError as error:  # for example no file descriptors left: the next attempt may work
            logger.warning("Failed to remove the workspace of a deleted object", reason=str(error))
            return Result(failed=True)
        return Result()

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deleted object."""
        self._long_runs.discard(key)
        self.rejected.discard(key)
        self.self_triggers.forget(key)
        self.events.forget(key)
        self.status.forget(key)
        if self.reads is not None:
            self.reads.forget(key)
        if self.pruner is not None:
            self.pruner.forget(key)
        if self.recorder is not None:
            self.recorder.forget(self.watch.gvk, key)

    async def _fail_outside_ansible(self, context: ReconcileContext, reason: str) -> None:
        if context.obj:
            with suppress(NotFoundError):  # a deleted object needs no status
                await self._fail(context, f"Reconcile failed outside Ansible: {reason}")

    async def _fail(self, context: ReconcileContext, message: str, *, is_final: bool = False) -> bool:
        """Report a failure outside of the run; return False if the status couldn't be written."""
        self.events.failed(context, message)
        return await self._write_status(context, Outcome.of_failure(message, is_final=is_final))

    async def _write_status(self, context: ReconcileContext, outcome: Outcome, *, may_be_gone: bool = False) -> bool:
        """Count an outcome, and write its status; return False if it couldn't be written: the next attempt may succeed.

        With ``may_be_gone``, the operator has removed its finalizer, so an object that isn't found needs no status.
        """
        if self.metrics is not None and not outcome.is_interrupted:
            self.metrics.run_ended(succeeded=outcome.is_successful, limit=outcome.limit)
        if not self.watch.manage_status:
            return True
        try:
            context.written_status = await self.status.write(context.obj, outcome, context.status_before)
        except NotFoundError:
            if not may_be_gone:
                raise  # the caller decides whether the object was deleted
        except KubeError as error:
            logger.error("Failed to write the status", error=str(error))  # noqa: TRY400
            self.status.report(context.obj, f"The status could not be written: {error}")
            return False
        return True

    async def _edit(self, context: ReconcileContext, edit: Callable[[RawObject], RawObject]) -> RawObject:
        """Read the object and replace it with changed finalizers, until the API server accepts it."""

        async def write() -> RawObject:
            return await self.primaries.replace(edit(await self.primaries.read_again(context.obj)))

        return await write_with_retry(write)


def period_seconds(obj: RawObject, watch: Watch, default_seconds: float) -> float:
    """Return the seconds from a success to the next run, 0 for none. Raise ValueError for an invalid annotation."""
    text = annotation_of(obj, PERIOD_ANNOTATION)
    if text is None:
        return watch.reconcile_period_seconds or default_seconds
    seconds = parse_non_negative_duration(text)
    return max(seconds, SHORTEST_PERIOD_SECONDS) if seconds else 0.0


def after_success(context: ReconcileContext, *, has_finalizer: bool) -> Result:
    """Return when the next run is due.

    A requeue that the role requested comes first, then a deletion that waits for the finalizer's run, then the period.
    ``has_finalizer`` is whether the watch has a finalizer.
    """
    if context.outcome.requests_requeue:
        cause = Cause("requeue_after", priority=Priority.HIGH)
        after = context.outcome.requeue_after_seconds
        after = None if after is None else max(after, SHORTEST_PERIOD_SECONDS)
        return Result(after, context.outcome.requeue_at, cause=cause)
    if has_finalizer and not context.finalizing and is_being_deleted(context.fresh):
        return Result(FINALIZER_REQUEUE_SECONDS, cause=Cause("deleted during its run", priority=Priority.HIGH))
    return Result(context.period_seconds or None, cause=Cause("period", priority=Priority.LOW))
