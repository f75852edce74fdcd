"""The operator as a whole: creates all parts, and starts and stops them in order.

One asyncio loop runs the informers, the queues, the dispatcher, and the proxy; runs are separate processes. SIGTERM and
SIGINT stop the operator: it starts no further reconcile, running runs may finish, those that take too long are
interrupted and reported as such, and then everything else stops, within a limit. A second signal ends the process
immediately.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path

from yarl import URL

from rolecall.kube.client import Client
from rolecall.kube.discovery import AggregatedDiscovery
from rolecall.runner.config.settings import Settings, resolve_max_concurrent_runs
from rolecall.runner.config.watches import Watch
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.controller.controller import Dispatcher
from rolecall.runner.controller.manager import Manager
from rolecall.runner.election.elector import Elector, election_of
from rolecall.runner.election.shard_member import HeldShards, ShardMember
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.prune.decision import PRUNES_VARIABLE
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.kubernetes_events import EventRecorder
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import RecordMemory
from rolecall.runner.record.traces import exporting
from rolecall.runner.runs.content import watch_contents
from rolecall.runner.runs.disk_space import ArtifactBudget, remove_old_kubeconfigs
from rolecall.runner.runs.memory import MemoryGuard
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.runner.runs.process import ProcessRunner, Runner, cancellation_seconds
from rolecall.runner.runs.shared_discovery import SharedDiscovery
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.runner.serving.servers import Check, run_environment, serving
from rolecall.runner.warm.starter import ForkserverStarter, starter_for
from rolecall.runner.watch_controller import OperatorContext, WatchController
from rolecall.system.blocking_work import running_in_background
from rolecall.system.clock import SYSTEM_CLOCK, Clock
from rolecall.system.files import OwnedDirectory, check_writable
from rolecall.system.logs import get_logger

logger = get_logger("operator")
NESTING_LIMIT = 12_000
"""The API server accepts JSON up to 10,000 levels deep."""


async def run_operator(  # noqa: PLR0913 - the last four have defaults for an ordinary operator
    settings: Settings,
    watches: tuple[Watch, ...],
    runner: Runner | None = None,
    end_at: Callable[[float], None] | None = None,
    on_stop: Callable[[], object] = lambda: None,
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Run until a signal.

    Raise KubeError if there is no usable configuration for the API server, and ConfigurationError for a setting that
    can't work.

    With leader election, ``end_at`` is called with the time until which this process may run. ``on_stop`` is called
    after the last reconcile, before everything else stops.

    All parts take the time from ``clock``, by default the system's, except for limits of processes, and for times of
    files and certificates. Its monotonic time must pass as fast as that of the event loop.
    """
    check_directories(settings)
    election = election_of(settings)
    kinds = [watch.gvk for watch in watches]
    metrics = OperatorMetrics(version("rolecall"), kinds, clock.monotonic)
    artifacts = ArtifactBudget(settings.max_artifacts_bytes)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), NESTING_LIMIT))  # a deeply nested object must not end it
    if not watches:
        logger.warning("Nothing to watch: the list of kinds is empty", file=str(settings.watches_file))
    if settings.namespaces:
        logger.info("Watching namespaces", namespaces=list(settings.namespaces))
    else:
        logger.info("Watching all namespaces")
    async with (
        exporting(os.environ) as traces,
        nullcontext(runner) if runner else runner_of(settings, watches, metrics, artifacts) as chosen,
        await Client.connect(settings.kubeconfig, metrics.count_request, clock) as client,
    ):
        # Without credentials in the URL. The start names the cluster, because a wrong one is easily chosen.
        logger.info("Using this cluster", server=str(URL(client.base_url).with_user(None)), **client.origin)
        workers = [watch.workers or settings.workers for watch in watches]
        dispatcher = Dispatcher(resolve_max_concurrent_runs(settings, workers))
        shards = HeldShards(settings.shards, settings.grace_seconds, dispatcher) if settings.shards else None
        elector: Elector | ShardMember | None = None
        if election is not None:
            join = Elector if shards is None else partial(ShardMember, shards)
            elector = join(client, election, clock, metrics, end_at or (lambda _when: None))
        grace_seconds, last_seconds = settings.grace_seconds, cancellation_seconds(settings)
        namespaces = settings.namespaces or None
        manager = Manager(client, namespaces, clock, dispatcher, grace_seconds, last_seconds, elector)

        def may_write() -> bool:
            return elector is None or elector.may_write

        async with (
            Proxy(client, settings.proxy_port, may_write, clock=clock) as proxy,
            EventRecorder(client, clock.now, clock.monotonic).running() as events,
            serving(settings, client, metrics, readiness_checks(manager, chosen)) as metrics_port,
            work_directory(settings) as root,
            ReadWatches(client, clock, kinds, metrics.count_read_watches).running() as reads,
        ):
            recorder = Recorder.of_settings(settings, client, has_traces=traces is not None, clock=clock)
            tracer = None
            if traces is not None:
                recorder = recorder or Recorder(client, RecordMemory(0), clock=clock)  # traces are made from records
                tracer = traces(recorder, client.base_url, traces_unchanged=settings.trace_unchanged)
            own_writes = OwnWrites(clock.monotonic, is_complete=shards is None)
            discovery = SharedDiscovery(AggregatedDiscovery(client), clock.monotonic) if settings.warm else None
            context = OperatorContext(
                settings=settings,
                proxy=proxy,
                manager=manager,
                own_writes=own_writes,
                read_watches=reads,
                may_write=may_write,
                shards=shards,
                runner=chosen,
                root=root,
                environment={**run_environment(metrics_port), PRUNES_VARIABLE: "1"},
                discovery=discovery,
                metrics=metrics,
                events=events,
                recorder=recorder,
                tracer=tracer,
            )
            with artifacts.running(root, kinds):
                await _run(context, watches, on_stop)
    logger.info("Exiting")


async def _run(context: OperatorContext, watches: tuple[Watch, ...], on_stop: Callable[[], object]) -> None:
    manager, controllers = context.manager, []
    for watch in watches:
        controller = WatchController(watch, context)
        manager.dispatcher.add(controller.controller)
        controllers.append(controller)
        logger.info("Watching resource", gvk=str(watch.gvk), content=str(watch.content.path))
    async with dashboard(context, controllers), AsyncExitStack() as stack:
        stack.enter_context(_stopped_by_signals(manager))
        # Follow changed roles, and remove the workspaces of objects that were deleted without a last reconcile.
        follow = partial(watch_contents, [(each.watch, each.content_changed) for each in controllers])
        await stack.enter_async_context(running_in_background("files of roles", follow))
        for each in controllers:
            remove = each.orphaned_workspaces.keep_removing
            await stack.enter_async_context(running_in_background(f"orphaned workspaces of {each.watch.gvk}", remove))
        try:
            await manager.run()
        finally:
            on_stop()


@contextmanager
def _stopped_by_signals(manager: Manager) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def stop(number: int) -> None:
        if received:
            logger.warning("Stopping immediately", signal=signal.Signals(number).name)
            os._exit(1)
        received.append(number)
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
        idle_seconds=settings.warm_idle_seconds,
    )
    async with starting as starter:
        with MemoryGuard(settings.run_memory_limit_bytes) as memory:
            yield ProcessRunner(starter, memory, artifacts)


def readiness_checks(manager: Manager, runner: Runner) -> list[Check]:
    """Return the checks of ``/readyz``. Without a fork server runs only start slower, so its check isn't required."""

    def blocked() -> list[str]:
        return [f"informer of {gvk}: {reason}" for gvk, reason in manager.blocked_kinds.items()]

    checks = [Check("informers", lambda: manager.has_settled, notes=blocked)]
    if isinstance(runner, ProcessRunner) and isinstance(runner.starter, ForkserverStarter):
        starter = runner.starter

        def is_alive() -> bool:
            return starter.has_ended_idle or (starter.server is not None and starter.server.is_alive)

        reason = "not alive; runs start in a new interpreter, which takes longer"
        checks.append(Check("fork-server", is_alive, reason, is_required=False))
    return checks


def check_directories(settings: Settings) -> None:
    """Create the directories of the settings, and write to each. Raise ConfigurationError if that fails.

    A setting that is only used later must fail at the start: a run, or its record, would be lost.
    """
    found = {"--work-dir": settings.work_directory, "--record-dir": settings.record_directory}
    for flag, path in (found | {"TMPDIR": settings.kubeconfig_directory}).items():
        try:
            if path is not None:
                check_writable(path)
        except OSError as error:
            raise ConfigurationError(f"cannot write to the directory of {flag}: {error}") from error


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
        shared = settings.kubeconfig_directory
        remove_old_kubeconfigs(shared or settings.work_directory, is_shared=shared is not None)
        yield settings.work_directory.resolve()


@asynccontextmanager
async def dashboard(context: OperatorContext, controllers: list[WatchController]) -> AsyncIterator[None]:
    """Serve the dashboard, if the settings request it."""
    if not context.settings.has_ui:
        yield
        return
    # Import lazily: only the dashboard needs its templates.
    from rolecall.runner.dashboard.commands import Place  # noqa: PLC0415
    from rolecall.runner.dashboard.server import serving_dashboard  # noqa: PLC0415
    from rolecall.runner.dashboard.sources import Kind, Sources  # noqa: PLC0415

    sources = Sources(
        version=version("rolecall"),
        kinds=tuple(map(Kind, controllers)),
        manager=context.manager,
        recorder=context.recorder or Recorder(context.manager.client, RecordMemory(0)),  # an empty one
        shards=context.shards,
        place=Place.here(context.settings),
    )
    async with serving_dashboard(context.settings, context.manager.client, context.metrics, sources):
        yield
