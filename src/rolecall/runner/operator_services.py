"""What an operator has besides its controllers: runner, proxy, work directory, live page.

The settings say which there are and how large they may get. Each is started and ended with its ``async with``, and
leaves nothing behind, also after an error.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

from rolecall.kube.client import Client
from rolecall.kube.selected_reads import SelectedReads
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy import Proxy
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.runs.budgeted_runner import BudgetedRunner
from rolecall.runner.runs.guarded_runner import GuardedRunner
from rolecall.runner.runs.orphaned_workspaces import remove_old_kubeconfigs
from rolecall.runner.runs.process_runner import ProcessRunner
from rolecall.runner.runs.runner import Runner
from rolecall.runner.runs.starters import starter_for
from rolecall.runner.serving.operator_metrics import OperatorMetrics
from rolecall.runner.watch_controller import OperatorContext, WatchController
from rolecall.system.clock import LoopClock
from rolecall.system.owned_directories import OwnedDirectory
from rolecall.system.private_files import make_own_directory


@asynccontextmanager
async def runner_of(
    settings: Settings, watches: tuple[Watch, ...], metrics: OperatorMetrics, given: Runner | None
) -> AsyncIterator[Runner]:
    """Yield the runner of all runs; a warm one prepares itself while the informers sync."""
    if given:
        yield given
        return
    starting = starter_for(
        watches,
        warm=settings.warm,
        on_replaced=metrics.count_fork_server,
        on_patches=lambda patches: metrics.set_patches({patch.name: patch.is_in_use for patch in patches}),
    )
    async with starting as starter:
        with GuardedRunner.of(ProcessRunner(starter), settings.run_memory_limit_bytes) as guarded:
            yield guarded


@asynccontextmanager
async def keeping_budget(
    runner: Runner, settings: Settings, root: Path, watches: tuple[Watch, ...]
) -> AsyncIterator[Runner]:
    """Yield a runner that keeps the artifacts of all runs below the limit, if there is one."""
    if not settings.max_artifacts_bytes:
        yield runner
        return
    kinds = [watch.gvk for watch in watches]
    async with BudgetedRunner.of(runner, settings.max_artifacts_bytes, root, kinds) as budgeted:
        yield budgeted


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
    return ReadWatches.of_kinds(partial(SelectedReads, client), clock, kinds, metrics.read_watches.set)


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
