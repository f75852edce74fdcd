"""One operator of a simulation: ``run_operator`` itself, from its start to its end, on virtual time.

Below it, a session takes the place of the network and a runner that of processes; between them, everything is the
operator's own. What only Linux does has no place here: sockets that listen, signals, threads, and inotify.
``simulated_system`` replaces them for all replicas of a history, which share one event loop.

A *kill* is what SIGKILL is for the cluster: first the replica's packets are lost, so that nothing that its tasks do
when they are cancelled has an effect, then all its tasks end, runs included.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import Context, ContextVar
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from rolecall.kube.client import Client
from rolecall.kube.connection import OnRequest
from rolecall.kube.official_client import Configuration
from rolecall.runner import operator
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.manager import Manager
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.system import blocking_work
from rolecall.system.clock import Clock
from tests.simulation.network import Network, Session
from tests.simulation.runs import RunFact, SimulatedRunner

EPOCH: Final = 1_790_000_000.0
"""The wall clock at the start of a history."""

_THREAD_SECONDS: Final = 0.0005
_HOST: Final = "http://simulated"


class SimulatedClock:
    """The clocks of a history: those of the event loop. ``offset_seconds`` is how far the wall clock has jumped."""

    offset_seconds = 0.0

    def now(self) -> float:
        """Return the wall clock time."""
        return EPOCH + self.offset_seconds + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        """Return the monotonic time."""
        return asyncio.get_running_loop().time()

    def call_at(self, when_monotonic: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedule a callback."""
        return asyncio.get_running_loop().call_at(when_monotonic, callback)


class CountedTask(asyncio.Task[Any]):
    """A task with its number as the hash: sets of tasks are in the same order in each process."""

    def __init__(self, number: int, *arguments: Any, **options: Any) -> None:
        self._number = number
        super().__init__(*arguments, **options)
        if (replica := current_replica()) is not None:
            replica.tasks.append(self)

    def __hash__(self) -> int:
        """Return the number of the task."""
        return self._number


_current: ContextVar["Replica"] = ContextVar("replica")
"""The replica that a task belongs to."""


def current_replica() -> "Replica | None":
    """Return the replica that the current task belongs to."""
    return _current.get(None)


def counted_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let a loop create tasks of this module."""
    numbers = itertools.count()

    def create(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> CountedTask:
        return CountedTask(next(numbers), work, loop=loop, **options)

    loop.set_task_factory(create)  # type: ignore[arg-type]


class Replica:
    """An operator in the cluster of ``network``; ``start`` it, and ``stop`` or ``kill`` it."""

    def __init__(  # noqa: PLR0913, PLR0917 - what an operator consists of
        self,
        name: str,
        network: Network,
        settings: Settings,
        watches: tuple[Watch, ...],
        facts: list[RunFact],
        make_runner: "Callable[[Replica, list[RunFact]], SimulatedRunner]" = SimulatedRunner,
    ) -> None:
        self.name, self.network, self.chance = name, network, network.chance
        self._settings, self._watches = settings, watches
        self.session = Session(network, name)
        self.runner, self.clock = make_runner(self, facts), SimulatedClock()
        self.manager: Manager | None = None
        self.metrics: OperatorMetrics | None = None
        self.tasks: list[asyncio.Task[Any]] = []
        self.facts = facts
        self._main: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._guard: asyncio.Task[None] | None = None
        self._is_ended = False

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.network.tell(f"{self.name} {text}")

    @property
    def has_exited(self) -> bool:
        """Whether the operator has ended, and nobody has ended it."""
        return self._main is not None and self._main.done() and not self._is_ended

    @property
    def error(self) -> BaseException | None:
        """What the operator that has ended has raised."""
        assert self._main is not None
        return None if self._main.cancelled() else self._main.exception()

    def start(self) -> None:
        """Start the operator."""
        self.tell("starts")
        token = _current.set(self)
        try:
            work = operator.run_operator(self._settings, self._watches, self.runner, self._end_at, clock=self.clock)
            self._main = asyncio.create_task(work, name=self.name)
        finally:
            _current.reset(token)

    async def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""
        self.tell("stops")
        self._is_ended = True
        if self.manager is not None:
            self.manager.stop()
        if self._main is not None:
            await asyncio.wait({self._main})
        await self.end()

    async def kill(self) -> None:
        """Send SIGKILL."""
        self.tell("is killed")
        self._is_ended = True
        await self.end()

    async def end(self) -> None:
        """End what the process would take with it."""
        self._forget_deadline()
        self.session.kill()
        while left := [task for task in self.tasks if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.sleep(_THREAD_SECONDS)  # some wait for a thread, whatever happens
        for fact in self.facts:
            if fact.replica == self.name and fact.ended is None:
                fact.ended = asyncio.get_running_loop().time()

    def _end_at(self, when: float) -> None:
        """Kill the operator at a time, as the guard of its Lease does."""
        self._forget_deadline()
        loop = asyncio.get_running_loop()
        if when != float("inf"):
            self._deadline = loop.call_at(when, lambda: self._killed_by_guard(loop))

    def _killed_by_guard(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tell("reaches the end of its Lease")
        self._guard = loop.create_task(self.end(), context=Context())  # not a task of the replica

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Thread:
    """A thread that works at one moment a little later."""

    def __init__(self, target: Callable[..., Any], args: tuple[Any, ...] = (), name: str = "") -> None:
        self._target, self._arguments, self._name = target, args, name

    def start(self) -> None:
        """Schedule the work."""
        asyncio.get_running_loop().call_later(_THREAD_SECONDS, self._target, *self._arguments)


@contextmanager
def simulated_system() -> Iterator[None]:
    """Replace what is outside the operator, for all replicas of the current thread."""

    async def connect(_kubeconfig: object, on_request: OnRequest, clock: Clock) -> Client:
        configuration = Configuration()
        configuration.host = _HOST
        client = Client(configuration, on_request, clock=clock)
        vars(client)["_session"] = _current.get().session  # a cached property
        return client

    async def enter(proxy: Proxy) -> Proxy:
        async def cleanup() -> None:
            pass

        proxy._listener = SimpleNamespace(in_use=lambda _transport: nullcontext())  # type: ignore[assignment]
        proxy._runner = SimpleNamespace(server=object(), cleanup=cleanup)  # type: ignore[assignment]
        _current.get().runner.proxy = proxy
        return proxy

    @asynccontextmanager
    async def serving(_settings: object, _client: object, metrics: OperatorMetrics, *_: object) -> AsyncIterator[int]:
        _current.get().metrics = metrics
        yield 0

    @contextmanager
    def stopped_by_signals(manager: Manager) -> Iterator[None]:
        _current.get().manager = manager
        yield

    def never(*_: object) -> Awaitable[Any]:
        return asyncio.Event().wait()

    with (
        mock.patch.object(Client, "connect", connect),
        mock.patch.object(Proxy, "__aenter__", enter),
        mock.patch.object(operator, "serving", serving),
        mock.patch.object(operator, "_stopped_by_signals", stopped_by_signals),
        mock.patch.object(operator, "watch_contents", never),
        mock.patch.object(blocking_work, "threading", SimpleNamespace(Thread=_Thread)),
    ):
        yield
