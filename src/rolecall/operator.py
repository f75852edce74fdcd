"""The operator as a whole: everything wired together, started in order and stopped in order.

One asyncio loop holds the informers, the queues, the workers and the proxy; plays are processes of their own. SIGTERM
and SIGINT stop it: no request is taken any more, running plays are ended, their objects get an honest status, then
everything else goes. A second signal ends the process at once.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version

from rolecall.config.settings import Settings, make_private_directory, resolve_max_concurrent_runs
from rolecall.config.watches import Watch
from rolecall.controller.clock import LoopClock
from rolecall.controller.lease_guard import election_of, elector
from rolecall.controller.manager import Manager
from rolecall.controller.source.object_cache import ObjectCache
from rolecall.kube.client import Client
from rolecall.logs import get_logger
from rolecall.metrics.operator_metrics import OperatorMetrics
from rolecall.metrics.watch_metrics import WatchMetricsFactory
from rolecall.proxy import Proxy
from rolecall.reconcile.event_recorder import EventRecorder
from rolecall.reconcile.own_writes import OwnWrites
from rolecall.runs.content_watch import directories_of, watch_content
from rolecall.runs.forkserver.runner import ForkserverRunner
from rolecall.runs.orphaned_workspaces import remove_old_kubeconfigs
from rolecall.runs.runner import Runner
from rolecall.runs.subprocess_runner import SubprocessRunner
from rolecall.serving.servers import serving
from rolecall.serving.user_metrics_endpoint import run_environment
from rolecall.watch_controller import OperatorContext, WatchController

logger = get_logger("operator")
NESTING_LIMIT = 12_000
"""The API server reads JSON up to 10,000 levels deep."""


async def run_operator(settings: Settings, watches: tuple[Watch, ...], runner: Runner | None = None) -> None:
    """Run until a signal says stop. Raises KubeError when there is no usable configuration for the API server."""
    election = election_of(settings)
    metrics = OperatorMetrics(version("rolecall"))
    # An object may be nested as deeply as the API server takes it; reading it must not end the operator.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), NESTING_LIMIT))
    if not watches:
        logger.warning("Nothing to watch: the list of kinds is empty", file=str(settings.watches_file))
    if settings.namespaces:
        logger.info("Watching namespaces", namespaces=list(settings.namespaces))
    else:
        logger.info("Watching all namespaces")
    async with (
        _runner(settings, watches, runner) as chosen,
        await Client.connect(settings.kubeconfig) as client,
        _proxy(client, settings) as proxy,
        EventRecorder(client).running() as events,
        _manager(client, settings, metrics) as (manager, run_environment),
    ):
        if election is not None:
            manager.leadership = elector(election, client, manager.clock, metrics)
        root = settings.work_directory or make_private_directory()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_old_kubeconfigs(root)
        context = OperatorContext(
            settings=settings,
            client=client,
            proxy=proxy,
            runner=chosen,
            manager=manager,
            events=events,
            limit=asyncio.Semaphore(
                resolve_max_concurrent_runs(settings, [watch.workers or settings.workers for watch in watches])
            ),
            clock=manager.clock,
            root=root.resolve(),
            own_writes=OwnWrites(),
            measuring=WatchMetricsFactory.of_kinds(metrics, [watch.gvk for watch in watches]),
            run_environment=run_environment,
        )
        try:
            controllers = [_add(watch, context) for watch in watches]
            with _stopped_by_signals(manager):
                await _run(manager, controllers, keeps_files=settings.work_directory is not None)
        finally:
            if settings.work_directory is None:
                shutil.rmtree(root, ignore_errors=True)
    logger.info("Exiting")


def _add(watch: Watch, context: OperatorContext) -> WatchController:
    controller = WatchController(watch, context)
    context.manager.add(controller.controller)
    logger.info("Watching resource", gvk=str(watch.gvk), content=str(watch.content.path))
    return controller


async def _run(manager: Manager, controllers: list[WatchController], *, keeps_files: bool) -> None:
    beside = [
        asyncio.create_task(watch_content(directories_of(controller.watch), controller.content_changed))
        for controller in controllers
    ]
    if keeps_files:
        beside += [asyncio.create_task(controller.remove_orphaned_workspaces()) for controller in controllers]
    try:
        await manager.run()
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


@asynccontextmanager
async def _runner(settings: Settings, watches: tuple[Watch, ...], given: Runner | None) -> AsyncIterator[Runner]:
    """Yield the runner for all plays; a warm one prepares itself while informers fill their stores."""
    if given:
        yield given
    elif not settings.warm:
        yield SubprocessRunner()
    else:
        async with ForkserverRunner(sorted(set().union(*map(directories_of, watches)))) as warm:
            yield warm


@asynccontextmanager
async def _manager(
    client: Client, settings: Settings, metrics: OperatorMetrics
) -> AsyncIterator[tuple[Manager, Mapping[str, str]]]:
    """Yield the manager while probes and metrics are served, and what runs have to know of that."""
    client.on_request = metrics.count_request
    manager = Manager(client, settings.namespaces or None, LoopClock())
    manager.grace_seconds = settings.grace_seconds
    async with serving(settings, client, metrics, lambda: manager.has_settled) as port:
        yield manager, run_environment(port)


@asynccontextmanager
async def _proxy(client: Client, settings: Settings) -> AsyncIterator[Proxy]:
    async with ObjectCache(client, settings.namespaces or None) as cache:
        proxy = Proxy(client, settings.proxy_port, cache=cache if settings.cache_reads else None)
        try:
            await proxy.start()
            yield proxy
        finally:
            await proxy.stop()


@contextmanager
def _stopped_by_signals(manager: Manager) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def stop(number: int) -> None:
        if seen:
            logger.warning("Stopping at once", signal=signal.Signals(number).name)
            os._exit(1)
        seen.append(number)
        logger.info("Stopping", signal=signal.Signals(number).name)
        manager.stop()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
