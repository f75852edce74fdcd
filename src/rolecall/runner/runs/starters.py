"""How the runs of some watches are started: as forks of a server that has imported Ansible, or in new interpreters."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.content_watch import directories_of
from rolecall.runner.runs.runner import Starter
from rolecall.runner.runs.subprocess_starter import SubprocessStarter
from rolecall.runner.warm.starter import ForkserverStarter, OnPatches, OnReplaced


@asynccontextmanager
async def starter_for(
    watches: Iterable[Watch],
    *,
    warm: bool,
    on_replaced: OnReplaced = lambda _reason: None,
    on_patches: OnPatches = lambda _statuses: None,
) -> AsyncIterator[Starter]:
    """Yield what starts the runs; a warm one prepares itself in the background for the content of the watches.

    ``on_replaced`` and ``on_patches`` are those of `ForkserverStarter`.
    """
    if not warm:
        yield SubprocessStarter()
        return
    contents = sorted(set().union(*map(directories_of, watches)))
    async with ForkserverStarter(contents, on_replaced=on_replaced, on_patches=on_patches) as starter:
        yield starter
