"""The operator as a whole: wires everything together, and starts and stops it in order.

One asyncio loop runs the informers, the queues, the dispatcher and the proxy; runs are processes of their own. SIGTERM
and SIGINT stop the operator: no further request is taken, running runs may finish, those that take too long are
interrupted and reported as such, and then everything else stops, within a limit. A second signal ends the process
immediately.

What an operator has besides its controllers: runner, proxy, work directory, live page.

The settings say which there are and how large they may get. Each is started and ended with its ``async with``, and
leaves nothing behind, also after an error.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path

from rolecall.kube.client import Client, SelectedReads
from rolecall.kube.discovery import AggregatedDiscovery
from rolecall.runner.config.settings import Settings, resolve_max_concurrent_runs
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.manager import Manager
from rolecall.runner.election.elector import Elector, election_of
from rolecall.runner.election.lease_guard import LeaseGuard
from rolecall.runner.election.shard_member import HeldShards, ShardMember
from rolecall.runner.proxy import Proxy
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.kubernetes_events import EventRecorder
from rolecall.runner.reconcile.own_writes import OwnWrites
from rolecall.runner.record.memory import RecordMemory
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.traces import exporting, tracer_of
from rolecall.runner.runs.api_access import SharedDiscovery
from rolecall.runner.runs.artifacts import ArtifactBudget
from rolecall.runner.runs.content import watch_content
from rolecall.runner.runs.memory import MemoryGuard
from rolecall.runner.runs.orphaned_workspaces import remove_old_kubeconfigs
from rolecall.runner.runs.process import ProcessRunner, Runner
from rolecall.runner.serving.operator_metrics import OperatorMetrics
from rolecall.runner.serving.servers import Readiness, run_environment, serving
from rolecall.runner.warm.starter import starter_for
from rolecall.runner.watch_controller import OperatorContext, WatchController, WatchMetricsFactory
from rolecall.system.clock import LoopClock
from rolecall.system.files import OwnedDirectory, make_own_directory
from rolecall.system.logs import get_logger


@asynccontextmanager
async def runner_of(
    settings: Settings, watches: tuple[Watch, ...], metrics: OperatorMetrics, artifacts: ArtifactBudget
) -> AsyncIterator[Runner]:
    """Yield the runner of all runs; a warm one prepares itself while the informers sync."""
    starting = starter_for(
        watches,
        warm=settings.warm,
        on_replaced=metrics.count_fork_server,
        on_patches=lambda patches: metrics.set_patches({patch.name: patch.is_in_use for patch in patches}),
    )
    async with starting as starter:
        with MemoryGuard(settings.run_memory_limit_bytes) as memory:
            yield ProcessRunner(starter, memory, artifacts)


@asynccontextmanager
async def running_proxy(client: Client, settings: Settings, may_write: Callable[[], bool]) -> AsyncIterator[Proxy]:
    """Yield the API server as runs see it."""
    proxy = Proxy(client, settings.proxy_port, may_write=may_write)
    try:
        await proxy.start()
        yield proxy
    finally:
        await proxy.stop()


def read_watches(client: Client, clock: LoopClock, watches: tuple[Watch, ...], metrics: OperatorMetrics) -> ReadWatches:
    """Return the watches of what runs have read, counted for each kind in the metrics."""
    kinds = [watch.gvk for watch in watches]
    return ReadWatches(partial(SelectedReads, client), clock, kinds, metrics.read_watches.set)


@asynccontextmanager
async def work_directory(settings: Settings) -> AsyncIterator[Path]:
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


@asynccontextmanager
async def live_page(
    context: OperatorContext, controllers: list[WatchController], metrics: OperatorMetrics
) -> AsyncIterator[None]:
    """Serve the live page, if the settings ask for it."""
    if not context.settings.has_ui:
        yield
        return
    # Nobody else should pay for its templates.
    from rolecall.runner.dashboard.server import serving_page  # noqa: PLC0415
    from rolecall.runner.dashboard.sources import Kind, Sources  # noqa: PLC0415

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
    artifacts = ArtifactBudget(settings.max_artifacts_bytes)
    _allow_nesting()
    _announce(settings, watches)
    clock = LoopClock()
    async with (
        exporting(os.environ) as traces,
        nullcontext(runner) if runner else runner_of(settings, watches, metrics, artifacts) as chosen,
        await Client.connect(settings.kubeconfig, metrics.count_request) as client,
    ):
        shards = HeldShards(settings.shards, settings.grace_seconds) if settings.shards else None
        takes_part = _participant(shards)
        elector = takes_part(client, election, clock, metrics, guard.end_at if guard else None) if election else None
        may_write = _may_write(elector)
        manager = _manager(client, settings, watches, clock, elector)
        if shards is not None:
            shards.dispatcher = manager.dispatcher
        async with (
            running_proxy(client, settings, may_write) as proxy,
            EventRecorder(client).running() as events,
            serving(settings, client, metrics, _readiness_of(manager)) as metrics_port,
            work_directory(settings) as root,
            read_watches(client, clock, watches, metrics) as reads,
        ):
            recorder = _recorder(settings, client, is_traced=traces is not None)
            context = OperatorContext(
                settings=settings,
                client=client,
                proxy=proxy,
                runner=chosen,
                manager=manager,
                events=events,
                may_write=may_write,
                clock=clock,
                root=root,
                own_writes=OwnWrites(is_complete=shards is None),
                watch_metrics=WatchMetricsFactory.of_kinds(metrics, [watch.gvk for watch in watches]),
                run_environment=run_environment(metrics_port),
                recorder=recorder,
                tracer=tracer_of(traces, recorder, client.base_url, traces_unchanged=settings.trace_unchanged),
                read_watches=reads,
                discovery=SharedDiscovery(AggregatedDiscovery(client)) if settings.warm else None,
                shards=shards,
            )
            with artifacts.running(root, [watch.gvk for watch in watches]):
                await _run(context, watches, metrics, on_stop)
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


def _manager(
    client: Client,
    settings: Settings,
    watches: tuple[Watch, ...],
    clock: LoopClock,
    elector: Elector | ShardMember | None,
) -> Manager:
    manager = Manager(client, settings.namespaces or None, clock, elector, settings.grace_seconds)
    workers = [watch.workers or settings.workers for watch in watches]
    manager.dispatcher.limit = resolve_max_concurrent_runs(settings, workers)
    return manager


def _add(watch: Watch, context: OperatorContext) -> WatchController:
    controller = WatchController(watch, context)
    context.manager.add(controller.controller)
    logger.info("Watching resource", gvk=str(watch.gvk), content=str(watch.content.path))
    return controller


async def _run(
    context: OperatorContext,
    watches: tuple[Watch, ...],
    metrics: OperatorMetrics,
    on_stop: Callable[[], object] | None,
) -> None:
    controllers = [_add(watch, context) for watch in watches]
    async with live_page(context, controllers, metrics):
        with _stopped_by_signals(context.manager):
            beside = _watch_files(controllers)
            try:
                await context.manager.run()
            finally:
                if on_stop is not None:
                    on_stop()
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)


def _watch_files(controllers: list[WatchController]) -> list[asyncio.Task[None]]:
    """Follow changed roles, and remove the workspaces of objects that went without a last reconcile."""
    followed = [watch_content(controller.watch, controller.content_changed) for controller in controllers]
    removed = [controller.orphaned_workspaces.keep_removing() for controller in controllers]
    return [asyncio.create_task(each) for each in (*followed, *removed)]


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
