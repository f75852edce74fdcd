"""The operator as a whole: wires everything together, and starts and stops it in order.

One asyncio loop runs the informers, the queues, the dispatcher and the proxy; runs are processes of their own. SIGTERM
and SIGINT stop the operator: no further request is taken, running runs may finish, those that take too long are
interrupted and reported as such, and then everything else stops, within a limit. A second signal ends the process
immediately.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version

from rolecall.kube.aggregated_discovery import AggregatedDiscovery
from rolecall.kube.client import Client
from rolecall.runner.config.leader_election import election_of
from rolecall.runner.config.settings import Settings, resolve_max_concurrent_runs
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.manager import Manager
from rolecall.runner.election.elector import Elector
from rolecall.runner.election.held_shards import HeldShards
from rolecall.runner.election.lease_guard import LeaseGuard
from rolecall.runner.election.member import ShardMember
from rolecall.runner.operator_services import (
    keeping_budget,
    live_page,
    read_watches,
    runner_of,
    running_proxy,
    work_directory,
)
from rolecall.runner.reconcile.event_recorder import EventRecorder
from rolecall.runner.reconcile.own_writes import OwnWrites
from rolecall.runner.reconcile.watch_metrics import WatchMetricsFactory
from rolecall.runner.record.memory import RecordMemory
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.traces import exporting, tracer_of
from rolecall.runner.runs.content_watch import watch_content
from rolecall.runner.runs.runner import Runner
from rolecall.runner.runs.shared_discovery import SharedDiscovery
from rolecall.runner.serving.operator_metrics import OperatorMetrics
from rolecall.runner.serving.probes import Readiness
from rolecall.runner.serving.servers import serving
from rolecall.runner.serving.user_metrics_endpoint import run_environment
from rolecall.runner.watch_controller import OperatorContext, WatchController
from rolecall.system.clock import LoopClock
from rolecall.system.logs import get_logger

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
        runner_of(settings, watches, metrics, runner) as chosen,
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
            keeping_budget(chosen, settings, root, watches) as budgeted,
            read_watches(client, clock, watches, metrics) as reads,
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
                own_writes=OwnWrites(is_complete=shards is None),
                watch_metrics=WatchMetricsFactory.of_kinds(metrics, [watch.gvk for watch in watches]),
                run_environment=run_environment(metrics_port),
                recorder=recorder,
                tracer=tracer_of(traces, recorder, client.base_url, traces_unchanged=settings.trace_unchanged),
                read_watches=reads,
                discovery=SharedDiscovery(AggregatedDiscovery(client)) if settings.warm else None,
                shards=shards,
            )
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
