"""The operator as a whole: wires everything together, and starts and stops it in order.

One asyncio loop runs the informers, the queues, the dispatcher and the proxy; runs are processes of their own. SIGTERM
and SIGINT stop the operator: no further request is taken, running runs are ended, their objects get a true status, and
then everything else stops, within a limit. A second signal ends the process at once.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

from rolecall.config.leader_election import election_of
from rolecall.config.settings import Settings, resolve_max_concurrent_runs
from rolecall.config.watches import Watch
from rolecall.controller.clock import LoopClock
from rolecall.controller.leader_election import Elector
from rolecall.controller.lease_guard import LeaseGuard
from rolecall.controller.manager import Manager
from rolecall.controller.reads.read_watches import ReadWatches
from rolecall.controller.shards.held_shards import HeldShards
from rolecall.controller.shards.member import ShardMember
from rolecall.controller.source.object_cache import ObjectCache
from rolecall.kube.aggregated_discovery import AggregatedDiscovery
from rolecall.kube.client import Client
from rolecall.kube.selected_reads import SelectedReads
from rolecall.logs import get_logger
from rolecall.metrics.operator_metrics import OperatorMetrics
from rolecall.owned_directories import OwnedDirectory
from rolecall.private_files import make_own_directory
from rolecall.proxy import Proxy
from rolecall.reconcile.event_recorder import EventRecorder
from rolecall.reconcile.self_triggers import OwnWrites
from rolecall.reconcile.watch_metrics import WatchMetricsFactory
from rolecall.record.memory import RecordMemory
from rolecall.record.recorder import Recorder
from rolecall.runs.budgeted_runner import BudgetedRunner
from rolecall.runs.content_watch import watch_content
from rolecall.runs.guarded_runner import GuardedRunner
from rolecall.runs.orphaned_workspaces import remove_old_kubeconfigs
from rolecall.runs.process_runner import ProcessRunner
from rolecall.runs.runner import Runner
from rolecall.runs.shared_discovery import SharedDiscovery
from rolecall.runs.starters import starter_for
from rolecall.serving.probes import Readiness
from rolecall.serving.servers import serving
from rolecall.serving.user_metrics_endpoint import run_environment
from rolecall.tracing.traces import exporting, tracer_of
from rolecall.watch_controller import OperatorContext, WatchController

logger = get_logger("operator")
NESTING_LIMIT = 12_000
"""The API server accepts JSON up to 10,000 levels deep."""


async def run_operator(
    settings: Settings,
    watches: tuple[Watch, ...],
    runner: Runner | None = None,
    guard: LeaseGuard | None = None,
    on_stop: Callable[[], object] | None = None,
) -> None:
    """Run until a signal. Raises KubeError if there is no usable configuration for the API server.

    With leader election the ``guard`` is told until when this process may run. ``on_stop`` is called after the last
    reconcile, before everything else stops.
    """
    election = election_of(settings)
    metrics = OperatorMetrics(version("rolecall"))
    _allow_nesting()
    _announce(settings, watches)
    clock = LoopClock()
    async with (
        exporting(os.environ) as traces,
        _runner(settings, watches, metrics, runner) as chosen,
        await Client.connect(settings.kubeconfig, metrics.count_request) as client,
    ):
        shards = HeldShards(settings.shards, settings.grace_seconds) if settings.shards else None
        takes_part = _participant(shards)
        elector = takes_part(client, election, clock, metrics, guard.end_at if guard else None) if election else None
        may_write = _may_write(elector)
        manager = Manager(client, settings.namespaces or None, clock, elector, settings.grace_seconds)
        manager.dispatcher.limit = _limit_of_runs(settings, watches)
        if shards is not None:
            shards.dispatcher = manager.dispatcher
        async with (
            _proxy(client, settings, may_write) as proxy,
            EventRecorder(client).running() as events,
            serving(settings, client, metrics, _readiness_of(manager)) as metrics_port,
            _work_directory(settings) as root,
            _budgeted(chosen, settings, root, watches) as budgeted,
            _read_watches(client, clock, watches, metrics) as reads,
        ):
            recorder = _recorder(settings, client, is_traced=traces is not None)
            context = OperatorContext(
                settings=settings,
                client=client,
                proxy=proxy,
                runner=budgeted,
                manager=manager,
                events=events,
                may_write=may_write,
                clock=clock,
                root=root,
                own_writes=OwnWrites(),
                watch_metrics=WatchMetricsFactory.of_kinds(metrics, [watch.gvk for watch in watches]),
                run_environment=run_environment(metrics_port),
                recorder=recorder,
                tracer=tracer_of(traces, recorder, client.base_url, traces_unchanged=settings.trace_unchanged),
                read_watches=reads,
                discovery=SharedDiscovery(AggregatedDiscovery(client)) if settings.warm else None,
                shards=shards,
            )
            controllers = [_add(watch, context) for watch in watches]
            async with _page(context, controllers, metrics):
                with _stopped_by_signals(manager):
                    await _run(manager, controllers, on_stop, keeps_files=settings.work_directory is not None)
    logger.info("Exiting")


def _recorder(settings: Settings, client: Client, *, is_traced: bool) -> Recorder | None:
    """Return what records the runs; traces are made from records, even if none is kept."""
    found = Recorder.of_settings(settings, client)
    return found or (Recorder(client, RecordMemory(0)) if is_traced else None)


def _allow_nesting() -> None:
    """Let objects be nested as deeply as the API server accepts: reading one must not end the operator."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), NESTING_LIMIT))


def _readiness_of(manager: Manager) -> Readiness:
    def notes() -> list[str]:
        return [f"informer of {gvk}: {reason}" for gvk, reason in manager.blocked_kinds.items()]

    return Readiness(lambda: manager.has_settled, notes)


def _announce(settings: Settings, watches: tuple[Watch, ...]) -> None:
    if not watches:
        logger.warning("Nothing to watch: the list of kinds is empty", file=str(settings.watches_file))
    if settings.namespaces:
        logger.info("Watching namespaces", namespaces=list(settings.namespaces))
    else:
        logger.info("Watching all namespaces")


def _participant(shards: HeldShards | None) -> Callable[..., Elector | ShardMember]:
    return Elector if shards is None else partial(ShardMember, shards)


def _may_write(elector: Elector | ShardMember | None) -> Callable[[], bool]:
    return (lambda: True) if elector is None else (lambda: elector.may_write)


def _limit_of_runs(settings: Settings, watches: tuple[Watch, ...]) -> int:
    return resolve_max_concurrent_runs(settings, [watch.workers or settings.workers for watch in watches])


@asynccontextmanager
async def _work_directory(settings: Settings) -> AsyncIterator[Path]:
    """Yield the directory of the workspaces; a temporary one is removed at the end."""
    if settings.work_directory is None:
        temporary = OwnedDirectory.make("rolecall-work-")
        try:
            yield temporary.path.resolve()
        finally:
            temporary.remove()
    else:
        make_own_directory(settings.work_directory)
        shared = settings.kubeconfig_directory
        remove_old_kubeconfigs(shared or settings.work_directory, is_shared=shared is not None)
        yield settings.work_directory.resolve()


def _add(watch: Watch, context: OperatorContext) -> WatchController:
    controller = WatchController(watch, context)
    context.manager.add(controller.controller)
    logger.info("Watching resource", gvk=str(watch.gvk), content=str(watch.content.path))
    return controller


async def _run(
    manager: Manager, controllers: list[WatchController], on_stop: Callable[[], object] | None, *, keeps_files: bool
) -> None:
    beside = [
        asyncio.create_task(watch_content(controller.watch, controller.content_changed)) for controller in controllers
    ]
    if keeps_files:
        beside += [asyncio.create_task(controller.remove_orphaned_workspaces()) for controller in controllers]
    try:
        await manager.run()
    finally:
        if on_stop is not None:
            on_stop()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


@asynccontextmanager
async def _page(
    context: OperatorContext, controllers: list[WatchController], metrics: OperatorMetrics
) -> AsyncIterator[None]:
    """Serve the live page, if the settings ask for it."""
    if not context.settings.has_ui:
        yield
        return
    # Nobody else should pay for its templates.
    from rolecall.page.server import serving_page  # noqa: PLC0415
    from rolecall.page.sources import Kind, Sources  # noqa: PLC0415

    sources = Sources(
        version=version("rolecall"),
        kinds=tuple(map(Kind.of, controllers)),
        manager=context.manager,
        clock=context.clock,
        recorder=context.recorder,
        shards=context.shards,
    )
    async with serving_page(context.settings, context.client, metrics, sources):
        yield


@asynccontextmanager
async def _runner(
    settings: Settings, watches: tuple[Watch, ...], metrics: OperatorMetrics, given: Runner | None
) -> AsyncIterator[Runner]:
    """Yield the runner of all runs; a warm one prepares itself while the informers sync."""
    if given:
        yield given
        return
    async with starter_for(watches, warm=settings.warm, on_replaced=metrics.count_fork_server) as starter:
        with GuardedRunner.of(ProcessRunner(starter), settings.run_memory_limit_bytes) as guarded:
            yield guarded


@asynccontextmanager
async def _budgeted(
    runner: Runner, settings: Settings, root: Path, watches: tuple[Watch, ...]
) -> AsyncIterator[Runner]:
    """Yield a runner that keeps the artifacts of all runs below the limit, if there is one."""
    if not settings.max_artifacts_bytes:
        yield runner
        return
    kinds = [watch.gvk for watch in watches]
    async with BudgetedRunner.of(runner, settings.max_artifacts_bytes, root, kinds) as budgeted:
        yield budgeted


def _read_watches(
    client: Client, clock: LoopClock, watches: tuple[Watch, ...], metrics: OperatorMetrics
) -> ReadWatches:
    kinds = [watch.gvk for watch in watches]
    return ReadWatches.of_kinds(partial(SelectedReads, client), clock, kinds, metrics.read_watches.set)


@asynccontextmanager
async def _proxy(client: Client, settings: Settings, may_write: Callable[[], bool]) -> AsyncIterator[Proxy]:
    async with ObjectCache(client, settings.namespaces or None) as cache:
        proxy = Proxy(client, settings.proxy_port, cache=cache if settings.cache_reads else None, may_write=may_write)
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
