"""One reconcile: a list of named steps from a request to a result.

It is level-triggered: whatever caused it, the object is read as it is now and its role runs once. Every way out
leaves an honest condition behind, a run that never started and one that was cancelled included. The steps stand in
their order; one that returns a result ends the reconcile. Neighbours: ``launcher`` carries a run out,
``status_writer`` writes what came of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from rolecall.config.watches import Watch
from rolecall.controller.controller import Result
from rolecall.controller.work_queue import Cause
from rolecall.kube.client import Client
from rolecall.kube.durations import format_duration
from rolecall.kube.errors import KubeError, NotFoundError
from rolecall.kube.metadata import (
    generation_of,
    has_finalizer,
    is_being_deleted,
    uid_of,
    with_finalizer,
    without_finalizer,
)
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.logs import get_logger
from rolecall.reconcile.context import Attempt
from rolecall.reconcile.event_reporter import Reporter
from rolecall.reconcile.pause import is_paused
from rolecall.reconcile.retry import is_refusal, until_written
from rolecall.reconcile.schedule import PERIOD_ANNOTATION, after_success, period_seconds
from rolecall.reconcile.self_triggers import News
from rolecall.reconcile.status import Outcome, map_result, run_document, should_mark_running
from rolecall.reconcile.status_writer import StatusWriter
from rolecall.runs.events import RunSummary, TaskFailure
from rolecall.runs.launcher import Launcher
from rolecall.runs.runner import new_ident

logger = get_logger("reconciler")
MARK_RUNNING_AFTER_SECONDS = 1.0

_CANCELLED = RunSummary("canceled", failures=(TaskFailure("", "", "The run was cancelled: the operator is stopping"),))
Step = Callable[[Attempt], Awaitable[Result | None]]


def _count_nothing(_succeeded: bool) -> None:  # noqa: FBT001 - the one thing that it is told
    """Stand for somebody who counts."""


@dataclass(slots=True)
class Reconciler:
    """Reconciles the objects of one kind."""

    watch: Watch
    client: Client
    launcher: Launcher
    status: StatusWriter
    news: News
    default_period_seconds: float
    report: Reporter = field(default_factory=Reporter)
    count_outcome: Callable[[bool], None] = _count_nothing
    """Hears of each outcome whether it was a success."""

    content_changed: float = float("-inf")
    """When the role's files were last changed, on the monotonic clock."""

    async def reconcile(self, key: ObjectKey, causes: tuple[Cause, ...]) -> Result:
        """Bring the cluster to what one object asks for, once; only cancellation raises."""
        attempt = Attempt(key, new_ident(), causes)
        with structlog.contextvars.bound_contextvars(job=attempt.ident):
            logger.info("Reconcile started", causes=[cause.text for cause in causes])
            steps = asyncio.create_task(self._take_steps(attempt))
            try:
                return await asyncio.shield(steps)
            except asyncio.CancelledError:
                # Only a play is cut short: the other steps are quick, and without them the status would not be true.
                attempt.stop()
                await asyncio.gather(steps, return_exceptions=True)
                raise

    async def _take_steps(self, attempt: Attempt) -> Result:
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
                result = await step(attempt)
                if result is not None:
                    return result
        except NotFoundError:
            return self._forget(attempt, "The object is gone")
        except KubeError as error:
            logger.error("Reconcile failed", error=str(error))  # noqa: TRY400 - the message says it all
            await self._give_up(attempt, str(error))
            return Result(failed=True)
        except Exception as error:
            await self._give_up(attempt, repr(error))
            raise  # the controller logs where it was
        return self._result(attempt)

    async def _give_up(self, attempt: Attempt, reason: str) -> None:
        if attempt.obj:
            message = f"The operator could not do its part: {reason}"
            await self._write(attempt, Outcome(failure=message))
            self.report.failed(attempt, message)

    async def _fetch(self, attempt: Attempt) -> Result | None:
        attempt.obj = await self.client.get(self.watch.gvk, attempt.key)
        self.news.started_from(attempt.key, attempt.obj)
        return None

    async def _honour_pause(self, attempt: Attempt) -> Result | None:
        if not is_paused(attempt.obj) or is_being_deleted(attempt.obj):
            return None
        logger.info("The object is paused, nothing runs")
        if self.watch.manage_status:
            await self.status.mark_paused(attempt.key)
        return Result()

    async def _read_period(self, attempt: Attempt) -> Result | None:
        try:
            attempt.period_seconds = period_seconds(attempt.obj, self.watch, self.default_period_seconds)
        except ValueError as error:
            message = f"Unable to parse reconcile period annotation: {error}"
            logger.error("The object's annotation is wrong", annotation=PERIOD_ANNOTATION, error=str(error))  # noqa: TRY400
            await self._write(attempt, Outcome(failure=message))
            self.report.failed(attempt, message)
            return Result(failed=True)
        return None

    async def _honour_finalizer(self, attempt: Attempt) -> Result | None:
        finalizer = self.watch.finalizer
        deleting = is_being_deleted(attempt.obj)
        if finalizer and has_finalizer(attempt.obj, finalizer.name):
            attempt.finalizer = finalizer.name if deleting else ""
        elif deleting:
            logger.info("Resource is terminated, skipping reconciliation")
            return Result()
        elif finalizer:
            attempt.obj = await self._edit(attempt, lambda obj: with_finalizer(obj, finalizer.name))
            self.news.started_from(attempt.key, attempt.obj)
        return None

    async def _mark_running(self, attempt: Attempt) -> Result | None:
        if self.watch.manage_status and should_mark_running(attempt.status, generation_of(attempt.obj)):
            attempt.obj = await self.status.mark_running(attempt.key) or attempt.obj
            attempt.is_marked = True
            self.news.started_from(attempt.key, attempt.obj)
        return None

    async def _run(self, attempt: Attempt) -> Result | None:
        if attempt.is_stopping:
            attempt.summary = _CANCELLED
            return None
        marking = asyncio.create_task(self._mark_running_later(attempt))
        running = self.launcher.run(attempt.obj, attempt.ident, finalizing=attempt.finalizing)
        attempt.play = asyncio.create_task(running)
        try:
            attempt.summary = await attempt.play
        except asyncio.CancelledError:
            if not attempt.is_stopping:
                raise
            attempt.summary = _CANCELLED
        finally:
            marking.cancel()
            await asyncio.wait([marking])
        return None

    async def _mark_running_later(self, attempt: Attempt) -> None:
        """Show a run that takes its time; a short one of an unchanged object is not worth two writes."""
        if self.watch.manage_status and not attempt.is_marked:
            await asyncio.sleep(MARK_RUNNING_AFTER_SECONDS)
            await self.status.mark_running(attempt.key)

    async def _read_again(self, attempt: Attempt) -> Result | None:
        try:
            attempt.fresh = await self.client.get(self.watch.gvk, attempt.key)
        except NotFoundError:
            raise  # gone, which ends the reconcile
        except KubeError as error:
            # The status is written when the API server is back; what would be read here matters to finalizers only.
            logger.info("The object could not be read after its run", error=str(error))
            attempt.fresh = attempt.obj
        if uid_of(attempt.fresh) != uid_of(attempt.obj):
            # Another object of that name, whose own events lead to a reconcile.
            return self._forget(attempt, "The object was made anew during its run")
        return None

    async def _drop_finalizer(self, attempt: Attempt) -> Result | None:
        finalizer = self.watch.finalizer
        # A role that asks to come back is not done with cleaning up.
        if finalizer and attempt.finalizing and attempt.failure is None and not attempt.has_named_its_time:
            await self._edit(attempt, lambda obj: without_finalizer(obj, finalizer.name))
        return None

    async def _write_status(self, attempt: Attempt) -> Result | None:
        summary = attempt.summary
        if summary is None:
            return None
        counts = summary.counts if summary.completion else None
        document = {"stats": dict(summary.stats), "resource": attempt.fresh, "run": run_document(summary)}
        mapped = map_result(self.watch.status, document) if attempt.failure is None else {}
        outcome = Outcome(attempt.failure, counts, summary.completion, mapped)
        return None if await self._write(attempt, outcome) else Result(failed=True)

    async def _write(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Write a status; return whether it was, or can never be: False means that it is worth another reconcile."""
        self.count_outcome(outcome.failure is None)
        if not self.watch.manage_status:
            return True
        try:
            await self.status.write(attempt.key, outcome, generation_of(attempt.obj))
        except KubeError as error:
            logger.error("The status could not be written", error=str(error))  # noqa: TRY400
            return not is_refusal(error)
        return True

    async def _edit(self, attempt: Attempt, edit: Callable[[RawObject], RawObject]) -> RawObject:
        """Read the object and put it with changed finalizers, until the API server has taken it."""

        async def write() -> RawObject:
            return await self.client.replace(edit(await self.client.get(self.watch.gvk, attempt.key)))

        written = await until_written(write)
        self.news.own_writes.note((self.watch.gvk, attempt.key), written)
        return written

    def _forget(self, attempt: Attempt, why: str) -> Result:
        logger.info(why)
        self.news.forget(attempt.key)
        self.report.forget(attempt.key)
        self.launcher.forget(attempt.key)
        return Result()

    def _result(self, attempt: Attempt) -> Result:
        summary = attempt.summary
        if summary is None or attempt.failure is not None:
            logger.error("Reconcile failed", error=attempt.failure)
            self.report.failed(attempt, attempt.failure or "")
            # A file that changed while the run went on may be the cure: look again at once.
            if self.content_changed > attempt.started:
                return Result(requeue_after_seconds=0, why="files of the role changed")
            return Result(failed=True)
        if attempt.has_named_its_time:
            self.news.named_its_time(attempt.key)
        result = after_success(attempt, summary, has_finalizer=self.watch.finalizer is not None)
        took = format_duration(summary.duration_seconds)
        logger.info("Reconcile succeeded", took=took, requeue_after_seconds=result.requeue_after_seconds)
        self.report.succeeded(attempt, summary)
        return result
