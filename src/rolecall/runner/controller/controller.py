"""The controller of a kind, and the dispatcher, which starts the reconciles of all kinds.

A reconcile is any coroutine from a request to a ``Result``. It runs at most once at a time for a request. An exception
is a failure with a traceback in the log and a backoff, and never stops a worker. The log lines of a reconcile carry the
group, version, kind, namespace and name of its object.

The dispatcher starts the most urgent reconcile when one may run: fewer than ``limit`` are running, and fewer of its
kind than the kind has workers. Only then is a request taken from its queue, so the choice is always among all requests
that wait, and a waiting request can still become more urgent. The kind whose most urgent request comes first is next.
Kinds that have only less urgent requests get at least one turn in ten too.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from structlog.contextvars import bound_contextvars

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.work_queue import Cause, FairScheduler, Priority, WorkQueue
from rolecall.system.logs import get_logger

logger = get_logger("controller")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile: a failure, a time for the next one (the earlier one if both set one), or neither."""

    requeue_after_seconds: float | None = None
    requeue_at: float | None = None
    """Seconds since the epoch."""
    failed: bool = False
    is_final: bool = False
    """Whether a failure isn't retried: its cause is the object, so the next reconcile is that of a change."""
    cause: Cause = field(default=Cause("requeue", priority=Priority.HIGH), compare=False)
    """The cause of the next reconcile."""
    cause_at: Cause | None = field(default=None, compare=False)
    """The cause of the reconcile at ``requeue_at``, if it differs from ``cause``."""

    def __post_init__(self) -> None:
        """Reject a time that isn't finite."""
        for name in ("requeue_after_seconds", "requeue_at"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} of a result: expected a finite number of seconds, found {value!r}")

    @property
    def outcome(self) -> str:
        """The result as metrics name it."""
        if self.failed:
            return "terminal" if self.is_final else "error"
        if self.requeue_at is not None or self.requeue_after_seconds:
            return "requeue_after"
        return "success" if self.requeue_after_seconds is None else "requeue"


@dataclass(slots=True)
class Controller:
    """Reconciles the objects of one kind, at most ``workers`` at a time.

    After a reconcile, ``is_self_trigger`` is called with each cause that arrived in the meantime and identifies the
    version of an object: another reconcile follows if one of them is not.
    """

    gvk: GVK
    queue: WorkQueue[ObjectKey]
    workers: int
    reconcile: Callable[[ObjectKey, tuple[Cause, ...]], Awaitable[Result]]
    is_self_trigger: Callable[[ObjectKey, Cause], bool]

    @property
    def has_free_worker(self) -> bool:
        """Return whether another object of the kind may be reconciled now."""
        return self.queue.processing < self.workers

    async def process(self, request: ObjectKey, causes: tuple[Cause, ...]) -> None:
        """Reconcile a request that was taken from the queue, and give it back."""
        queue = self.queue
        with bound_contextvars(
            kind=self.gvk.kind,
            group=self.gvk.group,
            version=self.gvk.version,
            namespace=request.namespace,
            name=request.name,
        ):
            try:
                result = await self._reconcile(request, causes)
                if result.failed and not result.is_final:
                    seconds = queue.add_rate_limited(request, Cause(f"retry {queue.failures(request) + 1}"))
                    logger.debug("Reconcile will be retried", seconds=seconds, failures=queue.failures(request))
                    return
                queue.forget(request)
                if result.requeue_at is not None:
                    queue.add_at(request, result.requeue_at, result.cause_at or result.cause)
                if result.requeue_after_seconds is not None:
                    queue.add_after(request, result.requeue_after_seconds, result.cause)
            finally:
                queue.done(request, lambda cause: self._counts(request, cause))

    async def _reconcile(self, request: ObjectKey, causes: tuple[Cause, ...]) -> Result:
        outcome = "requeue"  # of a cancelled reconcile: the next operator or replica runs it again
        try:
            result = await self.reconcile(request, causes)
            outcome = result.outcome
        except Exception:
            logger.exception("Reconcile crashed")
            outcome = "panic"
            return Result(failed=True)
        else:
            return result
        finally:
            self.queue.metrics.ended(request, outcome)

    def _counts(self, request: ObjectKey, cause: Cause) -> bool:
        try:
            return not self.is_self_trigger(request, cause)
        except Exception:
            logger.exception("Failed to determine whether a run made a change; reconciling again", cause=cause.text)
            return True


class Dispatcher:
    """Reconciles the requests of several controllers, at most ``limit`` at a time; None means no bound."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.controllers: list[Controller] = []
        self.has_started = False
        self._scheduler = FairScheduler()
        self._running: dict[asyncio.Task[None], tuple[Controller, ObjectKey]] = {}
        self._changed = asyncio.Event()
        self._is_stopped = False

    @property
    def running(self) -> list[str]:
        """The running reconciles: the kind and the object of each."""
        return [f"{controller.gvk} {request}" for controller, request in self._running.values()]

    @property
    def has_free_run(self) -> bool:
        """Whether another reconcile may start, of any kind."""
        return self.limit is None or len(self._running) < self.limit

    def add(self, controller: Controller) -> None:
        """Reconcile the requests of a controller too."""
        self.controllers.append(controller)
        controller.queue.on_due = self._changed.set

    async def run(self) -> None:
        """Reconcile until ``stop``, then wait for running reconciles; cancellation cancels them first."""
        self.has_started = True
        async with asyncio.TaskGroup() as group:
            while not self._is_stopped:
                self._changed.clear()
                while self.has_free_run and (controller := self._next()) is not None:
                    request, causes = controller.queue.take()
                    task = group.create_task(controller.process(request, causes), name=f"{controller.gvk} {request}")
                    self._running[task] = (controller, request)
                    task.add_done_callback(self._on_done)
                await self._changed.wait()

    def stop(self) -> None:
        """Start no further reconcile; ``run`` returns when all running ones have ended."""
        self._is_stopped = True
        self._changed.set()

    async def drain(self, belongs: Callable[[Controller, ObjectKey], bool], seconds: float, reason: str) -> None:
        """Wait until no reconcile that a function selects is running; cancel those that take longer."""
        tasks = {task for task, running in self._running.items() if belongs(*running)}
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=seconds)
        for task in left:
            task.cancel(reason)
        await asyncio.wait(tasks)

    def _next(self) -> Controller | None:
        """Return the controller that has the next turn, None if no request can be taken."""
        heads: dict[Priority, list[tuple[float, int]]] = {}
        for position, controller in enumerate(self.controllers):
            head = controller.queue.head if controller.has_free_worker else None
            if head is not None:
                heads.setdefault(head[0], []).append((head[1], position))
        return self.controllers[min(heads[self._scheduler.next(heads)])[1]] if heads else None

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        self._changed.set()
