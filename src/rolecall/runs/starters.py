"""How the runs of some watches are started: as forks of a server that has imported Ansible, or in new interpreters."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from rolecall.config.watches import Watch
from rolecall.runs.content_watch import directories_of
from rolecall.runs.forkserver.starter import ForkserverStarter, OnPatches, OnReplaced
from rolecall.runs.runner import Starter
from rolecall.runs.subprocess_starter import SubprocessStarter


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
