"""Noticing that the files of a role or playbook have changed.

A failing object waits for its back-off, up to minutes; a mended role heals it at once instead. What Python and
editors leave beside the files (caches, swap files) is no change.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from watchfiles import DefaultFilter, awatch

from rolecall.config.content import Content, RoleContent
from rolecall.config.watches import Watch
from rolecall.logs import get_logger

logger = get_logger("content")


def directories_of(watch: Watch) -> frozenset[Path]:
    """Return where a watch's files lie: each role, the folder of each playbook, and the roles beside that."""
    contents = [watch.content, *([watch.finalizer.content] if watch.finalizer and watch.finalizer.content else [])]
    return frozenset(path for content in contents for path in _directories(content))


def _directories(content: Content) -> Iterator[Path]:
    if isinstance(content, RoleContent):
        yield content.path.resolve()
        return
    folder = content.path.resolve().parent
    yield folder
    yield from (path for path in (folder / "roles", folder.parent / "roles") if path.is_dir())


async def watch_content(directories: frozenset[Path], on_change: Callable[[], None]) -> None:
    """Call ``on_change`` whenever a file below one of the directories has changed, until cancelled."""
    async for changes in awatch(*sorted(directories), watch_filter=DefaultFilter(), stop_event=asyncio.Event()):
        logger.info("Files of a role changed", files=sorted({path for _, path in changes})[:5])
        on_change()
