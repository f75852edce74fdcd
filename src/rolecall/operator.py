"""The operator as a whole: wires everything together, and starts and stops it in order.

One asyncio loop runs the informers, the queues, the workers and the proxy; runs are processes of their own. SIGTERM
and SIGINT stop the operator: no further request is taken, running runs are ended, their objects get a true status, and
then everything else stops. A second signal ends the process at once.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path

from rolecall.config.leader_election import election_of
from rolecall.config.settings import Settings, make_private_directory, resolve_max_concurrent_runs
from rolecall.config.watches import Watch
from rolecall.controller.clock import LoopClock
from rolecall.controller.leader_election import Elector
from rolecall.controller.lease_guard import guard_of
from rolecall.controller.manager import Manager
from rolecall.controller.source.object_cache import ObjectCache
from rolecall.kube.client import Client
from rolecall.logs import get_logger
from rolecall.metrics.operator_metrics import OperatorMetrics
from rolecall.proxy import Proxy
from rolecall.reconcile.event_recorder import EventRecorder
from rolecall.reconcile.self_triggers import OwnWrites
from rolecall.reconcile.watch_metrics import WatchMetricsFactory
from rolecall.record.recorder import Recorder
from rolecall.runs.content_watch import directories_of, watch_content
from rolecall.runs.forkserver.starter import ForkserverStarter
from rolecall.runs.orphaned_workspaces import remove_old_kubeconfigs
from rolecall.runs.process_runner import ProcessRunner
from rolecall.runs.runner import Runner
from rolecall.runs.subprocess_starter import SubprocessStarter
from rolecall.serving.servers import serving
from rolecall.serving.user_metrics_endpoint import run_environment
from rolecall.watch_controller import OperatorContext, WatchController

logger = get_logger("operator")
NESTING_LIMIT = 12_000
"""The API server accepts JSON up to 10,000 levels deep."""


async def run_operator(settings: Settings, watches: tuple[Watch, ...], runner: Runner | None = None) -> None:
    """Run until a signal. Raises KubeError if there is no usable configuration for the API server."""
    election = election_of(settings)
    metrics = OperatorMetrics(version("rolecall"))
    # An object may be nested as deeply as the API server accepts; reading it must not end the operator.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), NESTING_LIMIT))
    _announce(settings, watches)
    clock = LoopClock()
    async with (
        _runner(settings, watches, runner) as chosen,
        await Client.connect(settings.kubeconfig, metrics.count_request) as client,
        _proxy(client, settings) as proxy,
        EventRecorder(client).running() as events,
    ):
        elector = Elector(client, election, clock, metrics, guard_of(election).renewed) if election else None
        manager = Manager(client, settings.namespaces or None, clock, elector, settings.grace_seconds)
        async with (
            serving(settings, client, metrics, lambda: manager.has_settled) as metrics_port,
            _work_directory(settings) as root,
        ):
            context = OperatorContext(
                settings=settings,
                client=client,
                proxy=proxy,
                runner=chosen,
                manager=manager,
                events=events,
                limit=asyncio.Semaphore(_limit_of_runs(settings, watches)),
                clock=clock,
                root=root,
                own_writes=OwnWrites(),
                watch_metrics=WatchMetricsFactory.of_kinds(metrics, [watch.gvk for watch in watches]),
                run_environment=run_environment(metrics_port),
                recorder=Recorder.of_settings(settings, client),
            )
            controllers = [_add(watch, context) for watch in watches]
            with _stopped_by_signals(manager):
                await _run(manager, controllers, keeps_files=settings.work_directory is not None)
    logger.info("Exiting")


def _announce(settings: Settings, watches: tuple[Watch, ...]) -> None:
    if not watches:
        logger.warning("Nothing to watch: the list of kinds is empty", file=str(settings.watches_file))
    if settings.namespaces:
        logger.info("Watching namespaces", namespaces=list(settings.namespaces))
    else:
        logger.info("Watching all namespaces")


def _limit_of_runs(settings: Settings, watches: tuple[Watch, ...]) -> int:
    return resolve_max_concurrent_runs(settings, [watch.workers or settings.workers for watch in watches])


@asynccontextmanager
async def _work_directory(settings: Settings) -> AsyncIterator[Path]:
    """Yield the directory of the workspaces; a temporary one is removed at the end."""
    root = settings.work_directory or make_private_directory()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_old_kubeconfigs(root)
    try:
        yield root.resolve()
    finally:
        if settings.work_directory is None:
            shutil.rmtree(root, ignore_errors=True)


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
    """Yield the runner of all runs; a warm one prepares itself while the informers sync."""
    if given:
        yield given
    elif not settings.warm:
        yield ProcessRunner(SubprocessStarter())
    else:
        async with ForkserverStarter(sorted(set().union(*map(directories_of, watches)))) as starter:
            yield ProcessRunner(starter)


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
            logger.warning("Stopping immediately", signal=signal.Signals(number).name)
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
