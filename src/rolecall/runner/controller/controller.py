"""The controller of a kind: reconciles the requests of its work queue, and says when each comes back.

A reconcile is any coroutine from a request to a ``Result``. It runs at most once at a time for a request; one that
raises is a failure with a traceback in the log and a back-off, and never costs a worker. The log lines of a reconcile
carry the kind, its group, namespace and name, which are bound here. The ``work_queue`` remembers, the ``dispatcher``
says when a request has its turn.

The dispatcher: starts the reconciles of all kinds, the most urgent first, within two limits.

A reconcile starts when a run is free: fewer than ``limit`` are running, and fewer of its kind than the kind has
workers. Only then is a request taken, so the choice is always among all that wait, and a request that waits can still
become more urgent. The kind whose most urgent request comes first is next; which of its requests it is, the kind's
``work_queue`` says. Kinds that have only less urgent requests get at least one turn in ten too.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from structlog.contextvars import bound_contextvars

from rolecall.kube.references import ObjectKey
from rolecall.runner.controller.priorities import FairScheduler, Priority
from rolecall.runner.controller.work_queue import UNOBSERVED, Cause, ReconcileObserver, WorkQueue
from rolecall.system.logs import get_logger

logger = get_logger("controller")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile: a failure, a time for the next one (of two times the earlier counts), or neither."""

    requeue_after_seconds: float | None = None
    requeue_at: float | None = None
    """Seconds since the epoch."""
    failed: bool = False
    cause: Cause = field(default=Cause("requeue", priority=Priority.HIGH), compare=False)
    """The cause of the reconcile that follows then."""

    def __post_init__(self) -> None:
        """Refuse a time that is not finite."""
        for name in ("requeue_after_seconds", "requeue_at"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} of a result: expected a finite number of seconds, found {value!r}")

    @property
    def outcome(self) -> str:
        """The word for the result in metrics."""
        if self.failed:
            return "error"
        if self.requeue_at is not None or self.requeue_after_seconds:
            return "requeue_after"
        return "success" if self.requeue_after_seconds is None else "requeue"


Reconcile = Callable[[ObjectKey, tuple[Cause, ...]], Awaitable[Result]]
IsSelfTrigger = Callable[[ObjectKey, Cause], bool]


@dataclass(slots=True)
class Controller:
    """Reconciles the objects of one kind; ``workers`` is the number of those that may be reconciled at once.

    ``is_self_trigger`` is asked, after a reconcile, about each cause that came in meanwhile and has an object's
    identity: another reconcile follows if one of them is not. Without it every cause counts.
    """

    name: str
    queue: WorkQueue[ObjectKey]
    workers: int
    reconcile: Reconcile
    is_self_trigger: IsSelfTrigger | None = None
    kind: str = ""
    group: str = ""
    observer: ReconcileObserver = UNOBSERVED
    running: set[ObjectKey] = field(default_factory=set, init=False)

    @property
    def has_free_worker(self) -> bool:
        """Return whether another object of the kind may be reconciled now."""
        return self.queue.processing < self.workers

    async def process(self, request: ObjectKey, causes: tuple[Cause, ...]) -> None:
        """Reconcile a request that was taken from the queue, and give it back."""
        with bound_contextvars(
            kind=self.kind or self.name, group=self.group, namespace=request.namespace, name=request.name
        ):
            try:
                self._come_back(request, await self._attempt(request, causes))
            finally:
                self.queue.done(request, lambda cause: self._wakes(request, cause))

    async def _attempt(self, request: ObjectKey, causes: tuple[Cause, ...]) -> Result:
        self.running.add(request)
        self.observer.started(request)
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
            self.running.discard(request)
            self.observer.ended(request, outcome)

    def _come_back(self, request: ObjectKey, result: Result) -> None:
        if result.failed:
            seconds = self.queue.add_rate_limited(request, Cause(f"retry {self.queue.failures(request) + 1}"))
            logger.debug("Reconcile will be retried", seconds=seconds, failures=self.queue.failures(request))
            return
        self.queue.forget(request)
        if result.requeue_at is not None:
            self.queue.add_at(request, result.requeue_at, result.cause)
        if result.requeue_after_seconds is not None:
            self.queue.add_after(request, result.requeue_after_seconds, result.cause)

    def _wakes(self, request: ObjectKey, cause: Cause) -> bool:
        if self.is_self_trigger is None or not cause.resource_version:
            return True
        try:
            return not self.is_self_trigger(request, cause)
        except Exception:
            logger.exception("Could not tell whether a change is the run's own; reconciling again", cause=cause.text)
            return True


class Dispatcher:
    """Reconciles the requests of several controllers; ``limit`` bounds how many at once, None means no bound."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.controllers: list[Controller] = []
        self.has_started = False
        self._turns = FairScheduler()
        self._running: dict[asyncio.Task[None], tuple[Controller, ObjectKey]] = {}
        self._wake = asyncio.Event()
        self._is_stopped = False

    @property
    def active(self) -> int:
        """The number of reconciles that are running."""
        return len(self._running)

    @property
    def running(self) -> list[str]:
        """The reconciles that are running: the name of the controller and the object of each."""
        return [f"{controller.name} {request}" for controller, request in self._running.values()]

    def add(self, controller: Controller) -> None:
        """Reconcile the requests of a controller too."""
        self.controllers.append(controller)
        controller.queue.subscribe(self._wake.set)

    async def run(self) -> None:
        """Reconcile until ``stop``, then wait for what is running; when cancelled, cancel that and wait for its end."""
        self.has_started = True
        async with asyncio.TaskGroup() as group:
            while not self._is_stopped:
                self._wake.clear()
                while self.has_free_run and (controller := self._next()) is not None:
                    self._start(group, controller)
                await self._wake.wait()

    def stop(self) -> None:
        """Start no further reconcile; ``run`` returns when all that are running have ended."""
        self._is_stopped = True
        for controller in self.controllers:
            controller.queue.shut_down()
        self._wake.set()

    async def finish(self, concerns: Callable[[Controller, ObjectKey], bool], seconds: float, reason: str) -> None:
        """Return when none of the reconciles that a function names is running; cancel those that take longer."""
        tasks = {task for task, running in self._running.items() if concerns(*running)}
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=seconds)
        for task in left:
            task.cancel(reason)
        await asyncio.wait(tasks)

    @property
    def has_free_run(self) -> bool:
        """Whether another reconcile may start, of whatever kind."""
        return self.limit is None or len(self._running) < self.limit

    def _next(self) -> Controller | None:
        """Return the controller that has the next turn, None if no request can be taken."""
        heads: dict[Priority, list[tuple[float, int]]] = {}
        for position, controller in enumerate(self.controllers):
            head = controller.queue.head if controller.has_free_worker else None
            if head is not None:
                heads.setdefault(head[0], []).append((head[1], position))
        if not heads:
            return None
        priority = self._turns.next(heads)
        self._turns.took(priority, heads)
        return self.controllers[min(heads[priority])[1]]

    def _start(self, group: asyncio.TaskGroup, controller: Controller) -> None:
        request, causes = controller.queue.take()
        task = group.create_task(controller.process(request, causes), name=f"{controller.name} {request}")
        self._running[task] = (controller, request)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        self._wake.set()
