"""The manager: runs one informer for each kind and the dispatcher, and starts and stops them in order.

Informers start first. Reconciles start when every informer has synced, or can't for now, and, with leader election,
when this replica is the leader. A kind that can't be listed blocks no other. On stop, no further request is taken,
running reconciles get time to finish and are then cancelled, and informers stop last, so that reconciles see the
cluster until they end. If a background task crashes, everything stops.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Never, Protocol

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.controller import Dispatcher
from rolecall.runner.controller.informer import Informer
from rolecall.system.clock import Clock
from rolecall.system.logs import get_logger

logger = get_logger("manager")


class Leadership(Protocol):
    """An election that this replica takes part in: an ``Elector`` or a ``ShardMember``."""

    elected: asyncio.Event
    """Set while this replica is the leader."""

    @property
    def is_leading(self) -> bool:
        """Return whether this replica is the leader."""

    @property
    def holder(self) -> str:
        """The identity of the replica that is the leader: its host, ``_``, and a uid; empty if it is unknown."""

    @property
    def seconds_left(self) -> float:
        """How long this replica may still act as the leader."""

    async def run(self) -> Never:
        """Take part until cancelled. Raises when the leadership is lost."""

    async def release(self) -> None:
        """Give the leadership back."""


@dataclass(slots=True, eq=False)
class Manager:
    """Runs informers and controllers; the ``dispatcher`` has the limit of all controllers together.

    On stop, running reconciles have ``grace_seconds`` to end: first by themselves, as in controller-runtime, and for
    the last ``cancellation_seconds`` because they are cancelled. With a ``leadership`` reconciles start when it is won;
    when it is lost, also during the grace period, they are cancelled immediately and ``run`` raises. It is given back
    only after all of them have ended.
    """

    client: Client
    namespaces: tuple[str, ...] | None
    clock: Clock
    dispatcher: Dispatcher
    grace_seconds: float
    cancellation_seconds: float
    """The part of the grace period reserved for cancelled reconciles, at most three quarters."""
    leadership: Leadership | None = None
    has_settled: bool = field(default=False, init=False)
    """Whether every informer has synced, or can't for now; also on followers."""
    informers: dict[GVK, Informer] = field(default_factory=dict, init=False)
    _informer_tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _dispatcher_tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _election_tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _end: asyncio.Future[None] | None = field(default=None, init=False)

    @property
    def is_leading(self) -> bool:
        """Return whether this replica is the leader or a member of its group; always without leader election."""
        return self.leadership is None or self.leadership.is_leading

    @property
    def blocked_kinds(self) -> dict[GVK, str]:
        """The kinds that have not been listed yet and can't be for now, each with the reason."""
        return {gvk: informer.blocked_reason for gvk, informer in self.informers.items() if informer.blocked_reason}

    def informer_for(self, gvk: GVK) -> Informer:
        """Return the informer of a kind; the first call creates it.

        While the manager runs, a new informer starts at the next turn of the loop: subscribe before you await anything.
        """
        informer = self.informers.get(gvk)
        if informer is None:
            informer = self.informers[gvk] = Informer(self.client, gvk, self.namespaces, self.clock)
            if self._end is not None and not self._end.done():
                self._start(informer.run(), f"informer of {gvk}", self._informer_tasks)
        return informer

    def lacks(self, kind: str, key: ObjectKey) -> bool:
        """Return whether there is certainly no object of a kind (``Kind.group``) with this key.

        That is certain only of a kind that is watched completely, in a namespace that is watched.
        """
        watching = [each for gvk, each in self.informers.items() if f"{gvk.kind}.{gvk.group}".strip(".") == kind]
        is_watched = self.namespaces is None or not key.namespace or key.namespace in self.namespaces
        are_complete = all(each.synced.is_set() and not each.trouble for each in watching)
        return bool(watching) and is_watched and are_complete and all(each.store.get(key) is None for each in watching)

    async def run(self) -> None:
        """Run until ``stop`` or cancellation. Raises the error of a background task that crashed."""
        end = self._end = asyncio.get_running_loop().create_future()
        try:
            for informer in self.informers.values():
                self._start(informer.run(), f"informer of {informer.gvk}", self._informer_tasks)
            if self.leadership is not None:
                self._start(self.leadership.run(), "leader election", self._election_tasks)
            settling = asyncio.create_task(self._wait_until_work_may_start())
            try:
                await asyncio.wait({settling, end}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                settling.cancel()
            if not end.done():
                dispatching = asyncio.create_task(self.dispatcher.run(), name="dispatcher")  # ends after its ``stop``
                self._supervise(dispatching, self._dispatcher_tasks)
                logger.info("Workers started", controllers=len(self.dispatcher.controllers), kinds=len(self.informers))
            await asyncio.shield(end)
        finally:
            await self._shut_down()

    def stop(self) -> None:
        """Let ``run`` stop everything and return."""
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    async def _wait_until_work_may_start(self) -> None:
        for informer in list(self.informers.values()):
            await informer.settled.wait()
        self.has_settled = True
        if blocked := self.blocked_kinds:
            kinds = {str(gvk): reason for gvk, reason in blocked.items()}
            logger.warning("Starting without kinds that cannot be listed", kinds=kinds)
        if self.leadership is not None:
            await self.leadership.elected.wait()

    def _start(self, work: Coroutine[Any, Any, Never], name: str, tasks: set[asyncio.Task[None]]) -> None:
        """Start work that never ends: if it returned, the operator would continue without it and look healthy."""
        self._supervise(asyncio.create_task(work, name=name), tasks)

    def _supervise(self, task: asyncio.Task[None], tasks: set[asyncio.Task[None]]) -> None:
        tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        """Stop everything if a background task has crashed, as the election does when the Lease is lost."""
        error = None if task.cancelled() else task.exception()
        if error is None or self._end is None or self._end.done():
            return
        logger.error("Background task crashed, stopping", task=task.get_name(), reason=repr(error))
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        self._end.set_exception(error)

    async def _shut_down(self) -> None:
        self.stop()
        self.dispatcher.stop()
        have_ended = await self._end_reconciles()
        if not have_ended:
            logger.error("Reconciles did not end within the grace period", objects=self.dispatcher.running)
        await self._cancel(self._election_tasks, self.grace_seconds)
        if self.leadership is not None and have_ended:
            await self.leadership.release()
        await self._cancel(self._informer_tasks, self.grace_seconds)

    async def _end_reconciles(self) -> bool:
        """Let running reconciles finish, cancel those that take too long; return whether all of them have ended."""
        clock, grace_seconds = asyncio.get_running_loop().time, self.grace_seconds
        end = clock() + grace_seconds
        seconds = max(grace_seconds - self.cancellation_seconds, grace_seconds / 4)
        if self.dispatcher.running and self.is_leading:
            logger.info("Waiting for running reconciles", objects=self.dispatcher.running, seconds=seconds)
            # The election continues until the last reconcile has ended; when it ends earlier, the leadership is lost.
            awaited = self._dispatcher_tasks | self._election_tasks
            await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        left = max(0.0, end - clock())
        if self.leadership is not None and not self.leadership.is_leading:
            left = max(0.0, min(left, self.leadership.seconds_left))
        return await self._cancel(self._dispatcher_tasks, left)

    async def _cancel(self, tasks: set[asyncio.Task[None]], seconds: float) -> bool:
        """Cancel tasks and wait for their end; return whether all of them have ended."""
        for task in tasks:
            task.cancel()
        if not tasks:
            return True
        _, left = await asyncio.wait(tasks, timeout=seconds)
        for task in left:
            logger.error("Task did not end within the grace period", task=task.get_name())
        return not left
