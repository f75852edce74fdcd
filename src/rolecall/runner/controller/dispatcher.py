"""The dispatcher: starts the reconciles of all kinds, the most urgent first, within two limits.

A reconcile starts when a run is free: fewer than ``limit`` are running, and fewer of its kind than the kind has
workers. Only then is a request taken, so the choice is always among all that wait, and a request that waits can still
become more urgent. The kind whose most urgent request comes first is next; which of its requests it is, the kind's
``work_queue`` says. Kinds that have only less urgent requests get at least one turn in ten too.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from rolecall.kube.references import ObjectKey
from rolecall.runner.controller.controller import Controller
from rolecall.runner.controller.priorities import Priority, Turns


class Dispatcher:
    """Reconciles the requests of several controllers; ``limit`` bounds how many at once, None means no bound."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.controllers: list[Controller] = []
        self.has_started = False
        self._turns = Turns()
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
